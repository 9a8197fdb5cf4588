"""The cost of changing clocks in a pipeline, and the best settings of one rank that changes them slowly enough.

Notation, as for layers
    L       latency: from the request of a clock until it holds
    s       stall: time without kernels when the new clock starts to hold; it costs nothing while the rank waits anyway
    run     instructions of a rank at one setting, one after another; its dwell lasts from its first instruction to that
            of the next run

A second request takes effect after the first, so no dwell is shorter than L. An iteration follows another: the last
setting of a rank is followed by its first. Planned dwells count the time of instructions alone; waiting only adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from wattune.core.errors import InputError
from wattune.core.plan import Plan, StageChoice, WorkGraph
from wattune.levels.kernel.relaxation import Floats, Ints

UNKNOWN_STALL_S = 0.2e-3
"""Longest known stall of a change of the core clock; used where only the latency is given."""

IMPOSSIBLE = 1e9
"""Cost of a setting that an instruction must not have, above any energy in joules."""

CLOSE_S = 1e-12
"""A dwell this much shorter than the latency counts as long enough: sums in another order."""


@dataclass(frozen=True, slots=True)
class ClockSwitching:
    """Latency and stall of a change of clocks, and where they come from."""

    latency_s: float
    stall_s: float
    source: str

    def __post_init__(self) -> None:
        if not (0 <= self.latency_s <= 60 and 0 <= self.stall_s <= 60):
            raise InputError("latency and stall of a switch are 0 to 60 s", hint="write for example 10ms")

    @classmethod
    def given(cls, latency_s: float) -> ClockSwitching:
        """Return the switching of a GPU of which only the latency is known."""
        return cls(latency_s, min(UNKNOWN_STALL_S, latency_s), "as given")


def new_settings(graph: WorkGraph, choices: Sequence[StageChoice]) -> list[int]:
    """Return the operations whose setting differs from that before on their rank, at the start from the last one."""
    return [
        place
        for places in graph.by_rank
        for before, place in zip((places[-1], *places[:-1]), places, strict=True)
        if choices[before].setting != choices[place].setting
    ]


def shortest_dwell_s(plan: Plan) -> float | None:
    """Return the shortest dwell of a plan, without waiting; None where no rank changes its setting."""
    dwells_s = []
    for places in plan.graph.by_rank:
        runs = [list(own) for _, own in groupby(places, key=lambda place: plan.choices[place].setting)]
        if len(runs) > 1:
            dwells_s += [sum(plan.durations_s[place] for place in own) for own in runs]
    return min(dwells_s, default=None)


def held_settings(costs: Floats, times_s: Floats, stalls: Floats, latency_s: float) -> Ints:
    """Return the setting of each instruction of a rank with the least sum of costs, none held for less than L.

    `costs` and `times_s` are (instructions, settings), a cost `IMPOSSIBLE` where a setting must not be; `stalls` is the
    cost of a change before each instruction. A dynamic programme over the ends of runs: `least[j]` is the least cost of
    the first j instructions with a run that ends there.
    """
    count, settings = costs.shape
    spent = np.vstack((np.zeros(settings), np.cumsum(costs, axis=0)))
    passed_s = np.vstack((np.zeros(settings), np.cumsum(times_s, axis=0)))
    ripe = np.column_stack(
        [np.searchsorted(own_s, own_s[:-1] + latency_s - CLOSE_S, side="left") for own_s in passed_s.T]
    )
    ripe = np.maximum(ripe, np.arange(1, count + 1)[:, None])
    # Costs of runs minus `spent` at their end, when they become long enough, and their first instructions.
    comes, came_from = np.full((count + 2, settings), np.inf), np.zeros((count + 2, settings), dtype=np.int64)
    best, first = np.full(settings, np.inf), np.zeros(settings, dtype=np.int64)
    least, ended = np.full(count + 1, np.inf), np.zeros((count + 1, 2), dtype=np.int64)
    least[0] = 0.0
    columns = np.arange(settings)
    for place in range(count + 1):
        better = comes[place] < best
        best, first = np.where(better, comes[place], best), np.where(better, came_from[place], first)
        if place:
            totals = best + spent[place]
            setting = int(np.argmin(totals))
            least[place], ended[place] = totals[setting], (setting, first[setting])
        if place < count and least[place] < np.inf:
            value = least[place] + (stalls[place] if place else 0.0) - spent[place]
            at = np.minimum(ripe[place], count + 1)
            cheaper = value < comes[at, columns]
            comes[at[cheaper], columns[cheaper]] = value[cheaper]
            came_from[at[cheaper], columns[cheaper]] = place
    return _followed(spent[-1], least, ended)


def _followed(single: Floats, least: Floats, ended: Ints) -> Ints:
    """The settings of the best sequence of runs, or of the best single setting where that costs no more."""
    count = len(least) - 1
    if not least[count] < single.min():
        return np.full(count, int(np.argmin(single)), dtype=np.int64)
    chosen = np.zeros(count, dtype=np.int64)
    while count:
        setting, start = ended[count]
        chosen[start:count] = setting
        count = int(start)
    return chosen
