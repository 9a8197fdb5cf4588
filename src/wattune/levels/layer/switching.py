"""The cost of changing clocks between layers, and of a sequence of settings with all its changes.

Notation
    L       latency: from the request of a clock until it holds; the old clock holds meanwhile
    s       stall: time without kernels when the new clock starts to hold
    D       least dwell of a planned segment, several L: latencies scatter, and short segments miss their clock

A plan asks for each clock L ahead of the layer that needs it, so L itself costs nothing where a segment lasts at least
L. A shorter segment must wait for the rest of L before the next clock holds, since one request follows the other. The
layers run over and over: the last setting of a step is followed by the first of the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.gpu_spec import GpuSpec
from wattune.core.setting import Setting
from wattune.levels.layer.costs import Floats, Ints, LayerCosts
from wattune.physics.gpu_parts import FREE_CHANGES, SwitchingPhysics
from wattune.plans.plan import Plan

UNKNOWN_LATENCY_S = 0.1
"""Slowest known median of a change of the core clock; used for a GPU whose own is not known."""
UNKNOWN_STALL_S, UNKNOWN_MEM_STALL_S = 0.2e-3, 0.02
"""Longest known stalls, used likewise."""


DWELL = 5.0
"""Default of D over L. Latencies scatter, and a segment of few latencies runs in part at the clock of its neighbour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchCost:
    """Latency and stall of a change of the core clock, and of the memory clock; and the least dwell."""

    sm_latency_s: float
    mem_latency_s: float
    sm_stall_s: float
    mem_stall_s: float
    dwell: float = DWELL
    """D in latencies; at least 1."""

    def __post_init__(self) -> None:
        if not min(self.sm_latency_s, self.mem_latency_s, self.sm_stall_s, self.mem_stall_s) >= 0:
            raise InputError("latencies and stalls are not negative", hint="write for example 10ms")
        if not self.dwell >= 1:
            raise InputError(
                f"a setting holds for at least one switching latency, not {self.dwell:g}",
                hint="a second request takes effect after the first; give 1 or more",
            )

    @classmethod
    def of(cls, spec: GpuSpec, change: SwitchingPhysics = FREE_CHANGES) -> SwitchCost:
        """Return the cost by the specification of a GPU; what is unknown counts as slow."""
        known = spec.switching
        sm_s = UNKNOWN_LATENCY_S if known.sm_s is None else known.sm_s
        mem_s = max(UNKNOWN_LATENCY_S, sm_s) if known.mem_s is None else known.mem_s
        if change == FREE_CHANGES:
            return cls(
                sm_latency_s=sm_s, mem_latency_s=mem_s, sm_stall_s=UNKNOWN_STALL_S, mem_stall_s=UNKNOWN_MEM_STALL_S
            )
        return cls(sm_latency_s=sm_s, mem_latency_s=mem_s, sm_stall_s=change.sm.stall_s, mem_stall_s=change.mem.stall_s)

    def at(self, latency_s: float) -> SwitchCost:
        """Return the same for another core latency: the memory latency in proportion, no stall above the latency."""
        ratio = self.mem_latency_s / self.sm_latency_s if self.sm_latency_s else 1.0
        mem_latency_s = latency_s * ratio
        return replace(
            self,
            sm_latency_s=latency_s,
            mem_latency_s=mem_latency_s,
            sm_stall_s=min(self.sm_stall_s, latency_s),
            mem_stall_s=min(self.mem_stall_s, mem_latency_s),
        )

    @property
    def blocking(self) -> SwitchCost:
        """The same for a program that waits for each clock before it goes on: the latency is a stall."""
        return replace(
            self,
            sm_latency_s=0.0,
            mem_latency_s=0.0,
            sm_stall_s=self.sm_latency_s + self.sm_stall_s,
            mem_stall_s=self.mem_latency_s + self.mem_stall_s,
        )

    def latency_s(self, *, changes_memory: bool) -> float:
        """Return L for a plan that changes the memory clock, or only the core clock."""
        return max(self.sm_latency_s, self.mem_latency_s) if changes_memory else self.sm_latency_s

    def dwell_s(self, *, changes_memory: bool) -> float:
        """Return D for such a plan."""
        return self.dwell * self.latency_s(changes_memory=changes_memory)

    def change_s(self, before: Setting, after: Setting) -> float:
        """Return the latency of a change; where both clocks change, the longer one."""
        return max(
            self.sm_latency_s if before.sm_mhz != after.sm_mhz else 0.0,
            self.mem_latency_s if before.mem_mhz != after.mem_mhz else 0.0,
        )

    def stall_s(self, before: Setting, after: Setting) -> float:
        """Return the stall of a change; where both clocks change, the longer one."""
        return max(
            self.sm_stall_s if before.sm_mhz != after.sm_mhz else 0.0,
            self.mem_stall_s if before.mem_mhz != after.mem_mhz else 0.0,
        )


FREE = SwitchCost(sm_latency_s=0.0, mem_latency_s=0.0, sm_stall_s=0.0, mem_stall_s=0.0)
"""Switching that costs nothing: an upper bound on what any GPU can do."""


def switches_of(plan: Plan) -> int:
    """Count the changes of setting in one step, with that from its end to the start of the next."""
    settings = [choice.setting for choice in plan.choices]
    return sum(before != after for before, after in zip((settings[-1], *settings[:-1]), settings, strict=True))


def charged(costs: LayerCosts, columns: Ints, switching: SwitchCost, *, bound_j: float = 0.0) -> Trial[Plan]:
    """Make the plan of a setting per layer with all stalls, and with the waits of segments shorter than L."""
    return costs.plan(columns, added_s(costs, columns, switching), bound_j=bound_j)


def charged_cost(costs: LayerCosts, columns: Ints, switching: SwitchCost) -> tuple[float, float]:
    """Return time and energy of the same plan."""
    rows = np.arange(len(columns))
    added = float(added_s(costs, columns, switching).sum())
    energy_j = float(costs.energy_j[rows, columns].sum()) + added * costs.waiting_w
    return float(costs.time_s[rows, columns].sum()) + added, energy_j


def added_s(costs: LayerCosts, columns: Ints, switching: SwitchCost) -> Floats:
    """(layers,): stall and wait before each layer."""
    added = np.zeros(len(columns))
    starts = np.flatnonzero(columns != np.roll(columns, 1))
    if not len(starts):
        return added
    settings = [costs.settings[column] for column in columns[starts].tolist()]
    before = [settings[-1], *settings[:-1]]
    changes_memory = len({setting.mem_mhz for setting in settings}) > 1
    latency_s = switching.latency_s(changes_memory=changes_memory)
    lasted_s = segment_times_s(costs.time_s[np.arange(len(columns)), columns], starts)
    for number, start in enumerate(starts.tolist()):
        waited_s = max(latency_s - lasted_s[number - 1], 0.0)
        added[start] = waited_s + switching.stall_s(before[number], settings[number])
    return added


def segment_times_s(time_s: Floats, starts: Ints) -> list[float]:
    """Return how long the segment that begins at each start lasts; the last one goes on at the start of the step."""
    sums = np.add.reduceat(time_s, starts)
    sums[-1] += time_s[: starts[0]].sum()
    return [float(value) for value in sums]
