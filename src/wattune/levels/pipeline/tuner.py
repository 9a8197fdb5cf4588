"""The listener that plans while a pipeline trains: it measures, agrees with the other ranks and sets what follows.

While profiling it waits for the GPU at both ends of every instruction, because a counter that is read while the GPU is
elsewhere shows nothing of it, and every iteration is a decision point. Once a plan is held, it only requests clocks:
it measures one iteration and exchanges readings at decision points, whose iteration was agreed at the one before.
Nothing here raises into the training: a failure disables tuning on all ranks at the next decision point.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from wattune.control.actuator import Actuator
from wattune.control.ranks import Agreement, Numbers, Ranks
from wattune.control.stamps import Stamp, Stamps
from wattune.control.window_state import Measuring, Settling, Until
from wattune.core.errors import NotSupported
from wattune.core.frontier import Trial
from wattune.core.refresh import UNKNOWN_PERIOD_S
from wattune.devices.gpu import Gpu
from wattune.devices.meter import Wait, watch
from wattune.levels.pipeline.online import (
    OnlinePlanning,
    PlanDisabled,
    PlanProfiled,
    PlanProfiling,
    Progress,
    RankReading,
    Readings,
)
from wattune.levels.pipeline.player import PlanPlayer
from wattune.levels.pipeline.profiling import OUTSIDE, PAUSED, WAITING, Attribution, Boundary, attribute
from wattune.plans.schedules import Piece

DECISION_S = 2.0
"""Between two decision points while a plan is held, about."""

MEASURED = Until(least_steps=20, most_steps=100, precision=0.05)
"""Moves of the counter at a clock, by the error of an instruction's energy: 100 are 10 s on a counter of 100 ms."""

GOLDEN = 0.618034
"""Share of a refresh by which measured iterations are delayed against each other, so that the moves of the counter
fall on different instructions; without it an iteration that lasts a whole number of refreshes adds no information."""

GOOD_PERIOD = 2e-4
"""Error of the counter's period, as a share of it, that is small enough for the moves of many seconds."""

BASELINE = 20
"""Periods between two observations of the counter that give its period so well."""

PATIENCE_S = 60.0
"""A counter that has not moved for so long while a GPU trains does not move at all."""


DecisionStep = Callable[[Progress, Readings], Progress]


class OnlineListener:
    """One rank of a pipeline that is planned while it trains."""

    def __init__(
        self,
        policy: OnlinePlanning,
        *,
        gpu: Gpu,
        clocks: Actuator,
        stamp: Stamps,
        ranks: Ranks,
        rank: int,
        pipeline: int = 0,
        wait: Wait = time.sleep,
        step: DecisionStep | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """`ranks` are the processes of all pipelines; `rank` counts within this `pipeline`.

        `step` replaces that of the policy: it returns the progress after one more iteration, the same on all ranks.
        `on_progress` is called with each new progress; where it raises, tuning ends.
        """
        self.progress: Progress = policy.start()
        self._policy = policy
        self._step = step
        self._on_progress = on_progress
        self._gpu, self._clocks, self._stamp = gpu, clocks, stamp
        self._agreement = Agreement(ranks)
        self._rank, self._pipeline = rank, pipeline
        self._wait = wait
        self._player = PlanPlayer(policy.steps(self.progress, pipeline=pipeline, rank=rank))
        self._state: Settling[Progress, int] | Measuring[Progress, list[Boundary]] = Settling(self.progress, 0)
        """While profiling: a setting is measured once it has held for an iteration."""
        self._measured = 0
        self._spans: list[tuple[Stamp, Stamp]] = []
        self._began: Stamp | None = None
        self._iteration, self._next = 0, 1
        """Iterations that are over, and how many will be at the next decision point."""
        self._decided_at = (0, 0.0)
        """Iteration and time of the last decision."""

    @property
    def has_profile(self) -> bool:
        """True once a profile is complete, on all ranks after the same iteration."""
        return isinstance(self.progress, PlanProfiled)

    def start(self) -> None:
        self._player = self._player.from_start()
        self._spans, self._began = [], None
        if self._is_tuning:
            self._note(OUTSIDE)

    def begin(self, piece: Piece) -> None:
        if not self._is_tuning:
            return
        self._player, wanted = self._player.begin(piece.name)
        if wanted is None and not self._is_measuring:
            return
        stamp = self._stamp()
        if wanted is not None:
            self._clocks.put(wanted, reached=stamp.passed)
        self._began = self._at(stamp, WAITING) if self._is_measuring else None

    def end(self, piece: Piece) -> None:
        """Mark the end of an instruction in an iteration that is measured."""
        if self._is_tuning and self._began is not None:
            self._spans.append((self._began, self._at(self._stamp(), piece.kind)))

    def finish(self) -> None:
        """Count the iteration and, at a decision point, agree with the other ranks on what comes next."""
        self._iteration += 1
        if self._iteration >= self._next and not isinstance(self.progress, PlanProfiled | PlanDisabled):
            self._decide()

    def fail(self, error: BaseException) -> None:
        """Restore the GPU of this rank now; the other ranks follow at the next decision point."""
        self._agreement.fail(error)
        self._clocks.disable(str(self._agreement.failure))

    @property
    def _is_tuning(self) -> bool:
        return self._agreement.failure is None and not isinstance(self.progress, PlanProfiled)

    @property
    def _is_measuring(self) -> bool:
        """True where this iteration ends with a decision."""
        return self._iteration + 1 >= self._next

    def _decide(self) -> None:
        before, after = self.progress, self.progress

        def stepped(sums: Numbers, _maxima: Numbers) -> Sequence[float]:
            # The same on all ranks, because all step from the same numbers.
            nonlocal after
            step = self._step or self._policy.step
            after = step(before, self._policy.decoded(before, sums))
            return (float(self._next_iteration(after)),)

        answer = self._agreement.decide(self._numbers, stepped, sizes=(self._policy.numbers, 1))
        if answer is None:
            why = str(self._agreement.disabled)
            self.progress = PlanDisabled(why)
            self._clocks.disable(why)
            self._report()
            return
        self._next, self.progress = int(answer[0]), after
        if isinstance(after, PlanProfiled):
            self._clocks.disable("the profile is complete")
        if after != before:
            steps = self._policy.steps(after, pipeline=self._pipeline, rank=self._rank)
            self._player = self._player.following(steps)
            self._report()
        self._measure_again(before)
        if isinstance(self._state, Measuring) and self._state.window:
            self._delay()

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _next_iteration(self, progress: Progress) -> int:
        now_s, (iteration, last_s) = self._gpu.count().time_s, self._decided_at
        self._decided_at = (self._iteration, now_s)
        if self._policy.is_uncertain(progress) or not iteration:
            return self._iteration + 1
        iteration_s = (now_s - last_s) / max(self._iteration - iteration, 1)
        return self._iteration + (max(round(DECISION_S / iteration_s), 1) if iteration_s > 0 else 1)

    def _numbers(self) -> Numbers:
        """Return what this rank measured, or raise why its GPU could not be set."""
        refused = self._clocks.take_failure()
        if refused is not None:
            raise refused
        return self._policy.encoded(self._reading())

    def _at(self, stamp: Stamp, kind: str) -> Stamp:
        """Return the stamp; while profiling, wait for it and read the counter."""
        if isinstance(self.progress, PlanProfiling):
            stamp.wait()
            self._note(kind)
        return stamp

    def _note(self, kind: str) -> None:
        if isinstance(self._state, Measuring):
            count = self._gpu.count()
            self._state.window.append(Boundary(count.time_s, count.energy_j, kind))

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
        """Return what the instructions spent at this setting; None until the counter has moved often enough."""
        if not isinstance(self._state, Measuring) or not self._state.window:
            return None
        boundaries, period_s = self._state.window, self._gpu.spec.sensors.counter_period_s
        found = attribute(boundaries, refresh=self._gpu.refresh, period_s=period_s)
        if found is None and boundaries[-1].time_s - boundaries[0].time_s > PATIENCE_S:
            raise NotSupported(
                f"the energy counter of {self._gpu.spec.label} does not move",
                hint="profile elsewhere and play the plan: see `wattune pipeline plan`",
            )
        enough = found is not None and MEASURED.is_over(steps=found.moves, error=found.error)
        return found if enough else None

    def _delay(self) -> None:
        """Wait for a part of a refresh, another one after each iteration and the same on all ranks."""
        self._measured += 1
        period_s = self._gpu.spec.sensors.counter_period_s or UNKNOWN_PERIOD_S
        self._note(OUTSIDE)
        self._wait(self._measured * GOLDEN % 1.0 * period_s)
        self._note(PAUSED)

    def _measure_again(self, before: Progress) -> None:
        """Start to measure after an iteration at a setting, once it is known when the counter moves."""
        if not isinstance(self.progress, PlanProfiling) or self.progress != before:
            self._state = Settling(self.progress, self._iteration)
        elif isinstance(self._state, Settling) and self._knows_the_counter():
            self._state = Measuring(self.progress, [])

    def _knows_the_counter(self) -> bool:
        """Return whether the counter's period and phase are known well; if not, they will be some iterations later.

        Two observations of the counter at a distance give its period. None is made while measuring: each takes time.
        """
        known = self._gpu.refresh
        unsure = known is not None and known.period_error_s > GOOD_PERIOD * known.period_s
        if unsure and known and self._gpu.count().time_s - known.edge_s < BASELINE * known.period_s:
            return False
        return watch(self._gpu, wait=self._wait) is None or known is not None
