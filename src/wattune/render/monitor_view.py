"""The rows and power graphs of `wattune monitor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from statistics import fmean
from typing import Any

from wattune.core.codec import to_json
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Reading
from wattune.render.chart import tick_step
from wattune.render.quantity import UNKNOWN, fixed, quantity

HEAD = ("GPU", "power", "limit", "core", "memory", "busy", "mem busy", "VRAM", "temp", "throttled by", "energy")
_WORTH = (0, 1, 5, 7, 3, 8, 10, 2, 9, 4, 6)
"""The columns by importance: where room is short, those without a value go first, then the last of these."""
_GAP = 2
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU; None for what is not known of it."""

    pid: int
    memory_bytes: int | None = None
    user: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """A GPU with its latest readings (oldest first) and its energy counter at the start."""

    spec: GpuSpec
    readings: tuple[Reading, ...] = ()
    start_j: float | None = None
    trouble: str | None = None
    """The reason why there are no more readings."""
    processes: tuple[GpuProcess, ...] | None = None
    """The processes that compute on it; None where they are not known."""

    @property
    def latest(self) -> Reading | None:
        """The newest reading; None before the first and after the GPU was lost."""
        return self.readings[-1] if self.readings and self.trouble is None else None

    @property
    def energy_j(self) -> float | None:
        """Energy since the start; None without a counter or before a second reading."""
        now = self.latest
        if now is None or now.energy_j is None or self.start_j is None or len(self.readings) < 2:
            return None
        return now.energy_j - self.start_j

    def with_reading(self, reading: Reading, *, keep_s: float) -> Watched:
        """Add a reading and drop those older than `keep_s`, except the newest of them."""
        old = [past for past in self.readings if past.time_s < reading.time_s - keep_s]
        kept = self.readings[max(len(old) - 1, 0) :]
        start_j = reading.energy_j if not self.readings else self.start_j
        return replace(self, readings=(*kept, reading), start_j=start_j, trouble=None)


def monitor_row(index: int, watched: Watched) -> tuple[str, ...]:
    """Return the cells of one GPU, a dash for each value it does not report."""
    name = f"{index} {watched.spec.label.removeprefix('NVIDIA ')}"
    now = watched.latest
    if now is None:
        return (name, *[UNKNOWN] * (len(HEAD) - 3), watched.trouble or UNKNOWN, UNKNOWN)
    return (
        name,
        fixed(now.power_w, "W"),
        fixed(now.power_limit_w, "W"),
        fixed(now.sm_mhz, "MHz"),
        fixed(now.mem_mhz, "MHz"),
        _share(now.sm_util),
        _share(now.mem_util),
        _vram(now),
        fixed(now.temperature_c, "°C"),
        UNKNOWN if now.throttle is None else ", ".join(to_json(now.throttle)) or "nothing",
        quantity(watched.energy_j, "J"),
    )


PROCESS_HEAD = ("GPU", "process", "user", "VRAM", "command")


def process_rows(watched: Sequence[Watched]) -> tuple[tuple[str, ...], ...]:
    """Return the cells of each process on these GPUs."""
    return tuple(
        (
            str(index),
            str(process.pid),
            process.user or UNKNOWN,
            _gib(process.memory_bytes),
            process.command or UNKNOWN,
        )
        for index, gpu in enumerate(watched)
        for process in gpu.processes or ()
    )


def fitting_columns(rows: Sequence[tuple[str, ...]], *, width: int) -> tuple[int, ...]:
    """Return the columns that fit side by side, in their order; the least important are left out first."""
    widths = [max(len(row[column]) for row in (HEAD, *rows)) for column in range(len(HEAD))]
    empty = {column for column in _WORTH[2:] if all(row[column] == UNKNOWN for row in rows)}
    kept = sorted(_WORTH, key=lambda column: column in empty)
    while len(kept) > 2 and sum(widths[column] + _GAP for column in kept) - _GAP > width:
        kept.pop()
    return tuple(sorted(kept))


def monitor_document(watched: Sequence[Watched]) -> dict[str, Any]:
    """Return a JSON document with the newest reading of each GPU."""
    return {
        "simulated": any(gpu.spec.simulated for gpu in watched),
        "gpus": [_document(index, gpu) for index, gpu in enumerate(watched)],
    }


def power_steps(readings: Sequence[Reading], *, now_s: float, span_s: float, steps: int) -> list[float | None]:
    """Return power over the last `span_s` in equal steps, oldest first.

    A step is the mean of its readings, or the reading before where it has none; None before the first reading and where
    the GPU reported no power.
    """
    start_s, place, before = now_s - span_s, 0, None
    graph: list[float | None] = []
    for step in range(steps):
        end_s = start_s + span_s * (step + 1) / steps if step < steps - 1 else inf
        powers_w: list[float] = []
        while place < len(readings) and readings[place].time_s < end_s:
            before = readings[place].power_w
            if before is not None and readings[place].time_s >= start_s:
                powers_w.append(before)
            place += 1
        graph.append(fmean(powers_w) if powers_w else before)
    return graph


def sum_of_graphs(graphs: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Add up several graphs; None where all are unknown."""
    sums: list[float | None] = []
    for column in zip(*graphs, strict=True):
        known = [value for value in column if value is not None]
        sums.append(sum(known) if known else None)
    return sums


def graph_top_w(watched: Sequence[Watched]) -> float:
    """Return a round power above everything these GPUs drew and above their limits."""
    drawn = [reading.power_w or 0.0 for gpu in watched for reading in gpu.readings]
    limits = [gpu.latest.power_limit_w or 0.0 for gpu in watched if gpu.latest]
    most = max([*drawn, *limits, 1.0])
    step = tick_step(0.0, most, about=4)
    return -(-most // step) * step


def _vram(reading: Reading) -> str:
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    if used is None or total is None:
        return _gib(used)
    return f"{used / _GIB:.1f}/{_gib(total)}"


def _gib(size_bytes: int | None) -> str:
    return UNKNOWN if size_bytes is None else f"{size_bytes / _GIB:.1f} GiB"


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


def _document(index: int, watched: Watched) -> dict[str, Any]:
    spec, now = watched.spec, watched.latest
    shown = dict.fromkeys(field.name for field in fields(Reading)) if now is None else to_json(now)
    return {
        "index": index,
        "name": spec.name,
        "uuid": spec.uuid,
        "simulated": spec.simulated,
        **shown,
        "energy_j": watched.energy_j,
        "processes": None if watched.processes is None else to_json(watched.processes),
        "trouble": watched.trouble,
    }
