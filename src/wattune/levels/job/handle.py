"""The handle of a run in training code: `with recurring_job(...) as run`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from wattune.core.job import Outcome
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu
from wattune.levels.job.options import scaled_rate
from wattune.levels.job.session import JobSession

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
        """The share of each rank."""
        return self._session.local_batch_size

    @property
    def exploring(self) -> bool:
        """Whether the run is a trial of its batch size."""
        return self._session.run.exploring

    @property
    def why(self) -> str:
        """Why the run ended or, while it goes on, why its batch size was chosen."""
        verdict = self._session.verdict
        return self._session.run.why if verdict is None else verdict.why

    @property
    def reached(self) -> bool:
        return self._session.reached

    @property
    def stopped(self) -> bool:
        """Whether the policy ended the run, because another batch size is cheaper."""
        verdict = self._session.verdict
        return verdict is not None and verdict.outcome is Outcome.STOPPED

    @property
    def outcome(self) -> Outcome:
        """How the run ended; RUNNING while it has not."""
        return self._session.run.outcome

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of this process."""
        return self._session.gpus

    @property
    def setting(self) -> Setting | None:
        """What is set on the GPUs now; None is the setting that was found."""
        return self._session.setting

    @property
    def is_profiling(self) -> bool:
        """Whether the best setting is still being searched."""
        return self._session.is_profiling

    @property
    def cost(self) -> Measurement | None:
        """The cost until the last report, on all ranks."""
        return self._session.run.cost

    @property
    def profiling(self) -> Measurement | None:
        """The part of the cost that was profiling."""
        return self._session.run.profiling

    def learning_rate(self, base: float, *, at: int, rule: str) -> float:
        """Return the learning rate for this batch size, from one that was tuned `at` another: `linear` or `sqrt`."""
        return scaled_rate(base, at=at, batch_size=self.batch_size, rule=rule)

    def epochs(self) -> Iterator[int]:
        """Yield the epochs to train, from 0, until the run has reached the target, is stopped or has its last epoch.

        An epoch without a report counts as one whose metric is not known.
        """
        session = self._session
        while session.verdict is None:
            self._reported = False
            yield session.run.epochs
            if not self._reported and session.verdict is None:
                session.report(None)
        self._reported = None

    def steps(self, loader: Iterable[B]) -> Iterator[B]:
        """Yield the batches of a loader and count each as an iteration when the next is requested."""
        for batch in loader:
            yield batch
            self.step()

    def step(self, count: int = 1) -> None:
        """Count iterations that have ended."""
        self._session.step(count)

    def report(self, metric: float | None) -> bool:
        """End an epoch with this metric, and return whether to go on.

        Only the first report of an epoch of `epochs()` counts; without `epochs()` each report ends an epoch.
        """
        if self._reported and self._session.verdict is None:
            self._session.warn("an epoch was reported twice; the first report counts")
            return True
        verdict = self._session.report(metric)
        if self._reported is not None:
            self._reported = True
        return verdict is None
