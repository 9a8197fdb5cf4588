"""The measurement that `wattune kernels measure -- torchrun … program.py` asks a program for.

    executor = OverlapExecutor(blocks, {"tp": GroupTransport(group)}, activations=Activations.RECOMPUTE)
    if measured_if_asked(executor, [hidden]):
        return                                          # otherwise the program trains as usual

The command passes what to measure in an environment variable. All ranks call the function at the same point; the search
runs on rank 0, which appends every trial to the file of the command.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

try:
    from torch import distributed
except ModuleNotFoundError as error:
    raise ImportError("overlapping kernels in PyTorch needs PyTorch: pip install 'wattune[torch]'") from error

from wattune.api import surroundings
from wattune.config import Config, load_config
from wattune.control.ranks import Alone, Ranks
from wattune.core.codec import JsonReader
from wattune.core.errors import DeviceNotFound, InputError, PlanError, WattuneError
from wattune.devices.gpu import Gpu
from wattune.devices.open import expand, open_gpu
from wattune.devices.simulated import SimulatedGpu
from wattune.integrations.overlap.executor import OverlapExecutor
from wattune.integrations.overlap.launching import PlannedLaunch, check_choices
from wattune.integrations.overlap.program import Activations
from wattune.integrations.overlap.repeating import (
    PartitionRunner,
    PassRunner,
    RepeatedPartitions,
    SimulatedPartitions,
    SimulatedPasses,
    WholePasses,
)
from wattune.integrations.overlap.trial_session import TrialSession
from wattune.integrations.torch_ranks import TorchRanks
from wattune.levels.overlap.described_work import DescribedWork
from wattune.levels.overlap.partitions import NONE, KernelPartition, PartitionedModel
from wattune.levels.overlap.space import PartitionChoice
from wattune.levels.overlap.trial_file import MeasureRequest, layout_text, model_of
from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import GpuModel


def measured_if_asked(
    executor: OverlapExecutor, inputs: Sequence[Any], *, group: Any = None, gpu: Gpu | None = None
) -> bool:
    """Measure the partitions of the executor where `wattune kernels measure` asks for it, and return True; else False.

    `inputs` are those of a microbatch, `group` the ranks that share the blocks (all unless given), and `gpu` that of
    this rank: unless given, the visible one with the number of the rank on its node.
    """
    config = load_config()
    if config.kernels is None:
        return False
    try:
        _measure_all(config, config.kernels, executor, inputs, group=group, gpu=gpu)
    except WattuneError as error:  # the program is ours as long as it measures
        sys.stderr.write(f"error: {error.message}\nhint: {error.hint}\n")
        raise SystemExit(1) from None
    return True


def _measure_all(
    config: Config, text: str, executor: OverlapExecutor, inputs: Sequence[Any], *, group: Any, gpu: Gpu | None
) -> None:
    request = JsonReader(source="WATTUNE_KERNELS").read(MeasureRequest, json.loads(text))
    model = model_of(
        request.layout,
        nanobatches=request.nanobatches,
        recompute=executor.activations is Activations.RECOMPUTE,
    )
    ranks: Ranks = TorchRanks(group) if distributed.is_initialized() else Alone()
    check_executor(executor, inputs, model, ranks=ranks.size)
    if gpu is not None:
        _measure(request, _RankMeasurement(executor, tuple(inputs), model, gpu), ranks)
    else:
        with _opened(request.device, config) as own:
            _measure(request, _RankMeasurement(executor, tuple(inputs), model, own), ranks)


def check_executor(executor: OverlapExecutor, inputs: Sequence[Any], model: PartitionedModel, *, ranks: int) -> None:
    """Raise unless an executor runs the partitions of a described model, on its ranks, with inputs of its size."""
    model.layout.check_devices(ranks)
    if executor.nanobatches != model.nanobatches:
        raise InputError(
            f"the executor splits microbatches into {executor.nanobatches}, and --nanobatches is {model.nanobatches}",
            hint="use the same number for both",
        )
    _check_inputs(inputs[0].shape, model, batch_dim=executor.batch_dim)
    runs = (*executor.forward_runs, *executor.backward_runs)
    for partition in model.partitions:
        for launch in (*partition.launches, NONE):
            choices = {own.name: PlannedLaunch() for own in model.partitions}
            try:
                check_choices(executor.stack, runs, choices | {partition.name: PlannedLaunch(launch=launch)})
            except PlanError as error:
                raise InputError(f"the executor is not of {model.name}: {error.message}", hint=error.hint) from None


def _check_inputs(shape: Sequence[int], model: PartitionedModel, *, batch_dim: int) -> None:
    layout = model.layout
    tokens = model.sequence // layout.cp // (layout.tp if layout.sequence_parallel else 1)
    samples, values = shape[batch_dim], prod(shape) // max(shape[batch_dim], 1)
    if (samples, values) != (model.microbatch_size, tokens * model.shape.width):
        raise InputError(
            f"the input is {'×'.join(map(str, shape))}, and a microbatch of the command on this rank has "
            f"{model.microbatch_size} samples of {tokens}×{model.shape.width}",
            hint="give --microbatch-size, --sequence and --model as they are in the program",
        )


def _opened(device: str | None, config: Config) -> AbstractContextManager[Gpu]:
    """Open the GPU of this rank: a simulated one of its own, or the visible one with its number on the node."""
    around = surroundings(config)
    names = expand((device or config.device,), around)
    place = distributed.get_node_local_rank(fallback_rank=0)
    if len(names) == 1 and not names[0].startswith("nvml"):
        return open_gpu(names[0], around)
    if place >= len(names):
        raise DeviceNotFound(
            f"rank {place} of this node has no GPU: {len(names)} visible", hint="start one process per GPU"
        )
    return open_gpu(names[place], around)


@dataclass(frozen=True, slots=True, eq=False)
class _RankMeasurement:
    """What is measured, on the GPU of this rank."""

    executor: OverlapExecutor
    inputs: tuple[Any, ...]
    model: PartitionedModel
    gpu: Gpu

    @property
    def described_gpu(self) -> GpuModel:
        """The GPU of the catalogue, with whose clocks and SMs the search starts."""
        name = self.gpu.spec.model_name
        try:
            return load_model(name)
        except DeviceNotFound:
            raise InputError(
                f"{name} is not in the catalogue, which the search starts from",
                hint="add it (docs/how-to/add-a-gpu.md), or propose choices yourself with TrialSession",
            ) from None

    @property
    def runners(self) -> tuple[PartitionRunner, PassRunner]:
        """Partitions and passes that run here, and on a simulated GPU as described work."""
        partitions = RepeatedPartitions(self.executor, self.inputs)
        passes = WholePasses(self.executor, self.inputs)
        if not isinstance(self.gpu, SimulatedGpu):
            return partitions, passes
        work = DescribedWork(self.gpu.model, self.model, model_of(layout_text(self.model), nanobatches=1))
        return (
            SimulatedPartitions(partitions, self.gpu, work.partition),
            SimulatedPasses(passes, self.gpu, work.run_pass),
        )


def _measure(request: MeasureRequest, measured: _RankMeasurement, ranks: Ranks) -> None:
    partitions, passes = measured.runners
    with TrialSession(
        partitions,
        measured.gpu,
        layout=request.layout,
        nanobatches=request.nanobatches,
        ranks=ranks,
        file=Path(request.trials),
        passes=passes,
    ) as session:
        if session.leads:
            _search(request, measured, session)
        else:
            session.serve()


def _search(request: MeasureRequest, measured: _RankMeasurement, session: TrialSession) -> None:
    """Make the trials that the search asks for, then the passes that calibrate them; on rank 0."""

    def measure(partition: KernelPartition, choice: PartitionChoice) -> Any:
        return session.measure(partition.name, choice)

    from wattune.levels.overlap.calibration import passes_to_measure
    from wattune.levels.overlap.searched_model import completed, search_model

    model, gpu = measured.model, measured.described_gpu
    searched = search_model(
        model,
        gpu,
        measure,
        search_name=request.search,
        budget=request.budget,
        seed=request.seed,
        enough=request.epsilon,
        known={own.name: session.history(own.name) for own in model.partitions},
    )
    # The fastest plan is at the highest clock, also where a budget ended the search before.
    searched = completed(searched, measure, clocks_mhz=[gpu.max_mhz])
    if request.passes:
        for choice in passes_to_measure(searched, gpu):
            session.measure_pass(choice)
