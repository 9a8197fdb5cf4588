"""A policy played against a program until the program has done its work, and what came of it.

Everything is charged: what passes while a clock settles, baselines, trials. The program's work is what the driver's own
clocks would do in the given time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Protocol

from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, RunPolicy, Window

_LEAST_S = 0.5
"""No window is shorter: a policy that asks for nothing would never end."""


class Environment(Protocol):
    """A program that runs, seen in windows."""

    @property
    def spec(self) -> GpuSpec:
        """The GPU."""
        ...

    @property
    def passes(self) -> float:
        """Work done."""
        ...

    @property
    def spent(self) -> Measurement:
        """Time and energy since the beginning."""
        ...

    @property
    def luck_s(self) -> float:
        """Time that was lost to chance and would have been lost at any setting."""
        ...

    def look(self, order: Order, *, until_passes: float | None = None) -> Window:
        """The window that was ordered."""
        ...


@dataclass(frozen=True, slots=True)
class FixedSetting:
    """Holds one setting: the default, or the oracle's choice."""

    name: str
    setting: Setting = DRIVER_DEFAULT
    window_s: float = 600.0
    tunes: ClassVar[bool] = False
    uses_history: ClassVar[bool] = False
    needs_counters: ClassVar[bool] = False

    def step(self, seen: tuple[Window, ...], spec: GpuSpec) -> Order:
        """Hold it."""
        del seen, spec
        return Order(
            setting=self.setting, purpose=Purpose.HOLD, least_s=self.window_s, most_s=self.window_s, settle_s=0.0
        )


@dataclass(frozen=True, slots=True)
class PlayMark:
    """How far a run was after a window."""

    cost: Measurement
    passes: float


@dataclass(frozen=True, slots=True)
class PlayOutcome:
    """What a run under a policy took and spent, and how it went."""

    cost: Measurement
    passes: float
    windows: tuple[Window, ...]
    evaluations: int
    """Windows at other settings than those held: trials, and looks at a reference clock."""
    search: PlayMark
    """When the policy first held something; the end of the run where it never did."""
    path: tuple[PlayMark, ...]
    held: Setting
    """The last setting that was held."""
    changes: int
    luck_s: float
    """Time that was lost to chance, and would have been with the default."""
    deciding_s: float
    """CPU time of the policy."""


def play(policy: RunPolicy, run: Environment, *, passes: float) -> PlayOutcome:
    """The outcome of a run that ends when `passes` of work are done."""
    seen: list[Window] = []
    path: list[PlayMark] = []
    search: PlayMark | None = None
    deciding_s = 0.0
    while run.passes < passes * (1 - 1e-9):
        begun_s = time.process_time()
        order = policy.step(tuple(seen), run.spec)
        deciding_s += time.process_time() - begun_s
        if order.purpose is Purpose.HOLD and search is None:
            search = PlayMark(run.spent, run.passes)
        least_s = max(order.least_s, _LEAST_S)
        order = replace(order, least_s=least_s, most_s=max(order.most_s, least_s))
        seen.append(run.look(order, until_passes=passes))
        path.append(PlayMark(run.spent, run.passes))
    held = [window.setting for window in seen if window.purpose is Purpose.HOLD]
    return PlayOutcome(
        cost=run.spent,
        passes=run.passes,
        windows=tuple(seen),
        evaluations=sum(window.purpose in (Purpose.TRIAL, Purpose.REFERENCE) for window in seen),
        search=search or path[-1],
        path=tuple(path),
        held=held[-1] if held else seen[-1].setting,
        changes=sum(a.setting != b.setting for a, b in pairwise(seen)),
        luck_s=run.luck_s,
        deciding_s=deciding_s,
    )
