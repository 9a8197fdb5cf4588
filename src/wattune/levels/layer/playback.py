"""A plan as a GPU would really play it: each change of clocks takes effect earlier or later than planned.

Notation: L the planned latency; a request is made L before its segment begins; it takes L·exp(σ·z) with z normal, as
the latencies of real GPUs scatter (LATEST, arXiv 2502.20075). Requests take effect one after another. Layers run at
whatever setting holds, so that a late change costs time or energy, and an early one too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import exp

import numpy as np

from wattune.core.measurement import Measurement
from wattune.levels.layer.costs import LayerCosts
from wattune.levels.layer.switching import SwitchCost
from wattune.plans.plan import Plan

STEPS = 40
"""Steps that are played, after one that is not counted."""


@dataclass(slots=True)
class _Clock:
    """The setting in effect and the requests on their way: (when it takes effect, setting)."""

    column: int
    coming: deque[tuple[float, int]]

    def next_s(self) -> float:
        return self.coming[0][0] if self.coming else float("inf")


def play(
    costs: LayerCosts, plan: Plan, switching: SwitchCost, *, spread: float, seed: int, steps: int = STEPS
) -> Measurement:
    """Return the mean time and energy of a step over several steps; `spread` is σ."""
    columns = [costs.settings.index(choice.setting) for choice in plan.choices]
    starts = [place for place in range(len(columns)) if columns[place] != columns[place - 1]]
    if not starts:
        return costs.plan(np.array(columns), np.zeros(len(columns))).cost
    random = np.random.default_rng(seed)
    requests = _requests(costs, columns, starts, switching)
    clock = _Clock(columns[-1], deque())
    now_s = energy_j = begin_s = begin_j = 0.0
    for step in range(steps + 1):
        if step == 1:
            begin_s, begin_j = now_s, energy_j
        for place in range(len(columns)):
            for after_s, target, latency_s in requests.get(place, ()):
                held_s = clock.coming[-1][0] if clock.coming else now_s
                asked_s = max(now_s + after_s, held_s)
                clock.coming.append((asked_s + latency_s * exp(spread * random.standard_normal()), target))
            now_s, spent_j = _run(costs, place, clock, now_s, switching)
            energy_j += spent_j
    return Measurement((now_s - begin_s) / steps, (energy_j - begin_j) / steps)


def _requests(
    costs: LayerCosts, columns: list[int], starts: list[int], switching: SwitchCost
) -> dict[int, list[tuple[float, int, float]]]:
    """Return for each layer the requests to make: seconds after its start, setting, planned latency."""
    time_s = [float(costs.time_s[place, column]) for place, column in enumerate(columns)]
    found: dict[int, list[tuple[float, int, float]]] = {}
    for start in starts:
        before, after = costs.settings[columns[start - 1]], costs.settings[columns[start]]
        latency_s = switching.change_s(before, after)
        place, left_s = start, latency_s
        while left_s > 0 and left_s > -1e-12 and (place - 1) % len(columns) != start:
            place = (place - 1) % len(columns)
            left_s -= time_s[place]
        found.setdefault(place, []).append((max(-left_s, 0.0), columns[start], latency_s))
    return {place: sorted(own) for place, own in found.items()}


def _run(costs: LayerCosts, place: int, clock: _Clock, now_s: float, switching: SwitchCost) -> tuple[float, float]:
    """Run one layer, through changes that take effect meanwhile; return the time at its end and the energy."""
    left, energy_j = 1.0, 0.0
    while True:
        full_s, full_j = float(costs.time_s[place, clock.column]), float(costs.energy_j[place, clock.column])
        until_s = clock.next_s() - now_s
        if until_s >= left * full_s:
            return now_s + left * full_s, energy_j + left * full_j
        share = max(until_s, 0.0) / full_s
        left, energy_j = left - share, energy_j + share * full_j
        at_s, target = clock.coming.popleft()
        stall_s = switching.stall_s(costs.settings[clock.column], costs.settings[target])
        clock.column = target
        now_s = max(at_s, now_s) + stall_s
        energy_j += stall_s * costs.waiting_w
