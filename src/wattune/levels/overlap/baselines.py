"""Plans of a partitioned model beside those without nanobatches: Megatron-LM as it is, and with Perseus.

All have the same schedule. At equal time: at the time of the fastest plan of Megatron with Perseus. At equal energy: at
the energy of its cheapest plan. Both are compared as Kareus compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattune.core.errors import Infeasible
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import energy_percent, time_percent
from wattune.levels.overlap.partitions import PartitionedModel
from wattune.levels.overlap.simulated_stages import profile_from, sequentially, stage_profile_of
from wattune.physics.gpu_model import GpuModel
from wattune.plans.plan import Plan, StageChoice
from wattune.plans.stage_profile import KNOB_ORDER, PLAIN, StageProfile

TRIAL_S = 12.5
"""Of a trial on GPUs: 2 s until the clock holds, 5 s to cool, 5 s to measure, and warming up (ml-energy/kareus)."""

KAREUS_TRIALS = {"attn": 224, "mlp": 224, "qkv": 112, "ao": 84, "o": 84, "a": 84}
"""What Kareus measures of a partition, by its segment (ml-energy/kareus)."""

_CLOSE = 1e-3
"""Plans are points of a frontier, so equal means within this share."""


@dataclass(frozen=True, slots=True)
class MegatronComparison:
    """The frontier of a searched model beside Megatron at default settings and with Perseus."""

    default: Trial[Plan]
    perseus: Frontier[Plan]
    ours: Frontier[Plan]

    @property
    def equal_time(self) -> Trial[Plan] | None:
        """Our cheapest plan that is no slower than the fastest of Perseus; None where all are slower."""
        try:
            return self.ours.within(self.perseus.fastest.cost.time_s * (1 + _CLOSE))
        except Infeasible:
            return None

    @property
    def equal_energy(self) -> Trial[Plan] | None:
        """Our fastest plan that spends no more than the cheapest of Perseus; None where all spend more."""
        most_j = self.perseus.cheapest.cost.energy_j * (1 + _CLOSE)
        return next((trial for trial in self.ours if trial.cost.energy_j <= most_j), None)

    @property
    def equal_time_energy_percent(self) -> float | None:
        trial = self.equal_time
        return None if trial is None else energy_percent(trial.cost, self.perseus.fastest.cost)

    @property
    def equal_energy_time_percent(self) -> float | None:
        trial = self.equal_energy
        return None if trial is None else time_percent(trial.cost, self.perseus.cheapest.cost)


def megatron_profile(plain: PartitionedModel, gpu: GpuModel) -> StageProfile:
    """Profile a model without nanobatches; its options carry `nanobatches` as those of `searched_profile` do."""
    found = stage_profile_of(plain, gpu, sequentially())
    options = {
        kind: tuple(Trial(StageChoice(trial.choice.setting, (PLAIN,)), trial.cost) for trial in trials)
        for kind, trials in found.options.items()
    }
    return profile_from(options, name=found.file, stages=found.stages)


def kareus_trials(names: Sequence[str]) -> int | None:
    """Return how many trials Kareus makes of these partitions; None where it does not know one of them."""
    if not set(names) <= set(KNOB_ORDER):
        return None
    return sum(KAREUS_TRIALS[name.split("_")[1]] for name in names)


def gpu_hours(trials: int, *, gpus: int) -> float:
    """Return the GPU time of trials that so many GPUs make together."""
    return trials * TRIAL_S * gpus / 3600
