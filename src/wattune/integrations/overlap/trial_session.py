"""Trials of partitions and passes, one after the other: the search runs on rank 0, and all ranks run what it asks for.

partitions = RepeatedPartitions(executor, [hidden])
with open_gpu(f"nvml:{local_rank}") as gpu, TrialSession(partitions, gpu, layout="...", ...) as session:
    if session.leads:
        search(space, searcher, partial(session.measure, "fwd_attn"), budget=45, history=session.history("fwd_attn"))
    else:
        session.serve()
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from wattune.control.ranks import Alone, Ranks, error_text
from wattune.core.codec import JsonReader, to_json
from wattune.core.errors import DeviceError, InputError
from wattune.core.frontier import History
from wattune.core.measurement import Measurement
from wattune.devices.gpu import Gpu
from wattune.integrations.overlap.measuring import measure_partition, measure_pass
from wattune.integrations.overlap.repeating import PartitionRunner, PassRunner
from wattune.integrations.overlap.trial_windows import TrialRule
from wattune.levels.overlap.space import PartitionChoice
from wattune.levels.overlap.trial_file import (
    MeasuredRuns,
    PartitionTrial,
    PassChoice,
    PassTrial,
    TrialHeader,
    appended_trials,
    read_passes,
    read_trials,
)

T = TypeVar("T", bound=MeasuredRuns)


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """What rank 0 asks all ranks to do: measure a partition or a whole pass, or end, after a failure or without."""

    partition: str = ""
    choice: PartitionChoice | None = None
    whole: PassChoice | None = None
    failure: str | None = None


class TrialSession:
    """Measures partitions on all ranks; all of them enter it at the same point, and their GPUs are restored at its end.

    Trials are appended to the file of rank 0. Those that it has already are not measured again, so that a run that was
    killed continues.
    """

    def __init__(
        self,
        partitions: PartitionRunner,
        gpu: Gpu,
        *,
        layout: str,
        nanobatches: int,
        ranks: Ranks | None = None,
        file: Path | None = None,
        passes: PassRunner | None = None,
        rule: TrialRule | None = None,
        progress: Callable[[PartitionTrial], None] | None = None,
    ) -> None:
        self._partitions, self._passes, self._gpu = partitions, passes, gpu
        self._rule, self._progress = rule, progress
        self._ranks = ranks or Alone()
        self._file = file if self.leads else None
        self._header = TrialHeader(
            layout=layout,
            gpu=gpu.spec.model_name,
            simulated=gpu.spec.simulated,
            ranks=self._ranks.size,
            nanobatches=nanobatches,
            executed=True,
        )
        self._trials: dict[tuple[str, PartitionChoice], PartitionTrial] = {}
        self._whole: dict[object, PassTrial] = {}
        self._append: Callable[[MeasuredRuns], None] | None = None
        self._start_c: float | None = None
        self._runs = 0
        self._others_serve = self._ranks.size > 1
        self._stack = ExitStack()

    @property
    def leads(self) -> bool:
        """Whether the search runs on this rank."""
        return self._ranks.rank == 0

    @property
    def trials(self) -> tuple[PartitionTrial, ...]:
        """All trials, of earlier runs first; on rank 0."""
        return tuple(self._trials.values())

    def history(self, partition: str) -> History[PartitionChoice]:
        """Return the trials of a partition, for a search to continue from."""
        return tuple(trial.trial for trial in self.trials if trial.partition == partition)

    def __enter__(self) -> Self:
        self._stack.callback(self._gpu.restore)
        if self._file is not None:
            try:
                self._trials = {trial.key: trial for trial in read_trials(self._file, self._header)}
                self._whole = {trial.choice.key: trial for trial in read_passes(self._file, self._header)}
                self._append = self._stack.enter_context(appended_trials(self._file, self._header))
            except Exception as error:
                self.__exit__(type(error), error, None)
                raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        with self._stack:
            if self.leads and self._others_serve:
                self._others_serve = False
                self._ask(TrialRequest(failure=None if error is None else error_text(error)))

    def measure(self, partition: str, choice: PartitionChoice) -> Measurement:
        """Return what one run of a partition takes on each GPU, measured by all ranks or known; on rank 0 only."""
        known = self._trials.get((partition, choice))
        if known is not None:
            return known.cost
        self._ask(TrialRequest(partition, choice))
        trial = self._measured(lambda: self._trial(partition, choice))
        if self._append is not None:
            self._append(trial)
        self._trials[trial.key] = trial
        if self._progress is not None:
            self._progress(trial)
        return trial.cost

    def measure_pass(self, choice: PassChoice) -> PassTrial:
        """Return what a whole pass takes on each GPU, measured by all ranks or known; on rank 0 only."""
        known = self._whole.get(choice.key)
        if known is not None:
            return known
        self._ask(TrialRequest(whole=choice))
        trial = self._measured(lambda: self._pass(choice))
        if self._append is not None:
            self._append(trial)
        self._whole[choice.key] = trial
        return trial

    def serve(self) -> None:
        """Run what rank 0 asks for until its block ends; raise where that ends with an error."""
        while True:
            request = JsonReader().read(TrialRequest, json.loads(self._ranks.broadcast("")))
            if request.failure is not None:
                raise DeviceError(f"the search on rank 0 failed: {request.failure}", hint="see the output of rank 0")
            if request.whole is not None:
                self._measured(partial(self._pass, request.whole))
            elif request.choice is not None:
                self._measured(partial(self._trial, request.partition, request.choice))
            else:
                return

    def _ask(self, request: TrialRequest) -> None:
        self._ranks.broadcast(json.dumps(to_json(request)))

    def _measured(self, measure: Callable[[], T]) -> T:
        try:
            if self._runs == 0:
                measure()  # warms the GPU up, which is never again as cold as before
            trial = measure()
        except Exception:
            self._others_serve = False  # they have seen the same failure
            raise
        # Where cooling took too long, later trials need not start cooler than this one.
        starts_c = [value for value in (self._start_c, trial.start_c) if value is not None]
        self._start_c = max(starts_c, default=None)
        self._runs += 1
        return trial

    def _trial(self, partition: str, choice: PartitionChoice) -> PartitionTrial:
        return measure_partition(
            self._partitions,
            partition,
            choice,
            self._gpu,
            ranks=self._ranks,
            start_c=self._start_c,
            rule=self._rule,
        )

    def _pass(self, choice: PassChoice) -> PassTrial:
        if self._passes is None:
            raise InputError("this session has no whole passes to measure", hint="give it passes=WholePasses(…)")
        return measure_pass(self._passes, choice, self._gpu, ranks=self._ranks, start_c=self._start_c, rule=self._rule)
