"""One partition or one pass of an executor, over and over: with the tensors of a step, under any choice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

try:
    import torch
except ModuleNotFoundError as error:
    raise ImportError("overlapping kernels in PyTorch needs PyTorch: pip install 'wattune[torch]'") from error

from wattune.core.errors import InputError
from wattune.core.workload import Workload
from wattune.devices.simulated import SimulatedGpu
from wattune.integrations.overlap.execution import Execution
from wattune.integrations.overlap.executor import OverlapExecutor
from wattune.integrations.overlap.launching import (
    Action,
    Enter,
    LaunchChoice,
    Start,
    WholeMicrobatch,
    actions_of,
    run_actions,
)
from wattune.integrations.overlap.program import Activations, Direction, PartitionRun, collective_kind
from wattune.integrations.overlap.steps import ALL_REDUCE, SUFFIXES
from wattune.levels.overlap.trial_file import PassChoice
from wattune.physics.load_table import LoadTables
from wattune.plans.schedules import BACKWARD, FORWARD

Repeat = Callable[[int], None]
"""Runs a partition so many times in a row, and returns when that is done."""


class PartitionRunner(Protocol):
    """Runs partitions on the device of this rank; all ranks of a group run the same."""

    def prepare(self, partition: str, choice: LaunchChoice) -> Repeat:
        """Return a function that repeats a partition under a choice; the clock is set by the caller."""

    def wait(self, seconds: float) -> None:
        """Let time pass without work."""


class PassRunner(Protocol):
    """Runs whole passes on the device of this rank; all ranks of a group run the same."""

    layers: int
    recompute: bool
    """Whether its backward passes run the forward partitions again."""

    def prepare(self, choice: PassChoice) -> Repeat:
        """Return a function that repeats a pass; the clock is set by the caller."""

    def wait(self, seconds: float) -> None:
        """Let time pass without work."""


class RepeatedPartitions:
    """The partitions of an executor, taken out of a training step with these inputs.

    What one repetition computes is what the collective of the next one sends, as in a step, so that values stay finite.
    """

    def __init__(self, executor: OverlapExecutor, inputs: Sequence[Any]) -> None:
        self._executor, self._inputs = executor, tuple(inputs)
        self._captured: dict[str, _Captured] = {}

    def prepare(self, partition: str, choice: LaunchChoice) -> Repeat:
        if partition not in self._captured:
            self._captured = {
                partition: _Captured(self._executor, self._inputs, partition)
            }  # the others' memory is freed
        captured = self._captured[partition]
        actions = captured.actions(choice)

        def repeat(times: int) -> None:
            captured.clear()
            for _ in range(times):
                captured.run(actions)
            _synchronise(self._inputs)

        return repeat

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


class WholePasses:
    """Whole forward or backward passes of an executor, to compare with the sum of their partitions.

    Preparing one lets the executor follow its choice.
    """

    def __init__(self, executor: OverlapExecutor, inputs: Sequence[Any]) -> None:
        self._executor, self._inputs = executor, tuple(inputs)
        self.layers = executor.stack.blocks
        self.recompute = executor.activations is Activations.RECOMPUTE

    def prepare(self, choice: PassChoice) -> Repeat:
        """Return a function that repeats a pass; the clock is set by the caller."""
        wanted = choice.choices or WholeMicrobatch()
        if choice.instruction == FORWARD:
            self._executor.follow(forward=wanted)
            return self._forwards
        if choice.instruction == BACKWARD:
            # Kept activations are those of equal nanobatches.
            self._executor.follow(forward={} if choice.choices else WholeMicrobatch(), backward=wanted)
            return self._backwards()
        raise InputError(f"there is no pass {choice.instruction!r}", hint=f"use {FORWARD} or {BACKWARD}")

    def _forwards(self, times: int) -> None:
        for _ in range(times):
            self._executor.start(self._inputs, self._executor.activations)
        _synchronise(self._inputs)

    def _backwards(self) -> Repeat:
        executor = self._executor
        execution = executor.start(self._inputs, executor.activations)
        outputs = executor.joined(execution)
        execution.keeps_graphs = not self.recompute  # those that are recomputed would fill the memory
        kept = execution.kept()

        def repeat(times: int) -> None:
            for _ in range(times):
                execution.bring_back(kept)
                execution.parameter_gradients.clear()
                executor.load_gradients(execution, [torch.ones_like(tensor) for tensor in outputs])
                execution.run(executor.backward_actions)
            _synchronise(self._inputs)

        return repeat

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


class SimulatedPartitions:
    """Runs a partition once per window, and all repetitions as described work on a GPU that is simulated."""

    def __init__(
        self, partitions: PartitionRunner, gpu: SimulatedGpu, work: Callable[[str, Any], Workload | LoadTables]
    ) -> None:
        self._partitions, self._gpu, self._work = partitions, gpu, work

    def prepare(self, partition: str, choice: LaunchChoice) -> Repeat:
        return _simulated(self._partitions.prepare(partition, choice), self._gpu, self._work(partition, choice))

    def wait(self, seconds: float) -> None:
        self._gpu.idle(seconds)


class SimulatedPasses:
    """Runs a pass once per window, and all repetitions as described work on a GPU that is simulated."""

    def __init__(self, passes: PassRunner, gpu: SimulatedGpu, work: Callable[[PassChoice, int], LoadTables]) -> None:
        self._passes, self._gpu, self._work = passes, gpu, work
        self.layers, self.recompute = passes.layers, passes.recompute

    def prepare(self, choice: PassChoice) -> Repeat:
        return _simulated(self._passes.prepare(choice), self._gpu, self._work(choice, self.layers))

    def wait(self, seconds: float) -> None:
        self._gpu.idle(seconds)


def _simulated(repeat: Repeat, gpu: SimulatedGpu, work: Workload | LoadTables) -> Repeat:
    def run(times: int) -> None:
        repeat(1)
        gpu.run(work, iterations=times)

    return run


def _synchronise(tensors: Sequence[Any]) -> None:
    device = tensors[0].device
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class _Captured:
    """A partition in the middle of a step, with the tensors of all nanobatches just before it."""

    def __init__(self, executor: OverlapExecutor, inputs: Sequence[Any], partition: str) -> None:
        self._executor = executor
        self._run, self._before, self._execution = _step_until(executor, inputs, partition)
        self._kept = self._execution.kept()
        self._sent: Any = None
        kind = None if self._before is None else collective_kind(executor.stack, self._before)
        self._writes_in_place = kind == ALL_REDUCE

    def actions(self, choice: LaunchChoice) -> tuple[Action, ...]:
        """Return what a repetition does under a choice; the clock is not its matter."""
        found = run_actions(self._executor.stack, self._run, self._before, choice)
        return tuple(action for action in found if not isinstance(action, Enter))

    def clear(self) -> None:
        """Forget the sums of the gradients of weights."""
        self._execution.parameter_gradients.clear()

    def run(self, actions: Sequence[Action]) -> None:
        self._execution.bring_back(self._kept)
        if self._before is not None:
            self._load(self._before)
        self._execution.run(actions)
        self._sent = self._values(self._run)[-1]

    def _load(self, before: PartitionRun) -> None:
        """Give the collective a tensor: what the last repetition computed, where that is of the same shape."""
        values = self._values(before)
        last, sent = values[-1], self._sent
        if sent is None or sent.shape != last.shape or sent.dtype != last.dtype:
            sent = last.clone() if self._writes_in_place else last
        nanobatch = self._execution.nanobatches[before.nanobatch]
        if before.direction is Direction.BACKWARD:
            nanobatch.gradients = (*values[:-1], sent)
        else:
            nanobatch.state = (*values[:-1], sent)

    def _values(self, run: PartitionRun) -> tuple[Any, ...]:
        nanobatch = self._execution.nanobatches[run.nanobatch]
        return nanobatch.gradients if run.direction is Direction.BACKWARD else nanobatch.state


def _step_until(
    executor: OverlapExecutor, inputs: Sequence[Any], partition: str
) -> tuple[PartitionRun, PartitionRun | None, Execution]:
    """Run a step up to a typical run of a partition; return that, the run whose collective it meets, and the step."""
    stack, forward, backward = executor.stack, executor.forward_runs, executor.backward_runs
    place = _typical(executor, forward, partition)
    if place is not None:
        execution = executor.start(inputs, executor.activations, until=0)
        execution.run(_actions_until(executor, forward, place))
    else:
        place = _typical(executor, backward, partition)
        if place is None:
            known = dict.fromkeys(run.partition for run in (*forward, *backward))
            raise InputError(f"the blocks have no partition {partition!r}", hint=f"they have {', '.join(known)}")
        execution = executor.start(inputs, executor.activations, until=0)
        execution.run(actions_of(stack, forward, {}))
        executor.load_gradients(execution, [torch.ones_like(tensor) for tensor in executor.joined(execution)])
        execution.keeps_graphs = True
        execution.run(_actions_until(executor, backward, place))
        forward = backward
    execution.keeps_graphs = True
    before = forward[place - 1] if place and forward[place - 1].collective is not None else None
    return forward[place], before, execution


def _typical(executor: OverlapExecutor, runs: Sequence[PartitionRun], partition: str) -> int | None:
    """Return the place of the last run of a partition beside its collective; where there is none, of any run."""
    found = None
    for place, run in enumerate(runs):
        before = runs[place - 1] if place else None
        if partition in _names(executor, run, before):
            beside = before is not None and before.collective is not None and before.nanobatch != run.nanobatch
            found = place if beside or found is None else found
    return found


def _names(executor: OverlapExecutor, run: PartitionRun, before: PartitionRun | None) -> tuple[str, ...]:
    """Return the name of a partition, and the one with its collective."""
    kind = None if before is None else collective_kind(executor.stack, before)
    return (run.partition,) if kind is None else (run.partition, f"{run.partition}_{SUFFIXES[kind]}")


def _actions_until(executor: OverlapExecutor, runs: Sequence[PartitionRun], place: int) -> tuple[Action, ...]:
    """Return the sequential actions before a run, without the collective that the last of them leaves behind."""
    actions = actions_of(executor.stack, runs[:place], {})
    ends = place > 0 and runs[place - 1].collective is not None
    if ends and not isinstance(actions[-2], Start):
        raise AssertionError("a pass ends with its last collective")
    return actions[:-2] if ends else actions
