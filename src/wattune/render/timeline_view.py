"""Pipelines as timelines: which rank runs what from when to when and at which clock, and where it waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.workgraph import WorkGraph
from wattune.render.quantity import percent, quantity


@dataclass(frozen=True, slots=True)
class Bar:
    """One operation on the timeline of its rank."""

    name: str
    start_s: float
    end_s: float
    setting: Setting
    energy_j: float

    @property
    def instruction(self) -> str:
        """Its first word, such as `forward`."""
        return self.name.partition(" ")[0]

    @property
    def label(self) -> str:
        """What is written on it: the number of its microbatch, or its name where it has none."""
        return self.name.rpartition(".")[2] if "." in self.name else self.name

    @property
    def tip(self) -> str:
        """All about it in one line."""
        took = quantity(self.end_s - self.start_s, "s")
        return f"{self.name}: {self.setting}, {took}, {quantity(self.energy_j, 'J')}, from {self.start_s:.3f} s"


@dataclass(frozen=True, slots=True)
class Timeline:
    """One iteration: the bars of each rank in order, and what the whole takes and spends."""

    title: str
    ranks: tuple[tuple[Bar, ...], ...]
    cost: Measurement

    @property
    def busy_percent(self) -> float:
        """The share of all ranks' time that is not waited."""
        busy_s = sum(bar.end_s - bar.start_s for rank in self.ranks for bar in rank)
        whole_s = len(self.ranks) * self.cost.time_s
        return 100 * busy_s / whole_s if whole_s else 0.0

    @property
    def switches(self) -> int:
        """How often a rank changes its setting."""
        return sum(before.setting != after.setting for rank in self.ranks for before, after in pairwise(rank))


@dataclass(frozen=True, slots=True)
class Timelines:
    """Timelines under each other on one scale of time and of clocks, the first being what the others are held to."""

    lines: tuple[Timeline, ...]
    simulated: bool = False
    clocks_mhz: tuple[int, ...] = field(init=False, compare=False)
    """Every clock that is used, rising."""

    def __post_init__(self) -> None:
        bars = (bar for line in self.lines for rank in line.ranks for bar in rank)
        clocks = sorted({bar.setting.sm_mhz for bar in bars if bar.setting.sm_mhz is not None})
        object.__setattr__(self, "clocks_mhz", tuple(clocks))

    @property
    def end_s(self) -> float:
        """Where the scale of time ends."""
        return max(line.cost.time_s for line in self.lines)

    def share(self, setting: Setting) -> float:
        """Where a setting lies from the lowest clock (0) to the highest (1); what the driver decides is the highest."""
        clocks = self.clocks_mhz
        if setting.sm_mhz is None or not clocks or clocks[0] == clocks[-1]:
            return 1.0
        return (setting.sm_mhz - clocks[0]) / (clocks[-1] - clocks[0])

    def heading(self, line: Timeline) -> str:
        """A timeline in words: time, energy, and what it saves against the first."""
        first, cost = self.lines[0].cost, line.cost
        words = f"{line.title}: {cost.time_s:.4g} s, {quantity(cost.energy_j, 'J')}"
        if line is not self.lines[0]:
            energy = percent(100 * (cost.energy_j / first.energy_j - 1))
            words += f" ({energy} energy, {percent(100 * (cost.time_s / first.time_s - 1))} time)"
        return f"{words}, busy {line.busy_percent:.0f} %"


def timeline(
    graph: WorkGraph,
    *,
    title: str,
    durations_s: Sequence[float],
    energies_j: Sequence[float],
    settings: Iterable[Setting],
    cost: Measurement,
) -> Timeline:
    """The timeline of a graph whose operations start as soon as they may."""
    ends_s = graph.finish_times_s(tuple(durations_s))
    ranks: dict[int, list[Bar]] = {operation.rank: [] for operation in graph.operations}
    parts = zip(graph.operations, ends_s, durations_s, settings, energies_j, strict=True)
    for operation, end_s, duration_s, setting, energy_j in parts:
        ranks[operation.rank].append(Bar(operation.name, end_s - duration_s, end_s, setting, energy_j))
    return Timeline(title, tuple(tuple(ranks[rank]) for rank in sorted(ranks)), cost)
