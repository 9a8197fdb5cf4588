"""What a plan asks of each kind of instruction: its options with how often they run, and the settings in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from wattune.core.frontier import Trial
from wattune.levels.overlap.space import PartitionChoice, parse_choice
from wattune.plans.plan import Plan, StageChoice
from wattune.plans.stage_profile import PLAIN


@dataclass(frozen=True, slots=True)
class UsedOption:
    """An option of a kind of instruction, and how many microbatches it runs in one iteration."""

    choice: StageChoice
    runs: int

    @property
    def plain(self) -> bool:
        return PLAIN in self.choice.knobs

    @property
    def partitions(self) -> Mapping[str, PartitionChoice]:
        """The setting of each partition; none where the microbatch is not split."""
        sm_mhz = self.choice.setting.sm_mhz
        if self.plain or sm_mhz is None:
            return {}
        return {name: parse_choice(text, sm_mhz=sm_mhz) for name, text in self.choice.knobs}


def used_options(plan: Plan) -> dict[str, tuple[UsedOption, ...]]:
    """Return the options of every kind in a plan, the most frequent first."""
    counts: dict[str, Counter[StageChoice]] = {}
    for operation, choice in zip(plan.graph.operations, plan.choices, strict=True):
        counts.setdefault(operation.kind, Counter())[choice] += 1
    return {
        kind: tuple(UsedOption(choice, runs) for choice, runs in counts[kind].most_common()) for kind in sorted(counts)
    }


def used_choices(plan: Plan, partition: str) -> tuple[PartitionChoice, ...]:
    """Return the settings of a partition that a plan uses, that of most instructions first."""
    counts: Counter[PartitionChoice] = Counter()
    for option in (option for options in used_options(plan).values() for option in options):
        if partition in option.partitions:
            counts[option.partitions[partition]] += option.runs
    return tuple(choice for choice, _ in counts.most_common())


def kind_words(kind: str) -> str:
    """Name a kind of instruction, such as `stage 0 forward`."""
    stage, _, instruction = kind.partition(".")
    return f"stage {stage} {instruction}"


def choice_words(choice: PartitionChoice) -> str:
    """Describe a launch and SMs, such as `norm_0, 12 SMs`."""
    launch = "after" if choice.sequential else choice.launch
    return f"{launch}, {choice.comm_sms} SMs"


def mean_clocks_mhz(trial: Trial[Plan], kinds: Mapping[str, str]) -> dict[str, float]:
    """Return the mean clock of a plan by group of kinds, each operation weighted by its time."""
    plan = trial.choice
    busy: dict[str, float] = {}
    cycles: dict[str, float] = {}
    for operation, choice, time_s in zip(plan.graph.operations, plan.choices, plan.durations_s, strict=True):
        if choice.setting.sm_mhz is not None and operation.kind in kinds:
            group = kinds[operation.kind]
            busy[group] = busy.get(group, 0.0) + time_s
            cycles[group] = cycles.get(group, 0.0) + time_s * choice.setting.sm_mhz
    return {group: cycles[group] / busy[group] for group in busy}
