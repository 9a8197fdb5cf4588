"""Writes stubs.inc: the NVML functions that nvidia-ml-py may ask for and that have no behaviour here.

Run it when nvidia-ml-py knows new names: `python -m wattune.emulator.nvml.make_stubs`. A test says when that is so.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

HERE = Path(__file__).parent
HEADER = "/* Functions that answer NOT_SUPPORTED. Written by make_stubs.py from the names that nvidia-ml-py binds. */\n"


def behaving_names() -> tuple[str, ...]:
    """The functions with behaviour, in the order of functions.inc."""
    return tuple(re.findall(r"^(?:GET|SET|META)\((\w+)\)", (HERE / "functions.inc").read_text(), re.MULTILINE))


def stub_names() -> tuple[str, ...]:
    """The functions of stubs.inc, in alphabetical order."""
    return tuple(re.findall(r"^STUB\((\w+)\)", (HERE / "stubs.inc").read_text(), re.MULTILINE))


def wanted_names() -> frozenset[str]:
    """The functions that nvidia-ml-py binds by name; its text is read, not imported."""
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    return frozenset(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', Path(spec.origin).read_text()))


def stubs_text() -> str:
    """What stubs.inc should hold."""
    missing = sorted(wanted_names() - set(behaving_names()))
    return HEADER + "".join(f"STUB({name})\n" for name in missing)


if __name__ == "__main__":
    (HERE / "stubs.inc").write_text(stubs_text())
