"""ARCHITECTURE.md names every folder, every layer, and no file that does not exist; rooms keep its budgets."""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from code_figures import lines_of_rooms

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "wattune"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
IN_CODE = set(re.findall(r"`([^`\n]+)`", PAGE))

FOLDERS = sorted(
    str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("__init__.py") if path.parent not in (SOURCE,)
)
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
LAYERS = [name.strip(" ()") for row in CONTRACTS[0]["layers"] for name in row.split("|")]


@cache
def room_lines():
    return lines_of_rooms(ROOT)


NAMED_FILES = sorted(name for name in IN_CODE if name.endswith(".py") and "NAME" not in name)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_is_described(folder):
    assert folder in IN_CODE


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_is_described(layer):
    assert layer in IN_CODE or layer == "__main__"


@pytest.mark.parametrize("file", NAMED_FILES)
def test_every_named_file_exists(file):
    assert (SOURCE / file).exists() or (ROOT / file).exists()


BUDGETS = {
    room: int(lines)
    for room, lines in re.findall(r"^\| `?([a-z/ ]+?)`? \| ([\d]+) \|$", PAGE.partition("## Budgets")[2], re.MULTILINE)
}


@pytest.mark.parametrize("room", sorted({*BUDGETS, *room_lines()}))
def test_a_room_keeps_its_budget(room):
    assert room_lines().get(room, 0) <= 1.1 * BUDGETS.get(room, 0), "change the table in a commit that says why"
    assert room in room_lines(), "the room is gone: take its line out of the table"
