"""The page about NVML functions lists those that the code calls, and no others."""

import re
from pathlib import Path

import pynvml

from wattune.devices.nvml.probe import READERS

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "reference" / "driver-support.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(nvml\w+)` \| (.+) \| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)


def is_function(name):
    found = getattr(pynvml, name, None)
    return callable(found) and not isinstance(found, type)


def called():
    """The functions of NVML that the source names, outside the emulator."""
    package = ROOT / "src" / "wattune"
    files = [file for file in package.rglob("*.py") if "emulator" not in file.relative_to(package).parts]
    names = {name for file in files for name in re.findall(r"\bnvml[A-Z]\w+", file.read_text(encoding="utf-8"))}
    return {name for name in names if is_function(name)}


def test_every_function_has_a_row_and_every_row_a_function():
    listed = [name for name, *_ in ROWS]
    assert len(set(listed)) == len(listed)
    assert set(listed) == called()


def test_setters_need_root_and_getters_do_not():
    for name, _, _, privilege, _ in ROWS:
        assert (privilege == "root") == bool(re.search(r"DeviceSet|DeviceReset", name)), name


def test_every_reader_is_probed():
    probed = {name for name, _ in READERS}
    readers = {name for name, *_ in ROWS if name.startswith("nvmlDeviceGet") and "Handle" not in name}
    assert readers - {"nvmlDeviceGetCount"} == probed - {"nvmlGpmQueryDeviceSupport"}
