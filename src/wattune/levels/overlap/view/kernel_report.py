"""What `wattune kernels` shows: the model in words, the search of its partitions, the plans beside Megatron's."""

from __future__ import annotations

from dataclasses import dataclass

from wattune.levels.overlap.baselines import MegatronComparison, gpu_hours, kareus_trials
from wattune.levels.overlap.calibration import PassCalibration, calibrations
from wattune.levels.overlap.joint_plans import Remaining
from wattune.levels.overlap.partitions import PartitionedModel
from wattune.levels.overlap.searched_model import SearchedPartition
from wattune.levels.overlap.simulated_stages import INSTRUCTIONS
from wattune.levels.overlap.space import choices
from wattune.levels.overlap.trial_file import PassTrial
from wattune.levels.overlap.view.stream_timeline import PartitionStreams, partition_streams
from wattune.levels.overlap.view.used_settings import used_choices
from wattune.levels.pipeline.planned import PlannedPipeline
from wattune.physics.gpu_model import GpuModel

KAREUS_NANOBATCHES = 2


@dataclass(frozen=True, slots=True, eq=False)
class SearchedKernels:
    """The partitions of a model after a search on a GPU."""

    model: PartitionedModel
    gpu: GpuModel
    partitions: tuple[SearchedPartition, ...]
    measured: bool
    """Whether ranks measured the trials; otherwise they were computed."""
    remaining: Remaining | None = None
    """What the composed plans are expected to lack; None where that is unknown."""
    simulated: bool = True
    """Whether the GPUs are simulated."""
    passes: tuple[PassTrial, ...] = ()
    """Whole passes that ranks measured."""

    @property
    def calibrations(self) -> dict[str, PassCalibration]:
        """Factors of composed passes by instruction; none for one that was not measured as a whole."""
        return calibrations(self.model, self.partitions, self.passes)

    @property
    def clocks_mhz(self) -> dict[str, dict[str, set[int]]]:
        """By instruction, the clocks at which each of its partitions was measured."""
        return {
            instruction: {
                own.partition.name: {trial.choice.sm_mhz for trial in own.history}
                for own in self.partitions
                if own.partition.per_layer(instruction)
            }
            for instruction in INSTRUCTIONS
        }

    @property
    def left_out_mhz(self) -> dict[str, tuple[int, ...]]:
        """By instruction, clocks that no plan can use, because some of its partitions were not measured there."""
        found = {}
        for instruction, clocks in self.clocks_mhz.items():
            every = {clock for own in clocks.values() for clock in own}
            missing = (clock for clock in every if not all(clock in own for own in clocks.values()))
            found[instruction] = tuple(sorted(missing))
        return found

    @property
    def complete(self) -> bool:
        """Whether every setting was computed, so that nothing was searched."""
        return not self.measured and all(
            len(own.history) == len(choices(own.partition, self.gpu)) for own in self.partitions
        )

    @property
    def trials(self) -> int:
        return sum(len(own.history) for own in self.partitions)

    @property
    def ranks(self) -> int:
        """GPUs that make a trial together."""
        return self.model.layout.tp * self.model.layout.cp

    @property
    def gpu_hours(self) -> float:
        """GPU time that the trials take on real GPUs."""
        return gpu_hours(self.trials, gpus=self.ranks)

    @property
    def kareus_trials(self) -> int | None:
        """What Kareus measures of the same partitions; None where it does not know one, or not so many nanobatches."""
        if self.model.nanobatches != KAREUS_NANOBATCHES:
            return None
        return kareus_trials([own.partition.name for own in self.partitions])

    @property
    def kareus_gpu_hours(self) -> float | None:
        trials = self.kareus_trials
        return None if trials is None else gpu_hours(trials, gpus=self.ranks)


@dataclass(frozen=True, slots=True, eq=False)
class KernelReport:
    """A frontier of plans, and where they are known the search and the comparison that it came with."""

    title: str
    planned: PlannedPipeline
    searched: SearchedKernels | None = None
    comparison: MegatronComparison | None = None

    @property
    def streams(self) -> tuple[PartitionStreams, ...]:
        """Both streams of each partition at the setting that most instructions of the chosen plan have."""
        if self.searched is None:
            return ()
        found = []
        for own in self.searched.partitions:
            used = used_choices(self.planned.plan.choice, own.partition.name)
            if used:
                found.append(partition_streams(own.partition, self.searched.gpu, used[0]))
        return tuple(found)
