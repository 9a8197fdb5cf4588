"""Round the steady middle of a long pipeline: whole microbatches, all ranks alike, not one operation after another.

Between fill and drain every rank repeats its few instructions once per microbatch, and all ranks take the same time for
it: one that is early waits for its neighbours. Rounding operation by operation wastes what one gains and the next does
not use. Instead each rank gets the best combination of options for all its instructions of a microbatch within a limit.

Notation: w_rm is the relaxed time of rank r for microbatch m; its limit is w_rm + u. E(u) is the energy of the best
combinations within these limits, a falling step function; only the u at corners of its lower convex hull are used. The
first microbatches of the middle get the next larger u than the rest: the border is moved as far as the time allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattune.levels.pipeline.solver.relaxation import Floats, Ints, Options, lower_hull
from wattune.levels.pipeline.solver.rounding import CLOSE_S, Rounding
from wattune.levels.pipeline.solver.series import MicrobatchSeries
from wattune.plans.plan import WorkGraph

REACH = 0.04
"""Largest |u| as a share of a microbatch's time. The relaxed plan is near; more only costs time."""


SPARE = 9
"""Smaller values of u beyond the hull, for the shortest times: a change of options needs ranks that are early."""


@dataclass(frozen=True, slots=True, eq=False)
class _Menu:
    """Combinations of options for the instructions of one rank and microbatch that no other beats, fastest first."""

    operations: Ints
    """(instructions, microbatches): the operations of the middle."""
    times_s: Floats
    effective_j: Floats
    durations_s: Floats
    """(combinations, instructions)."""

    @classmethod
    def of(cls, operations: Ints, options: list[Options[Any]]) -> _Menu:
        """Combine the options of all instructions, one instruction after another."""
        times_s, effective_j, chosen_s = np.zeros(1), np.zeros(1), np.zeros((1, 0))
        for own in options:
            count = len(own.times_s)
            chosen_s = np.column_stack((np.repeat(chosen_s, count, axis=0), np.tile(own.times_s, len(chosen_s))))
            times_s = (times_s[:, None] + own.times_s).ravel()
            effective_j = (effective_j[:, None] + own.effective_j).ravel()
            kept = _unbeaten(times_s, effective_j)
            times_s, effective_j, chosen_s = times_s[kept], effective_j[kept], chosen_s[kept]
        return cls(operations, times_s, effective_j, chosen_s)

    def within(self, limits_s: Floats) -> NDArray[np.intp]:
        """The slowest combination within each limit, or the fastest."""
        found = np.searchsorted(self.times_s, limits_s + CLOSE_S, side="right")
        return np.maximum(found - 1, 0)


def _unbeaten(times_s: Floats, effective_j: Floats) -> NDArray[np.intp]:
    order = np.lexsort((effective_j, times_s))
    least = np.minimum.accumulate(effective_j[order])
    unbeaten: NDArray[np.intp] = order[np.append(True, least[1:] < least[:-1])]
    return unbeaten


class SteadyRounding:
    """A graph whose middle is rounded by microbatches, and the rest with the sweeps of `rounding`."""

    def __init__(
        self, graph: WorkGraph, options: Mapping[str, Options[Any]], series: MicrobatchSeries, rounding: Rounding
    ) -> None:
        self._graph = graph
        self._rounding = rounding
        self._menus = list(_menus(graph, options, series))
        self._microbatches = min((menu.operations.shape[1] for menu in self._menus), default=0)

    def rounded(self, durations_s: Floats, time_s: float) -> tuple[int, ...]:
        """Round to options that end in time and spend little more than the relaxed plan."""
        found = [self._rounding.rounded(durations_s, time_s)]
        if self._microbatches:
            latest_s = self._rounding.latest_s(self._steady(durations_s, time_s).tolist(), time_s)
            for choice in self._rounding.sweeps(latest_s):
                found.append(self._rounding.reusing_slack(choice, time_s))
        return min(found, key=self._rounding.effective_of)

    def _steady(self, durations_s: Floats, time_s: float) -> Floats:
        """Durations with the slowest middle that ends in time, or with the fastest one."""
        wanted_s = [durations_s[menu.operations].sum(axis=0) for menu in self._menus]
        shifts_s = self._shifts_s(wanted_s)
        least, most = 0, (len(shifts_s) - 1) * self._microbatches
        while least < most:
            slower = (least + most + 1) // 2
            found_s = self._mixed(durations_s, wanted_s, shifts_s, slower)
            if self._graph.makespan_s(tuple(found_s.tolist())) <= time_s + CLOSE_S:
                least = slower
            else:
                most = slower - 1
        return self._mixed(durations_s, wanted_s, shifts_s, least)

    def _mixed(self, durations_s: Floats, wanted_s: list[Floats], shifts_s: Floats, slower: int) -> Floats:
        """Durations with the middle at two neighbouring shifts; `slower` counts steps of one microbatch to the next."""
        place, border = divmod(slower, self._microbatches)
        mixed_s = durations_s.copy()
        for menu, own_s in zip(self._menus, wanted_s, strict=True):
            limits_s = own_s + shifts_s[place]
            limits_s[:border] = own_s[:border] + shifts_s[min(place + 1, len(shifts_s) - 1)]
            mixed_s[menu.operations] = menu.durations_s[menu.within(limits_s)].T
        return mixed_s

    def _shifts_s(self, wanted_s: list[Floats]) -> Floats:
        """The values of u worth using, rising."""
        means_s = [float(own_s.mean()) for own_s in wanted_s]
        most_s = REACH * max(means_s)
        steps = [menu.times_s - mean_s for menu, mean_s in zip(self._menus, means_s, strict=True)]
        shifts_s = np.unique(np.concatenate([*(own_s[np.abs(own_s) < most_s] for own_s in steps), [-most_s]]))
        taken_s, energy_j = np.full(len(shifts_s), -np.inf), np.zeros(len(shifts_s))
        for menu, mean_s in zip(self._menus, means_s, strict=True):
            chosen = menu.within(mean_s + shifts_s)
            taken_s = np.maximum(taken_s, menu.times_s[chosen] - mean_s)
            energy_j += menu.effective_j[chosen]
        # Where a rank is at its fastest, a smaller u takes no less time: only the last of these is on the hull.
        last = np.flatnonzero(np.append(np.diff(taken_s) > 0, True))
        corners = last[list(lower_hull(taken_s[last], energy_j[last]))]
        spare = np.unique(np.linspace(0, corners[0], SPARE).astype(int))
        worth_s: Floats = shifts_s[np.union1d(spare, corners)]
        return worth_s


def _menus(graph: WorkGraph, options: Mapping[str, Options[Any]], series: MicrobatchSeries) -> Iterator[_Menu]:
    """The menu of every rank."""
    for places in graph.by_rank:
        middle = [place for place in places if series.middle[place]]
        by_kind: dict[str, list[int]] = {}
        for place in middle:
            by_kind.setdefault(graph.operations[place].kind, []).append(place)
        if by_kind:
            count = min(len(own) for own in by_kind.values())
            operations = np.array([own[:count] for own in by_kind.values()], dtype=np.int64)
            yield _Menu.of(operations, [options[kind] for kind in by_kind])
