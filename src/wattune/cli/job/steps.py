"""The steps of a job's program, counted from outside as `wattune run` counts them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wattune.control.progress_estimator import ONLY_OPTIMIZERS, PATTERN, ProgressEstimator
from wattune.core.errors import DeviceError
from wattune.devices.gpu import PlaysWorkloads, time_of
from wattune.levels.job.session import NO_DOUBT, Following, served_following
from wattune.process.step_file import UNFOLLOWED, StepFile, StepFollower, is_followed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wattune.devices.gpu import Gpu
    from wattune.levels.job.session import RecurringRun

POLL_S = 0.02
"""The moment of a move of the energy counters is known as well as this at least."""
STEPS_S, SOON_S = 0.1, 0.03
"""Between two reads of the counted steps; those that are due so soon are read together with the counters."""
REST = 50.0
"""Counters that a slow driver reads are left alone for so many times as long: this thread passes output on too."""


def following_of(gpus: Sequence[Gpu]) -> Following:
    """Return what is known of how a program follows these GPUs."""
    if any(isinstance(gpu, PlaysWorkloads) for gpu in gpus):
        return Following(refused=UNFOLLOWED)
    if not any(gpu.spec.simulated for gpu in gpus):
        return NO_DOUBT
    return Following(needs_steps=ONLY_OPTIMIZERS) if is_followed(os.environ) else served_following(gpus)


class ProgramSteps:
    """Passes the steps of one program on to its run: what its Python counts, or else what it reports."""

    def __init__(self, live: RecurringRun, watch: ProgressEstimator, *, warn: Callable[[str], None]) -> None:
        self._live, self._watch, self._warn = live, watch, warn
        self._now_s = time_of(live.gpus[0])
        self._passed_on = 0
        self._poll_at_s = self._follow_at_s = float("-inf")

    @classmethod
    @contextmanager
    def of(
        cls, live: RecurringRun, *, injects: bool, has_pattern: bool, uid: int | None, warn: Callable[[str], None]
    ) -> Iterator[tuple[ProgramSteps, Callable[[Mapping[str, str]], Mapping[str, str]]]]:
        """Count the steps of a program until the block ends; return its environment too, made from that of others."""
        watch = ProgressEstimator(live.gpus[0].spec.sensors)
        watch.only_optimizers = live.following.needs_steps is not None
        if has_pattern:
            watch.reported_by = PATTERN
        if not injects or live.following.refused is not None:
            yield cls(live, watch, warn=warn), lambda environment: environment
            return
        with StepFile.made(uid) as file:
            watch.hook = StepFollower(file)
            yield cls(live, watch, warn=warn), file.environment

    def reported(self, count: int, *, age_s: float) -> None:
        """Count steps that the program reported so long ago."""
        self._with_time(lambda now_s: self._watch.report(now_s - age_s, count))

    @property
    def wait_s(self) -> float:
        """Seconds until the next turn."""
        return max(min(self._poll_at_s, self._follow_at_s) - time.monotonic(), 0.0)

    def turn(self) -> None:
        """Do what is due: look at the energy counters, and count the steps that the program's Python has counted."""
        begun_s = time.monotonic()
        if begun_s >= self._poll_at_s:
            self._live.poll()
            ended_s = time.monotonic()
            self._poll_at_s = ended_s + max(self._live.wait_s, REST * (ended_s - begun_s))
        if begun_s >= self._follow_at_s - SOON_S:
            self._follow_at_s = begun_s + STEPS_S
            self.follow()

    def follow(self) -> None:
        """Count the steps that the program's Python has counted by now."""
        self._with_time(self._follow)

    def _follow(self, now_s: float) -> None:
        if self._watch.follow(now_s) == ONLY_OPTIMIZERS:
            self._warn(ONLY_OPTIMIZERS)

    def _with_time(self, act: Callable[[float], None]) -> None:
        try:
            now_s = self._now_s()
        except DeviceError:
            return  # the run notices by itself that the GPU does not answer
        act(now_s)
        latest = self._watch.marks.latest
        if latest is not None and latest.count > self._passed_on:
            more, self._passed_on = latest.count - self._passed_on, latest.count
            self._live.step(more, age_s=max(now_s - latest.time_s, 0.0))
