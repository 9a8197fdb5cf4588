"""Energy of the CPU packages, from the kernel's powercap tree; None if it cannot be read, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class Package:
    """One CPU package: its counter, and the value at which that wraps."""

    name: str
    counter: Path
    wraps_j: float


def find_packages(root: Path = POWERCAP) -> tuple[Package, ...]:
    """Return the CPU packages whose counters this process may read."""
    return tuple(package for folder in sorted(root.glob("intel-rapl:*")) if (package := _package(folder)))


def read_packages_j(packages: tuple[Package, ...]) -> tuple[float, ...] | None:
    """Read each package's counter; None if one is unreadable or there are none."""
    try:
        return tuple(_microjoules(package.counter) for package in packages) or None
    except (OSError, ValueError):
        return None


def cpu_energy_j(
    packages: tuple[Package, ...], before: tuple[float, ...] | None, after: tuple[float, ...] | None
) -> float | None:
    """Return the energy of all packages between two readings, or None if not measured; a counter may wrap once."""
    if before is None or after is None:
        return None
    return sum(
        late - early if late >= early else late - early + package.wraps_j
        for package, early, late in zip(packages, before, after, strict=True)
    )


def _package(folder: Path) -> Package | None:
    try:
        name = (folder / "name").read_text(encoding="ascii").strip()
        if not name.startswith("package"):  # core, uncore and dram are parts of a package, psys is the whole machine
            return None
        _microjoules(folder / "energy_uj")
        return Package(name, folder / "energy_uj", _microjoules(folder / "max_energy_range_uj"))
    except (OSError, ValueError):
        return None


def _microjoules(file: Path) -> float:
    return int(file.read_text(encoding="ascii")) / 1e6
