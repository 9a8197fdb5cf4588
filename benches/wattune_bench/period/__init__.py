"""`wattune bench period`: the periods of power traces whose truth is known, beside simpler detectors and GPOEO's."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from pathlib import Path
from time import process_time

from wattune.core.errors import InputError
from wattune.signals.period import PeriodAnswer, Verdict, find_period
from wattune.signals.trace_text import busiest, parse_traces
from wattune_bench.datasets.find import data_files, text_of
from wattune_bench.period.cases import LOG, TraceCase, log_cases, simulated_cases
from wattune_bench.period.family import family_cases
from wattune_bench.period.peers import PEERS
from wattune_bench.period.recorded import (
    BEAT,
    BEAT_OF_FOUR,
    FINE_TUNING,
    HIDDEN_STEPS,
    IDLE,
    REAL_WINDOW,
    RECORDED,
    UNEVEN,
    WINDOW,
    recorded_cases,
    windows,
)
from wattune_bench.result import Bench, Goal, Row, at_least, at_most

_WITHIN = 0.05
WITHIN_REAL = 0.10
"""The clocks of public traces are good to 3 %, so they are judged by this as well."""
_MOST_MULTIPLE = 6


class AnswerOutcome(StrEnum):
    """The rating of an answer."""

    RIGHT = "right"
    NEAR = "near"
    """Off by 5 to 10 %, which the clock of a real trace may cause."""
    HARMONIC = "wrong harmonic"
    WRONG = "wrong"
    SILENT = "silent"
    UNKNOWN = "truth unknown"


@dataclass(frozen=True, slots=True)
class Judged:
    """A detector's answer to a case, and its outcome."""

    case: TraceCase
    detector: str
    answer: PeriodAnswer
    outcome: AnswerOutcome
    cpu_s: float | None = None
    """Processor time of the search, where it was measured."""

    @property
    def row(self) -> Mapping[str, object]:
        return {
            "file": self.case.file,
            "kind": self.case.kind,
            "gpu": self.case.gpu,
            "seed": self.case.seed,
            "simulated": self.case.simulated,
            "detector": self.detector,
            "verdict": self.answer.verdict.value,
            "period_s": self.answer.period_s,
            "error_s": self.answer.error_s,
            "cycles": [{"kind": own.kind.value, "period_s": own.period_s} for own in self.answer.cycles],
            "truth": self.case.verdict.value,
            "truth_s": _nearest_s(self.case, self.answer.period_s),
            "outcome": self.outcome.value,
            "spread": self.answer.spread,
            "cpu_s": self.cpu_s,
        }


def judge(case: TraceCase, answer: PeriodAnswer, *, detector: str) -> Judged:
    """Rate an answer."""
    return Judged(case, detector, answer, _outcome(case, answer))


def spans_s(case: TraceCase) -> dict[str, tuple[float, float]]:
    """Return the bounds of the period of each level."""
    return {**{name: (period_s, period_s) for name, period_s in case.periods_s.items()}, **case.spans_s}


def _outcome(case: TraceCase, answer: PeriodAnswer) -> AnswerOutcome:
    spans = tuple(spans_s(case).values())
    if case.verdict is not Verdict.PERIODIC:
        known = answer.period_s is not None and _least_off(answer.period_s, spans) <= _WITHIN
        return AnswerOutcome.RIGHT if known or answer.verdict is case.verdict else AnswerOutcome.WRONG
    if answer.period_s is None:
        return AnswerOutcome.SILENT
    if not spans:
        return AnswerOutcome.UNKNOWN
    off = _least_off(answer.period_s, spans)
    if case.level is not None and all(own.kind is not case.level for own in answer.cycles):
        return AnswerOutcome.WRONG
    if off <= _WITHIN:
        return AnswerOutcome.RIGHT
    factors = [factor for many in range(2, _MOST_MULTIPLE + 1) for factor in (many, 1 / many)]
    if any(_off(answer.period_s * factor, *span) <= _WITHIN for factor in factors for span in spans):
        return AnswerOutcome.HARMONIC
    return AnswerOutcome.NEAR if off <= WITHIN_REAL else AnswerOutcome.WRONG


def _least_off(period_s: float, spans: Sequence[tuple[float, float]]) -> float:
    """Return the distance from the nearest of some spans."""
    return min((_off(period_s, *span) for span in spans), default=inf)


def _off(period_s: float, low_s: float, high_s: float) -> float:
    """Return how far a period lies outside of a span, as a share of its nearer end."""
    return max(1 - period_s / low_s, period_s / high_s - 1, 0.0)


def _nearest_s(case: TraceCase, period_s: float | None) -> float | None:
    """Return the middle of the level nearest to an answer, or of the step."""
    levels = {name: (low_s + high_s) / 2 for name, (low_s, high_s) in spans_s(case).items()}
    if not levels:
        return None
    if period_s is None:
        return levels.get("step", min(levels.values()))
    return min(levels.values(), key=lambda level_s: abs(period_s / level_s - 1))


def share_percent(judged: Sequence[Judged], *outcomes: AnswerOutcome) -> float | None:
    """Return the share of answers with one of these outcomes; None without any answer."""
    return 100 * sum(own.outcome in outcomes for own in judged) / len(judged) if judged else None


OURS = "wattune"
OnKind = Callable[[str], None]

FIRST_DRAW = 10
"""The detector's constants were chosen on the draws before this one, which would flatter it."""

_NOTES = (
    "A period is right within 5 % of a level that the sensor can follow: a step, a micro-step (alone or with its share "
    "of the update) or a cycle of steps. A level is one where it takes two refreshes and two polls at least.",
    "Where a level is slow enough for the sensor but stands out to no test, not even to one that knows it, both "
    "not observable and that level are right.",
    "Peers answer on every trace; where they find no peak, and where GPOEO calls its answer unstable, they are silent. "
    "GPOEO's released code reports neither aperiodic nor not observable.",
    "Real traces: the clocks of the public ones are good to about 3 %, so within 10 % counts.",
)


def bench_period(
    data: Path | None, *, seeds: int = 1, first_draw: int = FIRST_DRAW, on_kind: OnKind | None = None
) -> Bench:
    """Run all detectors on simulated traces of every kind and on the real ones under `data`."""
    judged: list[Judged] = []
    kinds: set[str] = set()
    for case in _cases(data, range(first_draw, first_draw + seeds)):
        if on_kind and case.kind not in kinds:
            on_kind(case.kind)
        kinds.add(case.kind)
        judged += _judge(case)
    ours = [own for own in judged if own.detector == OURS]
    notes = [*_NOTES, *_compared(judged)]
    if data is None:
        notes.append("No folder of measurements was given, so no real trace was analysed: use --data DIR.")
    return Bench(
        bench="period",
        simulated=True,
        rows=tuple(own.row for own in judged),
        goals=_goals(ours),
        notes=tuple(notes),
    )


def by_kind(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Count the outcomes for each kind of trace and detector."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        counts.setdefault((row["kind"], row["detector"]), Counter())[row["outcome"]] += 1
    return tuple(
        {"kind": kind, "detector": detector, **{outcome.value: count[outcome.value] for outcome in AnswerOutcome}}
        for (kind, detector), count in counts.items()
    )


def _cases(data: Path | None, draws: range) -> Iterator[TraceCase]:
    # Read first, so that a missing folder is reported at once.
    real = () if data is None else tuple(real_cases(data))
    for seed in draws:
        yield from simulated_cases(seed=seed)
        yield from family_cases(seed=seed)
        yield from log_cases(seed=seed)
        yield from recorded_cases(seed=seed)
    yield from real
    for case in real:
        # A window shows steps, not cycles of them.
        if case.verdict is Verdict.PERIODIC and set(case.spans_s) == {"step"}:
            yield from windows(case)


TRUTHS = "truths.csv"
"""A file beside traces that has their truth: `file,verdict,period_s`, several rows for several levels."""


@dataclass(frozen=True, slots=True)
class KnownTruth:
    """The truth of a trace, as far as it is known."""

    verdict: Verdict
    spans_s: dict[str, tuple[float, float]] = field(default_factory=dict)


# From batch size over printed images per second (pengfei-zou/PowerBound), from the program's own log
# (grantwilkins/training_profile), and from the edges that the load noted (JimZeyuYang/GPU_Power_Benchmark).
_KNOWN = {
    "odpp_titanxp_resnet50_b64_sm1430": KnownTruth(Verdict.PERIODIC, {"step": (0.2847, 0.2847)}),
    "odpp_titanxp_vgg19_b64_sm670": KnownTruth(Verdict.PERIODIC, {"step": (1.006, 1.006)}),
    "titanx2_gpt_save50_b": KnownTruth(Verdict.PERIODIC, {"step": (0.205, 0.225), "cycle": (13.4, 13.4)}),
    "squarewave50_A100": KnownTruth(Verdict.NOT_OBSERVABLE),
}


def real_cases(folder: Path) -> Iterator[TraceCase]:
    """Read every power trace in a folder, with its truth where that is known."""
    for file in data_files(folder):
        if file.suffix != ".csv" or file.name == TRUTHS:
            continue
        try:
            traces = parse_traces(text_of(file), file=file.name)
        except InputError:
            continue  # A table of another kind: other benches read it.
        known, number = _written(file) or _KNOWN.get(file.stem), busiest(traces)
        yield TraceCase(
            file=f"{file.parent.name}/{file.name}",
            kind="real",
            samples=traces[number],
            others=traces[:number] + traces[number + 1 :],
            verdict=known.verdict if known else Verdict.PERIODIC,
            spans_s=known.spans_s if known else {},
            simulated=False,
        )


def _written(file: Path) -> KnownTruth | None:
    """Read the truth of a trace from the file beside it."""
    truths = file.parent / TRUTHS
    if not truths.is_file():
        return None
    rows = [row for row in csv.DictReader(text_of(truths).splitlines()) if row.get("file") == file.name]
    if not rows:
        return None
    try:
        spans_s = {
            f"level {number}": (float(row["period_s"]), float(row["period_s"]))
            for number, row in enumerate(rows)
            if row.get("period_s")
        }
        return KnownTruth(Verdict(rows[0].get("verdict") or Verdict.PERIODIC), spans_s)
    except ValueError as error:
        raise InputError(f"{truths}: {error}", hint="its columns are file,verdict,period_s") from None


def _judge(case: TraceCase) -> list[Judged]:
    begun_s = process_time()
    answer = find_period(case.samples, others=case.others)
    own = replace(judge(case, answer, detector=OURS), cpu_s=process_time() - begun_s)
    return [own, *(judge(case, _answer(find(case.samples)), detector=name) for name, find in PEERS.items())]


def _answer(period_s: float | None) -> PeriodAnswer:
    if period_s is None:
        return PeriodAnswer(verdict=Verdict.APERIODIC)
    return PeriodAnswer(verdict=Verdict.PERIODIC, period_s=period_s)


def _goals(ours: Sequence[Judged]) -> tuple[Goal, ...]:
    simulated, logs, real = _groups(ours)
    answered = _answered(simulated)
    none = [own for own in simulated if own.case.verdict is not Verdict.PERIODIC]
    there = [own for own in simulated if own.case.verdict is Verdict.PERIODIC]
    silent = share_percent(there, AnswerOutcome.SILENT)
    return (
        at_least("simulated: within 5 % when it answers", share_percent(answered, AnswerOutcome.RIGHT), 97, unit=" %"),
        at_most(
            "simulated: wrong harmonics when it answers", share_percent(answered, AnswerOutcome.HARMONIC), 1, unit=" %"
        ),
        at_least("simulated: right where nothing can be seen", share_percent(none, AnswerOutcome.RIGHT), 99, unit=" %"),
        at_least("simulated: answers where it could", None if silent is None else 100 - silent, 93, unit=" %"),
        at_least(
            "simulated logs: within 10 %", share_percent(logs, AnswerOutcome.RIGHT, AnswerOutcome.NEAR), 93, unit=" %"
        ),
        at_least(
            "real: within 10 %, or right that none",
            share_percent(real, AnswerOutcome.RIGHT, AnswerOutcome.NEAR),
            97,
            unit=" %",
        ),
        *_recorded_goals(ours),
    )


# Kinds of traces that users record, with the outcomes that are right and the share that has to have them.
_NEAR = (AnswerOutcome.RIGHT, AnswerOutcome.NEAR)
_RECORDED_GOALS = {
    IDLE: ("answered and within 10 %", _NEAR, 97),
    WINDOW: ("answered and within 10 %", _NEAR, 97),
    REAL_WINDOW: ("answered and within 10 %", _NEAR, 97),
    HIDDEN_STEPS: ("called a cycle, within 10 %", _NEAR, 97),
    BEAT: ("not observable", _NEAR, 99),
    BEAT_OF_FOUR: ("not observable", _NEAR, 99),
}
_MOST_CPU_S = 0.3


def _recorded_goals(ours: Sequence[Judged]) -> Iterator[Goal]:
    """Judge the traces that users record, and the processor time of every search."""
    for kind, (meaning, outcomes, least) in _RECORDED_GOALS.items():
        own = [one for one in ours if one.case.kind == kind]
        yield at_least(f"{kind}: {meaning}", share_percent(own, *outcomes), least, unit=" %")
    for kind in (UNEVEN, FINE_TUNING):
        uneven = [one for one in ours if one.case.kind == kind]
        # Where steps vary too much for the sensor, not to answer is right, and to call them aperiodic is not.
        good = [one for one in uneven if one.outcome in _NEAR or one.answer.verdict is Verdict.NOT_OBSERVABLE]
        share = 100 * len(good) / len(uneven) if uneven else None
        yield at_least(f"{kind}: mean within 10 %, or not observable", share, 97, unit=" %")
    harmonics = share_percent([one for one in ours if one.case.kind in _USERS], AnswerOutcome.HARMONIC)
    yield at_most("traces as users record them: wrong harmonics", harmonics, 1, unit=" %")
    spent_s = [one.cpu_s for one in ours if one.cpu_s is not None]
    yield at_most("processor time of one search, mean", sum(spent_s) / len(spent_s) if spent_s else None, _MOST_CPU_S)
    yield at_most("processor time of one search, longest", max(spent_s, default=None), _MOST_CPU_S)


_USERS = (*RECORDED, REAL_WINDOW)


def _groups(judged: Sequence[Judged]) -> tuple[list[Judged], list[Judged], list[Judged]]:
    """Return answers to simulated traces, to imitated logs, and to real traces whose truth is known."""
    judged = [own for own in judged if own.case.kind not in _USERS]
    simulated = [own for own in judged if own.case.simulated]
    logs = [own for own in simulated if own.case.kind.startswith(LOG)]
    plain = [own for own in simulated if not own.case.kind.startswith(LOG)]
    return plain, logs, [own for own in judged if not own.case.simulated and own.outcome is not AnswerOutcome.UNKNOWN]


def _answered(judged: Sequence[Judged]) -> list[Judged]:
    """Return the answers with a period to traces that have one."""
    return [
        own
        for own in judged
        if own.case.verdict is Verdict.PERIODIC and own.outcome not in (AnswerOutcome.SILENT, AnswerOutcome.UNKNOWN)
    ]


def _compared(judged: Sequence[Judged]) -> Iterator[str]:
    """Sum up the answers of each detector."""
    uneven = [one for one in judged if one.case.kind == UNEVEN and one.detector == OURS]
    answered_share = None if not uneven else 100 - (share_percent(uneven, AnswerOutcome.SILENT) or 0.0)
    yield f"{UNEVEN} (5 to 60 %): {_percent(answered_share)} of {len(uneven)} answered with a mean."
    for detector in (OURS, *PEERS):
        simulated, logs, real = _groups([one for one in judged if one.detector == detector])
        answered, there = _answered(simulated), [one for one in simulated if one.case.verdict is Verdict.PERIODIC]
        yield (
            f"{detector}: answers {_percent(100 * len(answered) / len(there) if there else None)} of simulated traces "
            f"that have a period, {_percent(share_percent(answered, AnswerOutcome.RIGHT))} of these right, "
            f"{_percent(share_percent(answered, AnswerOutcome.HARMONIC))} wrong harmonics; simulated logs within "
            f"10 %: {_percent(share_percent(logs, AnswerOutcome.RIGHT, AnswerOutcome.NEAR))} of {len(logs)}; "
            "real within 10 %: "
            f"{_percent(share_percent(real, AnswerOutcome.RIGHT, AnswerOutcome.NEAR))} of {len(real)}."
        )


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f} %"
