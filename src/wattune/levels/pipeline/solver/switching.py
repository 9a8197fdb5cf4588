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
from wattune.levels.pipeline.solver.relaxation import Floats, Ints
from wattune.plans.plan import Plan, StageChoice, WorkGraph

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
        return cls(latency_s, min(UNKNOWN_STALL_S, latency_s), "latency as given, stall of the slowest known GPU")


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
    """Return the settings of the instructions of some ranks with the least sum of costs, none held for less than L.

    `costs` and `times_s` are (ranks, instructions, settings), a cost `IMPOSSIBLE` where a setting must not be; `stalls`
    (ranks, instructions) is the cost of a change before each instruction. A dynamic programme over the ends of runs,
    for all ranks side by side: `least[r, j]` is the least cost of the first j instructions with a run that ends there.
    """
    ranks, count, settings = costs.shape
    nothing = np.zeros((ranks, 1, settings))
    spent = np.concatenate((nothing, np.cumsum(costs, axis=1)), axis=1)
    ripe = _ripe(np.concatenate((nothing, np.cumsum(times_s, axis=1)), axis=1), latency_s)
    # Costs of runs minus `spent` at their end, when they become long enough, and their first instructions.
    comes = np.full((ranks, count + 2, settings), np.inf)
    came_from = np.zeros((ranks, count + 2, settings), dtype=np.int64)
    best, first = np.full((ranks, settings), np.inf), np.zeros((ranks, settings), dtype=np.int64)
    least, ended = np.full((ranks, count + 1), np.inf), np.zeros((ranks, count + 1, 2), dtype=np.int64)
    least[:, 0] = 0.0
    rows, columns = np.indices((ranks, settings))
    for place in range(count + 1):
        better = comes[:, place] < best
        best, first = np.where(better, comes[:, place], best), np.where(better, came_from[:, place], first)
        if place:
            totals = best + spent[:, place]
            setting = np.argmin(totals, axis=1)
            least[:, place] = totals[rows[:, 0], setting]
            ended[:, place] = np.stack((setting, first[rows[:, 0], setting]), axis=1)
        if place < count:
            start = least[:, place] + (stalls[:, place] if place else 0.0)
            value, at = start[:, None] - spent[:, place], ripe[:, place]
            cheaper = value < comes[rows, at, columns]
            where = rows[cheaper], at[cheaper], columns[cheaper]
            comes[where], came_from[where] = value[cheaper], place
    return np.stack([_followed(spent[rank, -1], least[rank], ended[rank]) for rank in range(ranks)])


def _ripe(passed_s: Floats, latency_s: float) -> Ints:
    """For a run from each instruction on, the first place where it has lasted L; beyond the end where it never does."""
    ranks, places, settings = passed_s.shape
    found = np.empty((ranks, places - 1, settings), dtype=np.int64)
    for rank in range(ranks):
        for setting in range(settings):
            own_s = passed_s[rank, :, setting]
            found[rank, :, setting] = np.searchsorted(own_s, own_s[:-1] + latency_s - CLOSE_S, side="left")
    return np.maximum(found, np.arange(1, places)[None, :, None])


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
