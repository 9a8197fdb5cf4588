"""Plan files: what those of all levels have in common.

A plan file is a JSON document with a frontier of plans over the operations of one graph. It begins with the head of its
level, which the graph follows from. Then come, once per kind of operation, the options that any plan uses with their
time and energy; and each plan as one option number per operation, rank by rank. A plan's own time and energy must
follow from its options. Everything is checked when a file is read, and errors name the part that is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from wattune.core.codec import JsonReader, to_json
from wattune.core.errors import InputError, PlanError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.plans.plan import Plan, StageChoice, WorkGraph

E = TypeVar("E")
V = TypeVar("V")

CLOSE = 1e-6
"""Largest relative difference between a predicted time or energy and what follows from the options of the same file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFormat:
    """A kind of plan file: its name and version, the words of its errors, how to make and how to use one."""

    name: str
    version: int
    noun: str
    order: str
    """What puts the operations in order."""
    operations: str
    make: str
    use: str


PIPELINE_PLAN = PlanFormat(
    name="wattune pipeline plan",
    version=1,
    noun="a pipeline plan",
    order="schedule",
    operations="instructions",
    make="make one with `wattune pipeline plan --out FILE`",
    use="show it with `wattune pipeline show`, play it with wattune.integrations.pipelining",
)
LAYER_PLAN = PlanFormat(
    name="wattune layer plan",
    version=1,
    noun="a layer plan",
    order="network",
    operations="layers",
    make="make one with `wattune layers plan --out FILE`",
    use="play it with `played_layers` of wattune.integrations.torch.layers",
)
FORMATS = (PIPELINE_PLAN, LAYER_PLAN)


_Option = tuple[StageChoice, float, float]
"""A choice with its time and energy. The same choice may cost more in one place of a plan than in another."""


@dataclass(frozen=True, slots=True)
class PlanSet:
    """The plans of a file: the default, the frontier, and the number of the plan that is to be played."""

    default: Trial[Plan]
    frontier: Frontier[Plan]
    chosen: int


@dataclass(frozen=True, slots=True)
class _OptionEntry:
    sm_mhz: int | None
    mem_mhz: int | None
    power_limit_w: float | None
    knobs: Mapping[str, str]
    time_s: float
    energy_j: float

    def __post_init__(self) -> None:
        for name in ("sm_mhz", "mem_mhz", "power_limit_w", "time_s", "energy_j"):
            if getattr(self, name) is not None:
                check_range(self, name, most=1e300)

    @classmethod
    def of(cls, option: _Option) -> _OptionEntry:
        choice, time_s, energy_j = option
        setting = choice.setting
        return cls(setting.sm_mhz, setting.mem_mhz, setting.power_limit_w, dict(choice.knobs), time_s, energy_j)

    @property
    def trial(self) -> Trial[StageChoice]:
        setting = Setting(self.sm_mhz, self.mem_mhz, self.power_limit_w)
        return Trial(StageChoice(setting, tuple(self.knobs.items())), Measurement(self.time_s, self.energy_j))


@dataclass(frozen=True, slots=True)
class _DefaultEntry:
    time_s: float
    energy_j: float
    ranks: tuple[tuple[int, ...], ...]
    """For each rank one option number per operation."""


@dataclass(frozen=True, slots=True)
class _PlanEntry(_DefaultEntry):
    bound_j: float


@dataclass(frozen=True, slots=True)
class _Plans:
    """The members of the JSON object after the head, in the order of the file."""

    options: Mapping[str, tuple[_OptionEntry, ...]]
    chosen: int
    default: _DefaultEntry
    frontier: tuple[_PlanEntry, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.chosen < len(self.frontier):
            raise ValueError(f"chosen is {self.chosen}, and frontier has {len(self.frontier)} plans")


def check_range(entry: object, name: str, *, most: float) -> None:
    """Raise ValueError unless a field is above 0 and at most `most`."""
    value = getattr(entry, name)
    if not 0 < value <= most:
        raise ValueError(f"{name} is {str(value)[:40]}, which is not above 0 and at most {most:g}")


def plan_file_text(form: PlanFormat, head: object, plans: PlanSet) -> str:
    """Write a plan file: one line per plan, so that two files can be compared by eye; `head` is a dataclass."""
    parts = {"format": form.name, "version": form.version} | to_json(head) | to_json(_entries_of(plans))
    return "{\n" + ",\n".join(f'  "{key}": {_laid_out(value)}' for key, value in parts.items()) + "\n}\n"


def _laid_out(value: Any) -> str:
    """Put the members of a list of lists, of a list of objects and of an object of lists on a line each."""
    match value:
        case [list() | dict(), *_]:
            return "[\n    " + ",\n    ".join(json.dumps(part, allow_nan=False) for part in value) + "\n  ]"
        case dict() if value and all(isinstance(own, list) for own in value.values()):
            lines = (f"{json.dumps(key)}: {json.dumps(own, allow_nan=False)}" for key, own in value.items())
            return "{\n    " + ",\n    ".join(lines) + "\n  }"
    return json.dumps(value, allow_nan=False)


def _entries_of(plans: PlanSet) -> _Plans:
    graph = plans.default.choice.graph
    options = _used_options((plans.default.choice, *(trial.choice for trial in plans.frontier)))
    numbers = {kind: {option: number for number, option in enumerate(own)} for kind, own in options.items()}

    def by_rank(plan: Plan) -> tuple[tuple[int, ...], ...]:
        chosen = _options_of(plan)
        return tuple(
            tuple(numbers[graph.operations[place].kind][chosen[place]] for place in rank) for rank in graph.by_rank
        )

    def entry(trial: Trial[Plan]) -> tuple[float, float, tuple[tuple[int, ...], ...]]:
        return trial.cost.time_s, trial.cost.energy_j, by_rank(trial.choice)

    return _Plans(
        {kind: tuple(map(_OptionEntry.of, own)) for kind, own in options.items()},
        plans.chosen,
        _DefaultEntry(*entry(plans.default)),
        tuple(_PlanEntry(*entry(trial), trial.choice.bound_j) for trial in plans.frontier),
    )


def _options_of(plan: Plan) -> tuple[_Option, ...]:
    return tuple(zip(plan.choices, plan.durations_s, plan.energies_j, strict=True))


def _used_options(plans: Sequence[Plan]) -> dict[str, list[_Option]]:
    """Return for each kind of operation the options that any plan uses: highest setting first, then the fastest."""
    found: dict[str, set[_Option]] = {}
    for plan in plans:
        for operation, option in zip(plan.graph.operations, _options_of(plan), strict=True):
            found.setdefault(operation.kind, set()).add(option)
    return {
        kind: sorted(sorted(own, key=lambda option: option[1:]), key=lambda option: option[0], reverse=True)
        for kind, own in sorted(found.items())
    }


def parse_plan_file(text: str, *, form: PlanFormat, file: str, build: Callable[[PlanReader], V]) -> V:
    """Parse the text of a plan file of this form, and return what `build` makes of it; PlanError where it is wrong."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{file} is not JSON: {error}", hint=form.make) from None
    _check_format(value, form, file)
    codec = JsonReader(source=file, hint="make the plan again, or correct that value", unknown_fields="skip")
    try:
        return build(PlanReader(form, value, codec))
    except InputError as error:
        raise PlanError(error.message, hint=error.hint) from None


def _check_format(value: object, form: PlanFormat, file: str) -> None:
    """Refuse a document that is no plan, a plan of another kind, or one of another version."""
    found = value if isinstance(value, dict) else {}
    name, version = found.get("format"), found.get("version")
    for other in FORMATS:
        if other.name == name != form.name:
            raise PlanError(f"{file} is {other.noun}, not {form.noun}", hint=other.use)
    if name != form.name:
        raise PlanError(f"{file} is not {form.noun}", hint=form.make)
    if version != form.version:
        raise PlanError(f"{file} is a plan of version {str(version)[:20]}, not {form.version}", hint=form.make)


@dataclass(frozen=True, slots=True)
class PlanReader:
    """Reads the parts of a plan file whose form and version are right."""

    form: PlanFormat
    value: Mapping[str, Any]
    codec: JsonReader

    def head(self, kind: type[V]) -> V:
        """Read the head of a level."""
        return self.codec.read(kind, self.value)

    def plans(self, graph: WorkGraph, timed: Callable[[Sequence[Trial[StageChoice]]], Trial[Plan]]) -> PlanSet:
        """Read the plans over a graph; `timed` makes a plan of options, whose cost must agree with the file."""
        entries = self.codec.read(_Plans, self.value)
        options = {kind: tuple(option.trial for option in own) for kind, own in entries.options.items()}

        def trial(entry: _DefaultEntry, where: str) -> Trial[Plan]:
            found = timed(self._chosen(entry.ranks, f"{where}.ranks", graph, options))
            for name, sum_ in (("time_s", found.cost.time_s), ("energy_j", found.cost.energy_j)):
                predicted = getattr(entry, name)
                if abs(predicted - sum_) > CLOSE * sum_:
                    self.codec.fail(f"{where}.{name}", f"is {predicted:g} where the options add up to {sum_:g}")
            return Trial(found.choice, Measurement(entry.time_s, entry.energy_j))

        trials = []
        for number, entry in enumerate(entries.frontier):
            found = trial(entry, f"frontier[{number}]")
            if not entry.bound_j >= 0:
                self.codec.fail(f"frontier[{number}].bound_j", f"is {entry.bound_j:g}, which is negative")
            trials.append(Trial(replace(found.choice, bound_j=entry.bound_j), found.cost))
        try:
            frontier = Frontier(tuple(trials))
        except ValueError as error:
            self.codec.fail("frontier", str(error))
        return PlanSet(trial(entries.default, "default"), frontier, entries.chosen)

    def _chosen(
        self,
        ranks: tuple[tuple[int, ...], ...],
        where: str,
        graph: WorkGraph,
        options: Mapping[str, tuple[Trial[StageChoice], ...]],
    ) -> list[Trial[StageChoice]]:
        """The option of every operation, in the graph's order."""
        found: dict[int, Trial[StageChoice]] = {}
        for path, number, place in self.entries(ranks, where, graph):
            kind = graph.operations[place].kind
            if not 0 <= number < len(options.get(kind, ())):
                self.codec.fail(path, f"{kind} has no option {number}")
            found[place] = options[kind][number]
        return [found[place] for place in range(len(graph.operations))]

    def entries(self, ranks: tuple[tuple[E, ...], ...], where: str, graph: WorkGraph) -> Iterator[tuple[str, E, int]]:
        """Yield every entry of the lists of all ranks: its path in the file, itself, and the place of its operation."""
        has = f"where the {self.form.order} has"
        if len(ranks) != len(graph.by_rank):
            self.codec.fail(where, f"{len(ranks)} ranks {has} {len(graph.by_rank)}")
        for rank, (entries, places) in enumerate(zip(ranks, graph.by_rank, strict=True)):
            if len(entries) != len(places):
                self.codec.fail(
                    f"{where}[{rank}]", f"{len(entries)} entries {has} {len(places)} {self.form.operations}"
                )
            for number, (entry, place) in enumerate(zip(entries, places, strict=True)):
                yield f"{where}[{rank}][{number}]", entry, place
