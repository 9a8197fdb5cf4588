"""The public names are those of the reference page, can be imported, and cost nothing until they are used."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wattune

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "python.md").read_text(encoding="utf-8")


def documented():
    """The names that begin a row of a table, and those of the paragraph about errors."""
    first_cells = re.findall(r"^\| (`.+?) \| ", PAGE, re.MULTILINE)
    names = {name for cell in first_cells for name in re.findall(r"`(\w+)", cell)}
    names |= set(re.findall(r"`(\w+)`", re.search(r"## Errors\n(.*?)\n## ", PAGE, re.DOTALL)[1]))
    return names


def test_the_page_lists_exactly_the_public_names():
    assert documented() == set(wattune.__all__)
    assert wattune.__all__ == sorted(wattune.__all__)


@pytest.mark.parametrize("name", wattune.__all__)
def test_a_public_name_can_be_imported_and_is_documented_in_the_code(name):
    value = getattr(wattune, name)
    if name != "__version__":
        assert value.__doc__
        assert value is getattr(importlib.import_module(value.__module__), value.__name__)


def test_the_names_that_a_shell_completes_are_the_public_ones():
    assert dir(wattune) == sorted(wattune.__all__)


def test_any_other_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'get_gpus'"):
        wattune.get_gpus  # noqa: B018


@pytest.mark.parametrize(
    "program", ["import wattune", "from wattune import measured, open_gpu, Setting, Sampler, Frontier, WattuneError"]
)
def test_importing_loads_neither_numpy_nor_nvml(program):
    heavy = ("numpy", "scipy", "pynvml", "sqlalchemy", "rich", "click")
    check = f"{program}\nimport sys\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
