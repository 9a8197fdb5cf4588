"""The stage profile: time and energy of each instruction of each stage at each setting, read from CSV.

Columns `stage,instruction,frequency,time,energy` (MHz, s, J) are those of Perseus; `mem_mhz` and `power_limit_w` add to
the setting, `simulated` marks rows that were not measured on hardware, `gpu` names the GPU and `waiting_w` is its power
while it waits. Rows whose `baseline` is yes are what plans are compared with, and are no option of a plan. Any further
column is a knob of the instruction, such as the launch configuration of its communication (Kareus).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from wattune.core.csv_input import Row, csv_text, parse_csv
from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.plans.plan import StageChoice
from wattune.plans.schedules import EXTRAS, kind_of
from wattune.plans.shape import PipelineShape

REQUIRED = ("stage", "instruction", "frequency", "time", "energy")
_OWN = (
    *(*REQUIRED, "mem_mhz", "power_limit_w", "simulated", "gpu", "waiting_w", "baseline"),
    *("rank", "dp_rank", "pp_rank", "tp_rank"),
)

HIGHEST = "every instruction at its highest setting"
WHOLE = "whole microbatches at the highest clock"
"""What plans are compared with: the profile's own rows, or its rows of a baseline (Megatron-LM as it is)."""

PLAIN = ("nanobatches", "1")
"""The knob of an instruction that runs without nanobatches."""

KNOB_ORDER = (
    *("fwd_qkv_ar", "fwd_qkv_ag", "fwd_ao_ag", "fwd_ao_ar", "fwd_attn", "fwd_mlp"),
    *("bwd_qkv_ar", "bwd_qkv_rs", "bwd_a_rs", "bwd_a_ag", "bwd_o_ag", "bwd_o_ar", "bwd_attn", "bwd_mlp"),
)
"""The order of partitions in the schedule files of Kareus."""

Options = Mapping[str, tuple[Trial[StageChoice], ...]]
"""The options of each kind of operation."""


@dataclass(frozen=True, slots=True)
class StageProfile:
    """The options of every instruction of every stage, and the line that each came from."""

    file: str
    options: Options
    lines: Mapping[tuple[str, StageChoice], int]
    """The line of the file for each kind and choice."""
    stages: int
    simulated: bool
    gpu: str | None = None
    """None where it is not known, or where there are several models."""
    waiting_w: float | None = None
    """Power of a GPU that waits, where it was measured."""
    baseline: Mapping[str, Trial[StageChoice]] = field(default_factory=dict)
    """For each kind what plans are compared with; empty where that is the highest setting."""
    _trials: Mapping[tuple[str, StageChoice], Trial[StageChoice]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = {(kind, trial.choice): trial for kind, trials in self.options.items() for trial in trials}
        object.__setattr__(self, "_trials", MappingProxyType(found))

    @property
    def extras(self) -> tuple[str, ...]:
        """The transfers and endings that the profile has rows for."""
        instructions = {kind.partition(".")[2] for kind in self.options}
        return tuple(extra for extra in EXTRAS if extra in instructions)

    def shape(self, schedule: str, microbatches: int, *, chunks: int = 1) -> PipelineShape:
        """Make the shape of a pipeline over these stages; refuse one with instructions that the profile lacks."""
        shape = PipelineShape(schedule, self.stages, microbatches, chunks, self.extras)
        for piece in dict.fromkeys(piece for rank in shape.order for piece in rank if piece.microbatch == 0):
            if piece.kind not in self.options:
                raise InputError(
                    f"{self.file}: stage {piece.stage} has no row for {piece.instruction!r}",
                    hint=f"schedule {schedule} runs it; profile every instruction of every stage",
                )
        return shape

    def check_blocking_power(self, blocking_power_w: float) -> None:
        """Refuse a row that spends less than a GPU that waits just as long."""
        for kind, trials in self.options.items():
            for trial in trials:
                if trial.cost.power_w < blocking_power_w:
                    line = self.lines[kind, trial.choice]
                    raise InputError(
                        f"{self.file}, line {line}, column energy: {trial.cost.energy_j:g} J in {trial.cost.time_s:g} s"
                        f" is {trial.cost.power_w:.1f} W, less than the blocking power of {blocking_power_w:g} W",
                        hint="correct the row, or give the measured power of a waiting GPU",
                    )

    def trial(self, kind: str, choice: StageChoice) -> Trial[StageChoice]:
        """Find time and energy of a kind at a choice."""
        trial = self._trials.get((kind, choice))
        if trial is not None:
            return trial
        stage, _, instruction = kind.partition(".")
        if kind not in self.options:
            raise InputError(
                f"{self.file}: stage {stage} has no row for {instruction!r}",
                hint="use the profile that the plan was made from, or one of the same pipeline",
            )
        raise InputError(
            f"{self.file}: stage {stage}, {instruction} has no row at {choice}",
            hint="the plan was made from another profile; measure that setting or plan again",
        )

    @property
    def default(self) -> Mapping[str, Trial[StageChoice]]:
        """For each kind what plans are compared with: the pipeline without tuning."""
        highest = {kind: max(trials, key=lambda trial: trial.choice.setting) for kind, trials in self.options.items()}
        return MappingProxyType(highest | dict(self.baseline))

    @property
    def baseline_words(self) -> str:
        return WHOLE if self.baseline else HIGHEST


def parse_stage_profile(text: str, *, file: str) -> StageProfile:
    """Parse a profile in CSV; an error names the row that is wrong."""
    options: dict[str, list[Trial[StageChoice]]] = {}
    lines: dict[tuple[str, StageChoice], int] = {}
    stages: set[int] = set()
    baseline: dict[str, Trial[StageChoice]] = {}
    gpus: set[str] = set()
    simulated, waiting_w = False, None
    for row in parse_csv(text, file=file, required=REQUIRED):
        stage = _stage(row)
        kind = kind_of(stage, row.text("instruction").lower())
        choice = StageChoice(row.setting(core="frequency"), _knobs(row))
        cost = Measurement(row.positive("time"), row.positive("energy"))
        gpus.add(row.text("gpu") if row.cells.get("gpu", "").strip() else "")
        waiting_w = row.positive_or_none("waiting_w") or waiting_w
        if _is_yes(row, "baseline"):
            if kind in baseline:
                raise row.wrong("baseline", f"stage {stage}, {row.text('instruction')} has a baseline already")
            baseline[kind] = Trial(choice, cost)
            continue
        if (kind, choice) in lines:
            first = lines[kind, choice]
            raise row.wrong("frequency", f"stage {stage}, {row.text('instruction')} at {choice} is on line {first} too")
        lines[kind, choice] = row.line
        stages.add(stage)
        simulated = _is_yes(row, "simulated") or simulated
        options.setdefault(kind, []).append(Trial(choice, cost))
    if not options:
        raise InputError(f"{file} has rows of a baseline alone", hint="a plan needs rows whose baseline is not yes")
    _check_stages(stages, file)
    frozen = MappingProxyType({kind: tuple(trials) for kind, trials in options.items()})
    gpu = gpus.pop() or None if len(gpus) == 1 else None
    known = {kind: trial for kind, trial in baseline.items() if kind in frozen}
    return StageProfile(file, frozen, MappingProxyType(lines), len(stages), simulated, gpu, waiting_w, known)


def stage_profile_text(profile: StageProfile) -> str:
    """Write a profile as CSV that `parse_stage_profile` reads, with a column for each knob."""
    trials = [(kind, trial) for kind, options in profile.options.items() for trial in options]
    compared = list(profile.baseline.items())
    wide = sorted((trial.choice.knobs for _, trial in trials), key=len, reverse=True)
    knobs = list(dict.fromkeys(name for own in wide for name, _ in own))
    knobs += sorted({name for _, trial in compared for name, _ in trial.choice.knobs} - set(knobs))
    extra = (("gpu",) if profile.gpu else ()) + (("baseline",) if compared else ())
    rows: list[tuple[str, ...]] = [(*REQUIRED[:3], *knobs, *REQUIRED[3:], "simulated", *extra)]
    for place, (kind, trial) in enumerate((*trials, *compared)):
        stage, _, instruction = kind.partition(".")
        own, setting = dict(trial.choice.knobs), trial.choice.setting
        cells = (stage, instruction, str(setting.sm_mhz), *(own.get(name, "") for name in knobs))
        cost = (repr(float(trial.cost.time_s)), repr(float(trial.cost.energy_j)))
        more = {"gpu": profile.gpu or "", "baseline": "no" if place < len(trials) else "yes"}
        rows.append((*cells, *cost, "yes" if profile.simulated else "no", *(more[name] for name in extra)))
    return csv_text(rows)


def _stage(row: Row) -> int:
    text = row.text("stage")
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise row.wrong("stage", f"{text!r} is not a number of a stage (0, 1, 2 …)")
    return int(text)


def _knobs(row: Row) -> tuple[tuple[str, str], ...]:
    cells = ((column, cell.strip()) for column, cell in row.cells.items() if column not in _OWN)
    return tuple((column, cell) for column, cell in cells if cell)


def _is_yes(row: Row, column: str) -> bool:
    cell = row.cells.get(column, "").strip().lower()
    if cell not in ("", "yes", "no", "true", "false"):
        raise row.wrong(column, f"{cell!r} is neither yes nor no")
    return cell in ("yes", "true")


def _check_stages(stages: Iterable[int], file: str) -> None:
    for expected, stage in enumerate(sorted(stages)):
        if stage != expected:
            raise InputError(
                f"{file}: there are rows for stage {stage} and none for stage {expected}",
                hint="stages are numbered 0, 1, 2 … without a gap",
            )
