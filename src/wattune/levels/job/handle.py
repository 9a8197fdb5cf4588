"""A run of a recurring job as training code sees it: `with recurring_job(...) as run`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import sqrt
from typing import TypeVar

from wattune.core.errors import InputError
from wattune.core.job import Outcome
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu
from wattune.levels.job.session import JobSession

RULES = ("linear", "sqrt")
"""In proportion (Goyal et al., 2017, for SGD), or with the square root (Krizhevsky, 2014; usual for Adam)."""


def scaled_rate(base: float, *, at: int, batch_size: int, rule: str) -> float:
    """The learning rate for a batch size, from one that is good `at` another."""
    if rule not in RULES:
        raise InputError(f"there is no rule {rule!r} for learning rates", hint=f"choose {' or '.join(RULES)}")
    if at < 1:
        raise InputError(f"a batch size is a whole number from 1, not {at}", hint="give the one that `base` is for")
    growth = batch_size / at
    return base * (growth if rule == "linear" else sqrt(growth))


B = TypeVar("B")


class RecurringRun:
    """The batch size to train with, the epochs to train for, and where to report the metric."""

    def __init__(self, session: JobSession) -> None:
        self._session = session
        self._reported: bool | None = None
        """Whether this epoch was reported; None outside of `epochs()`."""

    @property
    def id(self) -> str:
        """The id of the run in the history."""
        return self._session.run.id

    @property
    def batch_size(self) -> int:
        """The batch size to train with, over all ranks."""
        return self._session.run.batch_size

    @property
    def local_batch_size(self) -> int:
        """The part of it that each rank has."""
        return self._session.local_batch_size

    @property
    def exploring(self) -> bool:
        """Whether the batch size is tried to learn from it."""
        return self._session.run.exploring

    @property
    def why(self) -> str:
        """Why the run ended or, while it goes on, why its batch size was chosen."""
        verdict = self._session.verdict
        return self._session.run.why if verdict is None else verdict.why

    @property
    def reached(self) -> bool:
        """Whether the target was reached."""
        return self._session.reached

    @property
    def stopped(self) -> bool:
        """Whether we ended the run, because it could not win any more."""
        verdict = self._session.verdict
        return verdict is not None and verdict.outcome is Outcome.STOPPED

    @property
    def outcome(self) -> Outcome:
        """How it ended, or that it has not."""
        return self._session.run.outcome

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of this process."""
        return self._session.gpus

    @property
    def setting(self) -> Setting | None:
        """What is set on the GPUs now; None is what was found."""
        return self._session.setting

    @property
    def is_profiling(self) -> bool:
        """Whether the best setting is still being searched."""
        return self._session.is_profiling

    @property
    def cost(self) -> Measurement | None:
        """What was spent until the last report, on all ranks."""
        return self._session.run.cost

    @property
    def profiling(self) -> Measurement | None:
        """The part of it that went into profiling."""
        return self._session.run.profiling

    def learning_rate(self, base: float, *, at: int, rule: str) -> float:
        """The learning rate for this batch size, from one that is good `at` another: `linear` or `sqrt`."""
        return scaled_rate(base, at=at, batch_size=self.batch_size, rule=rule)

    def epochs(self) -> Iterator[int]:
        """The epochs to train, from 0, until the target is reached, the run is stopped or there were enough.

        An epoch in which nothing was reported counts as one whose metric is not known.
        """
        session = self._session
        while session.verdict is None:
            self._reported = False
            yield session.run.epochs
            if not self._reported and session.verdict is None:
                session.report(None)
        self._reported = None

    def steps(self, loader: Iterable[B]) -> Iterator[B]:
        """What the loader gives, each counted as an iteration when the next is asked for."""
        for batch in loader:
            yield batch
            self.step()

    def step(self, count: int = 1) -> None:
        """Nothing; so many more iterations are over."""
        self._session.step(count)

    def report(self, metric: float | None) -> bool:
        """Whether to train on, after an epoch that ended with this metric.

        Only the first report of an epoch of `epochs()` counts; without `epochs()` each report ends an epoch.
        """
        if self._reported and self._session.verdict is None:
            self._session.note("an epoch was reported twice; the first report counts")
            return True
        verdict = self._session.report(metric)
        if self._reported is not None:
            self._reported = True
        return verdict is None
