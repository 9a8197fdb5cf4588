"""The policies that choose batch sizes, by name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from wattune.core.errors import InputError
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Proposal


@dataclass(frozen=True, slots=True)
class EpochsBand:
    """Expected epochs of a batch size to the target, and the band in which the next run probably lies."""

    batch_size: int
    epochs: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.epochs <= self.high < float("inf"):
            raise ValueError(f"{self.batch_size}: {self.epochs} epochs, from {self.low} to {self.high}, cannot be")


class JobSearcher(Protocol):
    """Chooses the batch size of each run, and decides when a run is stopped.

    It is a frozen value without memory of its own, so that every decision can be repeated from the store.
    """

    @property
    def name(self) -> str:
        """The name in tables: zeus, wattune, wattune-safe."""
        ...

    def propose(self, job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
        """Choose the batch size of the next run on this GPU; the memory includes runs that have not ended."""
        ...

    def stop(self, job: Job, memory: JobMemory, run: JobRun) -> str | None:
        """Return why a run should end after its newest epoch; None where it should go on.

        `memory` is all that is known by now and includes the run as it was submitted; `run` is its current state.
        """
        ...


class JobPolicy(JobSearcher, Protocol):
    """A policy that people can choose by name."""

    def predict_epochs(self, job: Job, memory: JobMemory, gpu: JobGpu) -> tuple[EpochsBand, ...]:
        """Predict the epochs of each batch size; empty where the policy has no model of them or no data yet."""
        ...


_POLICIES: dict[str, tuple[str, str, dict[str, bool]]] = {
    "wattune": ("wattune.levels.job.policy", "WattuneJobPolicy", {}),
    "wattune-safe": ("wattune.levels.job.policy", "WattuneJobPolicy", {"safe": True}),
    "zeus": ("wattune.levels.job.zeus", "ZeusSearcher", {}),
}
"""Module, class and parameters by name; a module is imported only when its policy is used."""

SEARCHERS = tuple(_POLICIES)


def searcher_named(name: str) -> JobPolicy:
    """Return the policy of that name with its default parameters."""
    if name not in _POLICIES:
        near = difflib.get_close_matches(name, SEARCHERS, n=1)
        guess = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"there is no searcher {name!r}", hint=f"{guess}choose {', '.join(SEARCHERS[:-1])} or {SEARCHERS[-1]}"
        )
    module, class_name, parameters = _POLICIES[name]
    return cast("JobPolicy", getattr(import_module(module), class_name)(**parameters))
