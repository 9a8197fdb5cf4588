"""What every store can do, whichever database is behind it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from wattune.core.errors import StoreError
from wattune.core.setting import Setting
from wattune.core.trial import History
from wattune.store.job_book import JobBook
from wattune.store.records import FullRun, Run, TraceSummary, TrialRecord


class RunExists(StoreError):
    """A run of this id is in the store already."""


class RunOver(StoreError):
    """A run of a job that has ended otherwise, or whose place another run took, was reported to."""


class NoSuchRun(StoreError):
    """No run of any job in this store has the id."""


class EpochReported(StoreError):
    """An epoch of a job's run was reported before, with another metric."""


class Store(Protocol):
    """The history of everything that was measured. `wattune.store.open.open_store` makes one."""

    @property
    def place(self) -> str:
        """Where it is, for people: a path, or a URL without its password."""
        ...

    @property
    def jobs(self) -> JobBook:
        """The history of recurring jobs."""
        ...

    def add_run(self, full: FullRun) -> None:
        """Nothing; the run and all that belongs to it are on disk, or none of it is and an error says why."""
        ...

    def run(self, prefix: str) -> FullRun:
        """The one run whose id begins like this."""
        ...

    def runs(
        self,
        *,
        limit: int | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        name: str | None = None,
    ) -> tuple[Run, ...]:
        """The runs, newest first; `name` is a part of theirs, in any case."""
        ...

    def trials(self, *, workload: str, gpu: str, simulated: bool) -> History[Setting]:
        """Every setting that was tried for a workload on a part, oldest first; simulated and real never mix."""
        ...

    def trial_records(
        self, *, workload: str | None = None, gpu: str | None = None, choice_kind: str | None = None
    ) -> tuple[tuple[Run, TrialRecord], ...]:
        """The trials with the run that each belongs to, oldest first."""
        ...

    def traces(self) -> tuple[tuple[Run, TraceSummary], ...]:
        """The trace summaries with the run that each belongs to, oldest first."""
        ...

    def forget(self, prefix: str) -> Run:
        """The run that was taken out of the store, with all that belonged to it."""
        ...
