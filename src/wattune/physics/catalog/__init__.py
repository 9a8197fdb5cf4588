"""The GPUs that can be simulated: one file each, every value with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattune.core.errors import DeviceNotFound
from wattune.core.near_names import meant
from wattune.core.trust import Trust, TrustLevel
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
    if not is_file_name(name):
        return _model(catalog_key(name))
    model = _parsed(load_sheet(name))
    # Its figures must not be taken for those of the catalogue's GPU, by name.
    known = _plain(model.name) in _keys_by_name()
    return replace(model, name=f"{model.name} ({Path(name).stem})") if known else model


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


def trust_of(simulated: bool, *gpus: str | None) -> Trust | None:
    """Return how far figures of these GPUs can be trusted: as far as the one that was judged least.

    None where they are not simulated. A GPU that the catalogue does not have, or of unknown name, has an unknown error.
    """
    if not simulated:
        return None
    found = [_trust(gpu) for gpu in gpus or (None,)]
    return max(found, key=lambda trust: _LEVELS.index(trust.level))


_LEVELS = tuple(TrustLevel)


@cache
def _trust(gpu: str | None) -> Trust:
    key = None if gpu is None else _keys_by_name().get(_plain(gpu))
    return Trust(gpu=gpu, level=TrustLevel.UNKNOWN) if key is None else _sheet(key).trust


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
