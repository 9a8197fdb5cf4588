"""Convert frontiers to and from the schedule files of Perseus and Kareus."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from wattune.core.errors import PlanError
from wattune.core.frontier import Frontier, Trial
from wattune.levels.pipeline.planned import PlannedPipeline, Source, default_trial
from wattune.levels.pipeline.planner import options_by_kind, relaxation_of
from wattune.levels.pipeline.schedule_files import (
    FORMATS,
    Instruction,
    Stages,
    check_config,
    freqs_text,
    join,
    parse_freqs,
    parse_scheds,
    scheds_text,
)
from wattune.levels.pipeline.solver.plan_cost import timed
from wattune.plans.plan import Plan, StageChoice, WorkGraph
from wattune.plans.schedules import EXTRAS, FORWARD
from wattune.plans.shape import PipelineShape, shape_of
from wattune.plans.stage_profile import KNOB_ORDER, PLAIN, StageProfile

FREQS_NAME = re.compile(r"freqs_pipeline_(\d{1,9})\.py(\.txt)?")


def export_files(planned: PlannedPipeline, form: str) -> dict[str, str]:
    """Write the files of a frontier, by name, one or two per plan; the fastest plan has the largest number."""
    if form not in FORMATS:
        raise PlanError(f"there is no format {form!r}", hint=f"use one of {', '.join(FORMATS)}")
    files: dict[str, str] = {}
    for number, trial in enumerate(reversed(planned.frontier.trials)):
        stages = _instructions(trial.choice)
        comments = _comments(planned, trial, number, form)
        files[f"freqs_pipeline_{number:05d}.py"] = freqs_text(stages, comments, names=form != "perseus-sosp24")
        _check_configs(stages, form)
        if form == "kareus":
            files[f"scheds_pipeline_{number:05d}.py"] = scheds_text(stages, comments)
    return files


def _instructions(plan: Plan) -> list[list[Instruction]]:
    """The instructions of each rank without transfers and endings, which schedule files cannot hold."""
    operations = plan.graph.operations
    ranks = [[(operations[place].name, plan.choices[place]) for place in rank] for rank in plan.graph.by_rank]
    return [
        [_instruction(name, choice) for name, choice in rank if name.partition(" ")[0] not in EXTRAS] for rank in ranks
    ]


def _instruction(name: str, choice: StageChoice) -> Instruction:
    setting = choice.setting
    if setting.mem_mhz is not None or setting.power_limit_w is not None:
        raise PlanError(
            f"{name!r} runs at {setting}, and schedule files hold core clocks alone",
            hint="keep such plans as JSON",
        )
    if PLAIN in choice.knobs:
        raise PlanError(
            f"{name!r} runs without nanobatches, which schedule files cannot hold",
            hint="plan again with `wattune kernels plan --no-plain`",
        )
    return Instruction(name.partition(" ")[0], setting.sm_mhz, tuple(value for _, value in choice.knobs))


def _comments(planned: PlannedPipeline, trial: Trial[Plan], number: int, form: str) -> list[str]:
    """The figures in the wording of each format's own writer, then ours."""
    waiting_j = planned.waiting_w * trial.cost.time_s
    effective_j = trial.cost.energy_j - waiting_j
    ours = f"{planned.shape}: {trial.cost.time_s!r} s, {trial.cost.energy_j!r} J, bound {trial.choice.bound_j!r} J"
    label = " (simulated)" if planned.source.simulated else ""
    if form == "perseus-sosp24":
        return [f"Iteration {number}: refined cost {trial.cost.energy_j!r}", f"wattune{label}: {ours}"]
    return [
        f"Iteration {number} total cost: {effective_j!r}",
        f"Iteration {number} total cost with P2P: {effective_j + waiting_j!r}",
        f"wattune{label}: {ours}",
    ]


def _check_configs(stages: Sequence[Sequence[Instruction]], form: str) -> None:
    """Refuse instructions that need more than the files of a format hold, or lack what they must hold."""
    for instruction in (instruction for stage in stages for instruction in stage):
        if form == "kareus" and not instruction.configs:
            raise PlanError(
                f"{instruction.name!r} has no configurations of its communication",
                hint="a kareus schedule needs a profile with such columns; use --format perseus",
            )
        if form != "kareus" and instruction.configs:
            raise PlanError(
                f"{instruction.name!r} needs {instruction.configs[0]!r}, and {form} files hold clocks alone",
                hint="use --format kareus",
            )
        for config in instruction.configs:
            check_config(config, where=f"the profile, {instruction.name}")


def import_files(
    texts: Mapping[str, str], profile: StageProfile, *, source: Source, blocking_power_w: float, schedule: str
) -> PlannedPipeline:
    """Make a frontier of the plans in these files, by name, each timed again from the profile.

    `schedule` is for files that do not name their instructions. Plans that another plan beats are left out.
    """
    numbers = {match[1]: name for name in texts if (match := FREQS_NAME.fullmatch(name))}
    if not numbers:
        raise PlanError("there is no freqs_pipeline_NNNNN.py", hint="name such a file or the folder that holds some")
    parsed = [_parse(texts, name) for _, name in sorted(numbers.items())]
    shape = _shape(parsed[0][1], profile, schedule)
    graph = shape.graph
    plans = [
        timed(graph, _trials(stages, graph, profile, name), blocking_power_w=blocking_power_w)
        for name, stages in parsed
    ]
    frontier = Frontier.of(plans)
    return PlannedPipeline(
        shape,
        blocking_power_w,
        source,
        default_trial(graph, profile, blocking_power_w=blocking_power_w),
        Frontier(tuple(_bounded(frontier, graph, profile, blocking_power_w))),
        f"imported from {len(parsed)} schedule file{'s' if len(parsed) > 1 else ''}",
        baseline=profile.baseline_words,
    )


def _parse(texts: Mapping[str, str], name: str) -> tuple[str, Stages]:
    freqs = parse_freqs(texts[name], file=name)
    scheds = name.replace("freqs", "scheds", 1)
    if scheds in texts:
        freqs = join(freqs, parse_scheds(texts[scheds], file=scheds), file=scheds)
    return name, freqs


def _shape(stages: Stages, profile: StageProfile, schedule: str) -> PipelineShape:
    names = [[instruction.name for instruction in stage] for stage in stages]
    if len(names) != profile.stages:
        raise PlanError(
            f"the schedule is for {len(names)} stages and {profile.file} has {profile.stages}",
            hint="import with the profile of the same pipeline",
        )
    known = [[name for name in stage if name is not None] for stage in names]
    if known == names:
        shape = shape_of(known)
        return profile.shape(shape.schedule, shape.microbatches)
    per_microbatch = len(PipelineShape(schedule, profile.stages, 1).order[0])
    return profile.shape(schedule, max(len(names[0]) // per_microbatch, 1))


def _trials(stages: Stages, graph: WorkGraph, profile: StageProfile, name: str) -> list[Trial[StageChoice]]:
    found: dict[int, Trial[StageChoice]] = {}
    ranks, default = graph.by_rank, profile.default
    if [len(stage) for stage in stages] != [len(rank) for rank in ranks]:
        raise PlanError(
            f"{name} is for another pipeline: its stages run {_lengths(stages)} instructions",
            hint=f"the pipeline's stages run {_lengths(ranks)}",
        )
    for stage, (own, places) in enumerate(zip(stages, ranks, strict=True)):
        for entry, (instruction, place) in enumerate(zip(own, places, strict=True)):
            operation = graph.operations[place]
            expected = operation.name.partition(" ")[0]
            if instruction.name not in (None, expected):
                raise PlanError(
                    f"{name}, stage {stage}, entry {entry}: {instruction.name!r} where the schedule runs {expected!r}",
                    hint="all files of a folder are for one pipeline",
                )
            unset = instruction.sm_mhz is None
            found[place] = default[operation.kind] if unset else _trial(instruction, operation.kind, profile)
    return [found[place] for place in range(len(graph.operations))]


def _lengths(stages: Iterable[Sequence[object]]) -> str:
    return ", ".join(sorted({str(len(stage)) for stage in stages}))


def _trial(instruction: Instruction, kind: str, profile: StageProfile) -> Trial[StageChoice]:
    """Find the row of the profile for an entry; of several, the cheapest.

    Where the profile has clocks alone, the entry keeps its configurations and has the cost of its clock.
    """
    fitting = [trial for trial in profile.options[kind] if trial.choice.setting.sm_mhz == instruction.sm_mhz]
    if instruction.configs:
        configs = instruction.configs
        exact = [t for t in fitting if tuple(value for _, value in t.choice.knobs) == configs]
        fitting = exact or [t for t in fitting if not t.choice.knobs]
    if not fitting:
        stage, _, name = kind.partition(".")
        configs_words = f" with {', '.join(instruction.configs)}" if instruction.configs else ""
        raise PlanError(
            f"{profile.file}: stage {stage}, {name} has no row at {instruction.sm_mhz} MHz{configs_words}",
            hint="import with the profile that the files were made from",
        )
    found = min(fitting, key=lambda trial: trial.cost.energy_j)
    if instruction.configs and not found.choice.knobs:
        names = _knob_names(kind.partition(".")[2], len(instruction.configs))
        knobs = tuple(zip(names, instruction.configs, strict=True))
        return Trial(replace(found.choice, knobs=knobs), found.cost)
    return found


def _knob_names(instruction: str, count: int) -> tuple[str, ...]:
    """Return the partitions of an entry of Kareus, by their number: tensor or context parallel, recomputed or not."""
    forward = [name for name in KNOB_ORDER if name.startswith("fwd_")]
    backward = [name for name in KNOB_ORDER if name.startswith("bwd_")]
    for segments in ({"attn", "mlp"}, {"qkv", "ao", "a", "o", "mlp"}):
        first, second = ([n for n in names if n.split("_")[1] in segments] for names in (forward, backward))
        for names in (first,) if instruction == FORWARD else (second, first + second):
            if len(names) == count:
                return tuple(names)
    raise PlanError(
        f"{count} configurations are of no {instruction} pass that is known",
        hint="import with the profile that the files were made from",
    )


def _bounded(
    frontier: Frontier[Plan], graph: WorkGraph, profile: StageProfile, blocking_power_w: float
) -> Iterable[Trial[Plan]]:
    """Add the bound of its time to each plan; the solver goes from slow to fast."""
    options = options_by_kind(graph, profile.options, blocking_power_w)
    waiting_w = len(graph.by_rank) * blocking_power_w
    relaxation = relaxation_of(graph, options)
    bounded = []
    for trial in reversed(frontier.trials):
        # Slightly longer, so that rounding errors do not make the fastest plan infeasible.
        relaxed = relaxation.at(trial.cost.time_s * (1 + 1e-9))
        bound_j = relaxed.effective_j + waiting_w * trial.cost.time_s
        bounded.append(Trial(replace(trial.choice, bound_j=bound_j), trial.cost))
    return reversed(bounded)
