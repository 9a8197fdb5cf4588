"""The searchers that choose batch sizes, by name."""

from __future__ import annotations

import difflib
from typing import Protocol

from wattune.core.errors import InputError
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Proposal


class JobSearcher(Protocol):
    """Chooses the batch size of each run, and says when a run is to be stopped.

    It is a frozen value whose memory is what it is given, so that every decision can be taken again from the store.
    """

    @property
    def name(self) -> str:
        """What tables call it: zeus, wattune."""
        ...

    def propose(self, job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
        """The batch size of the next run on this part; runs that are still out are among those of the memory."""
        ...

    def stop(self, job: Job, memory: JobMemory, run: JobRun) -> str | None:
        """Why a run should end now, asked after each of its epochs; None where it should go on.

        `memory` is all that is known by now, the run itself included as it stood when it was submitted; `run` is how
        it stands at this moment.
        """
        ...


SEARCHERS = ("wattune", "zeus")


def searcher_named(name: str) -> JobSearcher:
    """The searcher that tables call so: `wattune`, ours, or `zeus`, as published."""
    if name == "wattune":
        from wattune.levels.job.policy import WattuneJobPolicy

        return WattuneJobPolicy()
    if name == "zeus":
        from wattune.levels.job.zeus import ZeusSearcher

        return ZeusSearcher()
    near = difflib.get_close_matches(name, SEARCHERS, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    raise InputError(f"there is no searcher {name!r}", hint=f"{guess}choose {' or '.join(SEARCHERS)}")
