"""The plan file: a whole frontier of pipeline plans as one versioned JSON document, checked when it is read.

Each rank's instructions are listed once; the options that any plan uses are listed once per kind of instruction, with
the time and energy that the profile gave them; a plan is then, rank by rank, one option number per instruction.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wattune.core.errors import InputError, PlanError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.plan import Plan, StageChoice
from wattune.core.setting import Setting
from wattune.core.workgraph import WorkGraph
from wattune.levels.kernel.planned import PlannedPipeline, Source, timed
from wattune.levels.kernel.schedules import Order, Piece
from wattune.levels.kernel.shape import LISTED, PipelineShape


@dataclass(frozen=True, slots=True)
class DocumentField:
    """A value of a document and the words that lead to it."""

    where: str
    value: Any

    def wrong(self, problem: str) -> PlanError:
        """An error about this part."""
        return PlanError(f"{self.where}: {problem}", hint="make the plan anew, or mend that part of the file")

    def get(self, name: str) -> DocumentField:
        """The part of that name."""
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        if name not in self.value:
            raise self.wrong(f"has no {name!r}")
        return DocumentField(f"{self.where}, {name}", self.value[name])

    def items(self) -> list[DocumentField]:
        """The parts of a list, counted from 0."""
        if not isinstance(self.value, list):
            raise self.wrong("is not a list")
        return [DocumentField(f"{self.where} {number}", value) for number, value in enumerate(self.value)]

    def fields(self) -> dict[str, DocumentField]:
        """The parts of an object by name."""
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        return {name: DocumentField(f"{self.where}, {name}", value) for name, value in self.value.items()}

    def text(self) -> str:
        """The value, which is a text."""
        if not isinstance(self.value, str):
            raise self.wrong(f"{_shown(self.value)} is not a text")
        return self.value

    def truth(self) -> bool:
        """The value, which is true or false."""
        if not isinstance(self.value, bool):
            raise self.wrong(f"{_shown(self.value)} is neither true nor false")
        return self.value

    def number(self, *, least: float | None = None) -> float:
        """The value, which is a finite number above 0, or at least `least`."""
        value = self.value
        known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300
        if not known or (value <= 0 if least is None else value < least):
            wanted = "above 0" if least is None else f"from {least:g}"
            raise self.wrong(f"{_shown(value)} is not a finite number {wanted}")
        return float(value)

    def number_or_none(self) -> float | None:
        """The same, or None where it is null."""
        return None if self.value is None else self.number()

    def whole(self, *, most: int) -> int:
        """The value, which is a whole number from 1 to `most`."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not 1 <= self.value <= most:
            raise self.wrong(f"{_shown(self.value)} is not a whole number from 1 to {most}")
        return self.value

    def whole_or_none(self) -> int | None:
        """A clock, or None where it is null."""
        return None if self.value is None else self.whole(most=1_000_000)


def document_of(text: str, *, file: str) -> DocumentField:
    """The document that a JSON text holds."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(
            f"{file} is not JSON: {error}", hint="make one with `wattune pipeline plan --out FILE`"
        ) from None
    if not isinstance(value, dict):
        raise PlanError(f"{file} is not a JSON object", hint="make one with `wattune pipeline plan --out FILE`")
    return DocumentField(file, value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


FORMAT = "wattune pipeline plan"
VERSION = 1
CLOSE = 1e-6
"""Share by which a planned time or energy may differ from what the options of the same file add up to."""

ORIGINS = {
    "options": "the profile",
    "time_s": "the options, each instruction started as soon as the schedule lets it",
    "energy_j": "the options, and blocking_power_w while a rank waits",
    "bound_j": "the linear relaxation: no plan of this time spends less",
    "blocking_power_w": "given by whoever made the plan",
    "default": "every instruction at the highest setting of the profile",
}

_Kinds = dict[str, dict[StageChoice, Trial[StageChoice]]]


def plan_document(planned: PlannedPipeline) -> dict[str, Any]:
    """The frontier as a JSON document."""
    graph, places = planned.graph, planned.graph.by_rank
    kinds = _used(planned)
    numbers = {(kind, choice): number for kind, own in kinds.items() for number, choice in enumerate(own)}

    def plan(choices: tuple[StageChoice, ...], cost: Measurement) -> dict[str, Any]:
        ranks = [[numbers[graph.operations[place].kind, choices[place]] for place in rank] for rank in places]
        return {"time_s": cost.time_s, "energy_j": cost.energy_j, "ranks": ranks}

    return {
        "format": FORMAT,
        "version": VERSION,
        "simulated": planned.source.simulated,
        "made_by": planned.made_by,
        "pipeline": {
            "schedule": planned.shape.schedule,
            "stages": planned.shape.stages,
            "ranks": planned.shape.ranks,
            "microbatches": planned.shape.microbatches,
            "chunks": planned.shape.chunks,
            "extras": list(planned.shape.extras),
        },
        "blocking_power_w": planned.blocking_power_w,
        "profile": {"file": planned.source.file, "sha256": planned.source.sha256},
        "origins": ORIGINS,
        "instructions": [[graph.operations[place].name for place in rank] for rank in places],
        "options": {kind: [_option(trial) for trial in own.values()] for kind, own in kinds.items()},
        "chosen": planned.chosen,
        "default": plan(planned.default.choice.choices, planned.default.cost),
        "frontier": [
            {**plan(trial.choice.choices, trial.cost), "bound_j": trial.choice.bound_j} for trial in planned.frontier
        ],
    }


def plan_text(planned: PlannedPipeline) -> str:
    """The plan file: one line per plan and per rank's instructions, so that two files can be compared by eye."""
    document = plan_document(planned)
    lines = []
    for key, value in document.items():
        if key in ("instructions", "frontier"):
            inner = ",\n    ".join(json.dumps(part, allow_nan=False) for part in value)
            lines.append(f'  "{key}": [\n    {inner}\n  ]')
        elif key == "options":
            inner = ",\n    ".join(f"{json.dumps(kind)}: {json.dumps(own)}" for kind, own in value.items())
            lines.append(f'  "{key}": {{\n    {inner}\n  }}')
        else:
            lines.append(f'  "{key}": {json.dumps(value, allow_nan=False)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _used(planned: PlannedPipeline) -> _Kinds:
    """For each kind the options that the default or any plan uses, highest setting first."""
    found: _Kinds = {}
    for plan in (planned.default.choice, *(trial.choice for trial in planned.frontier)):
        parts = zip(planned.graph.operations, plan.choices, plan.durations_s, plan.energies_j, strict=True)
        for operation, choice, time_s, energy_j in parts:
            own = found.setdefault(operation.kind, {})
            if choice not in own:
                own[choice] = Trial(choice, Measurement(time_s, energy_j))
    return {kind: {choice: own[choice] for choice in sorted(own, reverse=True)} for kind, own in sorted(found.items())}


def _option(trial: Trial[StageChoice]) -> dict[str, Any]:
    setting = trial.choice.setting
    return {
        "sm_mhz": setting.sm_mhz,
        "mem_mhz": setting.mem_mhz,
        "power_limit_w": setting.power_limit_w,
        "knobs": dict(trial.choice.knobs),
        "time_s": trial.cost.time_s,
        "energy_j": trial.cost.energy_j,
    }


LARGEST = 400_000_000
"""Bytes; a larger file is refused."""


def read_text(path: Path) -> str:
    """Read a UTF-8 file; an error names the path."""
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path} is larger than {LARGEST} bytes", hint="is it the right file?")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="check the path and its permissions") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text in UTF-8", hint="is it the right file?") from None


def read_plan(path: Path) -> PlannedPipeline:
    """Read a plan file, as `wattune pipeline plan --out` writes it."""
    return parse_plan(read_text(path), file=str(path))


def parse_plan(text: str, *, file: str) -> PlannedPipeline:
    """The frontier that a plan file holds; an error names the part that is wrong."""
    document = document_of(text, file=file)
    if document.get("format").value != FORMAT:
        raise PlanError(f"{file} is not a pipeline plan", hint="make one with `wattune pipeline plan --out FILE`")
    if document.get("version").value != VERSION:
        raise PlanError(
            f"{file} is a plan of version {document.get('version').value}, not {VERSION}",
            hint="make it anew with this version of wattune",
        )
    shape = _shape(document.get("pipeline"), document.get("instructions"))
    graph = shape.graph
    _check_instructions(document.get("instructions"), graph)
    blocking_power_w = document.get("blocking_power_w").number(least=0.0)
    kinds = {
        name: tuple(_trial(part) for part in own.items()) for name, own in document.get("options").fields().items()
    }
    default = _timed(document.get("default"), graph, kinds, blocking_power_w=blocking_power_w)
    plans = [
        _bounded(part, _timed(part, graph, kinds, blocking_power_w=blocking_power_w))
        for part in document.get("frontier").items()
    ]
    try:
        frontier = Frontier(tuple(plans))
    except ValueError as error:
        raise PlanError(
            f"{file}, frontier: {error}", hint="its plans go from fast and dear to slow and cheap"
        ) from None
    if not plans:
        raise PlanError(f"{file}, frontier: there is no plan", hint="make one with `wattune pipeline plan`")
    chosen = document.get("chosen")
    if isinstance(chosen.value, bool) or chosen.value not in range(len(plans)):
        raise chosen.wrong(f"{chosen.value!r} is no plan of the frontier")
    profile = document.get("profile")
    source = Source(profile.get("file").text(), profile.get("sha256").text(), document.get("simulated").truth())
    return PlannedPipeline(
        shape, blocking_power_w, source, default, frontier, document.get("made_by").text(), int(chosen.value)
    )


def _shape(part: DocumentField, instructions: DocumentField) -> PipelineShape:
    schedule = part.get("schedule").text()
    shape = PipelineShape(
        schedule,
        part.get("stages").whole(most=100_000),
        part.get("microbatches").whole(most=100_000),
        part.get("chunks").whole(most=1_000),
        tuple(extra.text() for extra in part.get("extras").items()),
        _order(instructions) if schedule == LISTED else (),
    )
    if shape.stages * shape.microbatches > 10_000_000:
        raise part.wrong("a pipeline of more than 10 million forwards")
    if part.get("ranks").whole(most=100_000) != shape.ranks:
        raise part.get("ranks").wrong(f"is not {shape.ranks}, which follows from stages and chunks")
    return shape


def _order(part: DocumentField) -> Order:
    return tuple(tuple(_piece(name) for name in rank.items()) for rank in part.items())


def _piece(part: DocumentField) -> Piece:
    found = re.fullmatch(r"([a-z-]{1,40}) (\d{1,6})\.(\d{1,6})", part.text())
    if not found:
        raise part.wrong(f"{_shown(part.value)} is not an instruction such as 'forward 2.5'")
    return Piece(found[1], int(found[2]), int(found[3]))


def _check_instructions(part: DocumentField, graph: WorkGraph) -> None:
    """Nothing, where the file lists what its schedule runs."""
    places, ranks = graph.by_rank, part.items()
    if len(ranks) != len(places):
        raise part.wrong(f"{len(ranks)} ranks where the schedule has {len(places)}")
    for rank, own in zip(ranks, places, strict=True):
        names, expected = rank.items(), [graph.operations[place].name for place in own]
        if len(names) != len(expected):
            raise rank.wrong(f"{len(names)} instructions where the schedule has {len(expected)}")
        for name, right in zip(names, expected, strict=True):
            if name.value != right:
                raise name.wrong(f"is {name.value!r} where the schedule has {right!r}")


def _trial(part: DocumentField) -> Trial[StageChoice]:
    setting = Setting(
        part.get("sm_mhz").whole_or_none(),
        part.get("mem_mhz").whole_or_none(),
        part.get("power_limit_w").number_or_none(),
    )
    knobs = tuple((name, value.text()) for name, value in part.get("knobs").fields().items())
    return Trial(StageChoice(setting, knobs), Measurement(part.get("time_s").number(), part.get("energy_j").number()))


_Options = dict[str, tuple[Trial[StageChoice], ...]]


def _timed(part: DocumentField, graph: WorkGraph, kinds: _Options, *, blocking_power_w: float) -> Trial[Plan]:
    """One plan of the file, timed anew from the options of the file, which must agree with what it promises."""
    chosen = _chosen(part.get("ranks"), graph, kinds)
    found = timed(graph, chosen, blocking_power_w=blocking_power_w)
    for name, real in (("time_s", found.cost.time_s), ("energy_j", found.cost.energy_j)):
        predicted = part.get(name).number()
        if abs(predicted - real) > CLOSE * real:
            raise part.get(name).wrong(f"is {predicted:g} where the options add up to {real:g}")
    return Trial(found.choice, Measurement(part.get("time_s").number(), part.get("energy_j").number()))


def _bounded(part: DocumentField, found: Trial[Plan]) -> Trial[Plan]:
    return Trial(replace(found.choice, bound_j=part.get("bound_j").number(least=0.0)), found.cost)


def _chosen(part: DocumentField, graph: WorkGraph, kinds: _Options) -> list[Trial[StageChoice]]:
    found: dict[int, Trial[StageChoice]] = {}
    places, ranks = graph.by_rank, part.items()
    if len(ranks) != len(places):
        raise part.wrong(f"{len(ranks)} ranks where the pipeline has {len(places)}")
    for rank, own in zip(ranks, places, strict=True):
        numbers = rank.items()
        if len(numbers) != len(own):
            raise rank.wrong(f"{len(numbers)} choices for {len(own)} instructions")
        for number, place in zip(numbers, own, strict=True):
            options = kinds.get(graph.operations[place].kind, ())
            if isinstance(number.value, bool) or number.value not in range(len(options)):
                raise number.wrong(f"{number.value!r} is no option of {graph.operations[place].kind}")
            found[place] = options[int(number.value)]
    return [found[place] for place in range(len(graph.operations))]
