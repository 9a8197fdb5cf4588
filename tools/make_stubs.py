"""Write stubs.inc of the emulated NVML library: the functions that nvidia-ml-py binds and that are not implemented.

Run it when nvidia-ml-py has new names: `python tools/make_stubs.py`. A test fails until then.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

HERE = Path(__file__).parents[1] / "src" / "wattune" / "emulator" / "nvml"
HEADER = "/* Functions that answer NOT_SUPPORTED. Written by make_stubs.py from the names that nvidia-ml-py binds. */\n"


def implemented_names() -> tuple[str, ...]:
    """Return the implemented functions, in the order of functions.inc."""
    return tuple(re.findall(r"^(?:GET|SET|META)\((\w+)\)", (HERE / "functions.inc").read_text(), re.MULTILINE))


def stub_names() -> tuple[str, ...]:
    """Return the functions of stubs.inc, in alphabetical order."""
    return tuple(re.findall(r"^STUB\((\w+)\)", (HERE / "stubs.inc").read_text(), re.MULTILINE))


def wanted_names() -> frozenset[str]:
    """Return the functions that nvidia-ml-py binds by name, from its source text."""
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    return frozenset(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', Path(spec.origin).read_text()))


def stubs_text() -> str:
    """Return the text of stubs.inc."""
    missing = sorted(wanted_names() - set(implemented_names()))
    return HEADER + "".join(f"STUB({name})\n" for name in missing)


if __name__ == "__main__":
    (HERE / "stubs.inc").write_text(stubs_text())
