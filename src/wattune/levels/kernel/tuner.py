"""The listener that plans while a pipeline trains: it reads, exchanges, steps the policy and sets what follows.

While profiling it waits for the GPU at both ends of every instruction, because a counter that is read while the GPU is
elsewhere says nothing. Afterwards it waits once, at the end of an iteration.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from wattune.control.actuator import ClockQueue
from wattune.core.errors import NotSupported
from wattune.core.frontier import Trial
from wattune.core.refresh import UNKNOWN_PERIOD_S
from wattune.devices.gpu import Gpu
from wattune.devices.meter import Wait, watch
from wattune.levels.kernel.attribution import OUTSIDE, PAUSED, WAITING, Attribution, Boundary, attribute
from wattune.levels.kernel.online import OnlinePlanning, PlanProfiling, Progress, RankReading, Readings
from wattune.levels.kernel.player import PlanPlayer, Stamp, Stamps
from wattune.levels.kernel.schedules import Piece

FEWEST_MOVES = 20
"""Moves of the counter that are waited for at a clock, however good the first of them look."""

MOST_MOVES = 100
"""Moves after which what was found is taken as it is: 10 s on a counter of 100 ms."""

GOOD = 0.05
"""Error of an instruction's energy, as a share of it, that is good enough."""

GOLDEN = 0.618034
"""Share of a refresh by which measured iterations are put off against each other, so that the moves of the counter
fall on ever other instructions; else an iteration that lasts a whole number of refreshes tells nothing new."""

GOOD_PERIOD = 2e-4
"""Error of the counter's period, as a share of it, that is small enough for the moves of many seconds."""

BASELINE = 20
"""Periods between two looks at the counter that tell its period so well."""

PATIENCE_S = 60.0
"""A counter that has not moved for so long while a GPU trains does not move at all."""

Share = Callable[[RankReading], Readings]


class OnlineListener:
    """One rank of a pipeline that is planned while it trains."""

    def __init__(
        self,
        policy: OnlinePlanning,
        *,
        gpu: Gpu,
        clocks: ClockQueue,
        stamps: Stamps,
        share: Share,
        rank: int,
        pipeline: int = 0,
        wait: Wait = time.sleep,
    ) -> None:
        self.progress: Progress = policy.start()
        self._policy = policy
        self._gpu, self._clocks, self._stamps, self._share = gpu, clocks, stamps, share
        self._rank, self._pipeline = rank, pipeline
        self._wait = wait
        self._player = PlanPlayer(policy.steps(self.progress, pipeline=pipeline, rank=rank))
        self._boundaries: list[Boundary] | None = None
        """None until the setting has held for an iteration."""
        self._measured = 0
        self._spans: list[tuple[Stamp, Stamp]] = []
        self._began: Stamp | None = None

    def start(self) -> None:
        """Nothing; the next instruction is the first of the plan."""
        self._player = self._player.from_start()
        self._spans = []
        self._note(OUTSIDE)

    def begin(self, piece: Piece) -> None:
        """Nothing; a setting that changes here is on its way."""
        stamp = self._stamps.stamp()
        self._player, wanted = self._player.begin(piece.name)
        if wanted is not None:
            self._clocks.put(wanted, reached=stamp.passed)
        self._began = self._at(stamp, WAITING)

    def end(self, piece: Piece) -> None:
        """Nothing; the instruction has been measured, or will be when the iteration ends."""
        ended = self._at(self._stamps.stamp(), piece.kind)
        if self._began is not None:
            self._spans.append((self._began, ended))

    def finish(self) -> None:
        """Nothing; all ranks have exchanged what they read and know what comes next."""
        before = self.progress
        self.progress = self._policy.step(before, self._share(self._reading()))
        if self.progress != before:
            steps = self._policy.steps(self.progress, pipeline=self._pipeline, rank=self._rank)
            self._player = self._player.following(steps)
        self._measure_again(before)
        if self._boundaries:
            self._put_off()

    def _at(self, stamp: Stamp, kind: str) -> Stamp:
        """The stamp, waited for and noted while profiling."""
        if isinstance(self.progress, PlanProfiling):
            stamp.wait()
            self._note(kind)
        return stamp

    def _note(self, kind: str) -> None:
        if self._boundaries is not None:
            count = self._gpu.count()
            self._boundaries.append(Boundary(count.time_s, count.energy_j, kind))

    def _reading(self) -> RankReading:
        if self._spans:
            self._spans[-1][1].wait()
        busy_s = sum(began.seconds_to(ended) for began, ended in self._spans)
        found = self._attribution() if isinstance(self.progress, PlanProfiling) else None
        if found is None or not isinstance(self.progress, PlanProfiling):
            return RankReading(self._pipeline, self._rank, busy_s)
        setting = self._policy.settings[self.progress.place]
        trials = tuple((kind, Trial(setting, cost)) for kind, cost in found.costs.items())
        return RankReading(self._pipeline, self._rank, busy_s, trials, found.waiting_w)

    def _attribution(self) -> Attribution | None:
        """What the instructions spent at this setting; None until the counter has moved often enough."""
        if not self._boundaries:
            return None
        period_s = self._gpu.spec.sensors.counter_period_s
        found = attribute(self._boundaries, refresh=self._gpu.refresh, period_s=period_s)
        if found is None and self._boundaries[-1].time_s - self._boundaries[0].time_s > PATIENCE_S:
            raise NotSupported(
                f"the energy counter of {self._gpu.spec.label} does not move",
                hint="profile elsewhere and play the plan: see `wattune pipeline plan`",
            )
        return found if found is not None and _is_enough(found) else None

    def _put_off(self) -> None:
        """Nothing; some part of a refresh has passed, another one after each iteration and the same on all ranks."""
        self._measured += 1
        period_s = self._gpu.spec.sensors.counter_period_s or UNKNOWN_PERIOD_S
        self._note(OUTSIDE)
        self._wait(self._measured * GOLDEN % 1.0 * period_s)
        self._note(PAUSED)

    def _measure_again(self, before: Progress) -> None:
        """Nothing; measuring starts after an iteration at a setting, once it is known when the counter moves."""
        if not isinstance(self.progress, PlanProfiling) or self.progress != before:
            self._boundaries = None
        elif self._boundaries is None and self._knows_the_counter():
            self._boundaries = []

    def _knows_the_counter(self) -> bool:
        """Whether the counter's period and phase are known well; if not, they will be some iterations later.

        Two looks at the counter, far apart, tell its period. There is none while measuring, since it takes time.
        """
        known = self._gpu.refresh
        unsure = known is not None and known.period_error_s > GOOD_PERIOD * known.period_s
        if unsure and known and self._gpu.count().time_s - known.edge_s < BASELINE * known.period_s:
            return False
        return watch(self._gpu, wait=self._wait) is None or known is not None


def _is_enough(found: Attribution) -> bool:
    return found.moves >= MOST_MOVES or (found.moves >= FEWEST_MOVES and found.error <= GOOD)
