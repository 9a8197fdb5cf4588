"""The GPUs that can be simulated: one file each, every value with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattune.core.errors import DeviceNotFound
from wattune.core.near_names import meant
from wattune.physics.catalog.sheet import Sheet, Sourced

if TYPE_CHECKING:
    from wattune.physics.gpu_model import GpuModel

_FOLDER = Path(__file__).parent
# What precedes the model in a GPU's name.
_MAKERS = re.compile(r"(?:sim:|nvidia|amd|instinct|geforce|tesla|quadro|rtx|gtx)+")


def catalog_names() -> tuple[str, ...]:
    """Return the keys of all GPUs in the catalogue, in alphabetical order."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.toml")))


def load_model(name: str) -> GpuModel:
    """Load the GPU of that name, or of a file (`./my-a100.toml`) in the catalogue's format.

    In names case, spaces, hyphens, underscores, the maker's name and `sim:` do not matter.
    """
    return _parsed(load_sheet(name)) if is_file_name(name) else _model(catalog_key(name))


def load_sheet(name: str) -> Sheet:
    """Load the catalogue file of the GPU of that name, or another file in its format."""
    if not is_file_name(name):
        return _sheet(catalog_key(name))
    if not Path(name).is_file():
        raise DeviceNotFound(
            f"there is no file {name}", hint="make one: wattune physics fit SWEEP.csv --gpu a100 --out FILE.toml"
        )
    return Sheet.read(Path(name))


def is_file_name(name: str) -> bool:
    """Return whether the name of a simulated GPU is that of a file."""
    return name.endswith(".toml") or "/" in name


def trust(name: str) -> str:
    """Return how far a GPU can be trusted: what it was fitted to, what it was judged on, and what is an estimate."""
    return load_sheet(name).text("trust")


def sources(name: str) -> tuple[Sourced, ...]:
    """Return every value of a GPU with its mark and source, the clocks first."""
    sheet = load_sheet(name)
    clocks = (sheet.marked("clocks", entry, _span(entry)) for entry in sheet.tables("clocks"))
    return (*clocks, *sheet.all_sourced())


def _span(entry: Mapping[str, Any]) -> str:
    span = entry["sm_mhz"]
    return f"memory {entry['mem_mhz']} MHz, core {span['lowest']} to {span['highest']} MHz in {span['count']}"


def read_model(file: Path) -> GpuModel:
    """Read the GPU that a file in the catalogue's format describes."""
    return _parsed(Sheet.read(file))


@cache
def _model(key: str) -> GpuModel:
    return _parsed(_sheet(key))


def _parsed(sheet: Sheet) -> GpuModel:
    # NumPy takes longer to import than the names of the GPUs take to print.
    from wattune.physics.catalog.parse import parse_model

    return parse_model(sheet)


@cache
def _sheet(key: str) -> Sheet:
    return Sheet.read(_FOLDER / f"{key}.toml")


def catalog_key(name: str) -> str:
    """Return the key of the GPU that people call by this name; DeviceNotFound names the nearest."""
    known = _keys_by_name()
    plain = _plain(name)
    if plain in known:
        return known[plain]
    hint = meant(plain, known).strip() or f"there are {', '.join(catalog_names())}"
    raise DeviceNotFound(f"there is no simulated GPU {name!r}", hint=hint)


@cache
def _keys_by_name() -> dict[str, str]:
    names: dict[str, str] = {}
    for key in catalog_names():
        sheet = _sheet(key)
        for name in (key, sheet.text("name"), *sheet.texts("aliases")):
            names[_plain(name)] = key
    return names


def _plain(name: str) -> str:
    joined = re.sub(r"[\s_\-]+|\(simulated\)", "", name.lower())
    return joined[found.end() :] if (found := _MAKERS.match(joined)) else joined
