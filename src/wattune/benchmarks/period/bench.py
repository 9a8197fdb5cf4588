"""`wattune bench period`: what repeats in power traces whose truth is known, beside simpler detectors and GPOEO's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from wattune.benchmarks.period.cases import Case, simulated_cases
from wattune.benchmarks.period.family import family_cases
from wattune.benchmarks.period.judgement import Judged, Outcome, judge, share_percent
from wattune.benchmarks.period.logs import KIND as LOG
from wattune.benchmarks.period.logs import log_cases
from wattune.benchmarks.period.peers import PEERS
from wattune.benchmarks.period.real import real_cases
from wattune.benchmarks.period.stream import stream_cost
from wattune.benchmarks.result import Bench, Goal, Row, at_least, at_most
from wattune.signals.period import PeriodAnswer, Verdict, find_period

OURS = "wattune"
OnKind = Callable[[str], None]

# The detector's constants were chosen on the draws before this one, which would flatter it.
_FIRST_DRAW = 10

_NOTES = (
    "A period is right within 5 % of a level that the sensor can follow: a step, a micro-step (alone or with its share "
    "of the update) or a cycle of steps. A level is one where it takes two refreshes and two polls at least.",
    "Where a level is slow enough for the sensor but stands out to no test, not even to one that is told of it, both "
    "not observable and that level are right.",
    "Peers answer on every trace; where they find no peak, and where GPOEO calls its answer unstable, they are silent. "
    "GPOEO's released code says neither aperiodic nor not observable.",
    "Real traces: the clocks of the public ones are good to about 3 %, so within 10 % counts.",
)


def bench_period(data: Path | None, *, seeds: int = 1, on_kind: OnKind | None = None) -> Bench:
    """All detectors on simulated traces of every kind and on the real ones under `data`."""
    judged: list[Judged] = []
    kinds: set[str] = set()
    streams: list[Case] = []
    for case in _cases(data, seeds):
        if on_kind and case.kind not in kinds:
            on_kind(case.kind)
        if case.kind not in kinds:
            streams.append(case)
        kinds.add(case.kind)
        judged += _judge(case)
    ours = [own for own in judged if own.detector == OURS]
    notes = [*_NOTES, *_compared(judged)]
    if data is None:
        notes.append("No folder of measurements was given, so no real trace was looked at: use --data DIR.")
    return Bench(
        bench="period",
        simulated=True,
        rows=tuple(own.row for own in judged),
        goals=(*_goals(ours), *_stream_goals(streams)),
        notes=tuple(notes),
    )


def by_kind(rows: Sequence[Row]) -> tuple[Row, ...]:
    """For people: a row per kind of trace and detector, with how often each outcome came."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        counts.setdefault((row["kind"], row["detector"]), Counter())[row["outcome"]] += 1
    return tuple(
        {"kind": kind, "detector": detector, **{outcome.value: count[outcome.value] for outcome in Outcome}}
        for (kind, detector), count in counts.items()
    )


def _cases(data: Path | None, seeds: int) -> Iterator[Case]:
    # Read first: a folder that is not there is said at once.
    real = () if data is None else tuple(real_cases(data))
    for seed in range(_FIRST_DRAW, _FIRST_DRAW + seeds):
        yield from simulated_cases(seed=seed)
        yield from family_cases(seed=seed)
        yield from log_cases(seed=seed)
    yield from real


def _judge(case: Case) -> list[Judged]:
    own = judge(case, find_period(case.samples), detector=OURS)
    return [own, *(judge(case, _answer(find(case.samples)), detector=name) for name, find in PEERS.items())]


def _answer(period_s: float | None) -> PeriodAnswer:
    """What a peer says, in our words."""
    if period_s is None:
        return PeriodAnswer(verdict=Verdict.APERIODIC)
    return PeriodAnswer(verdict=Verdict.PERIODIC, period_s=period_s)


def _goals(ours: Sequence[Judged]) -> tuple[Goal, ...]:
    simulated, logs, real = _groups(ours)
    answered = _answered(simulated)
    none = [own for own in simulated if own.case.verdict is not Verdict.PERIODIC]
    there = [own for own in simulated if own.case.verdict is Verdict.PERIODIC]
    silent = share_percent(there, Outcome.SILENT)
    return (
        at_least("simulated: within 5 % when it answers", share_percent(answered, Outcome.RIGHT), 97, unit=" %"),
        at_most("simulated: wrong harmonics when it answers", share_percent(answered, Outcome.HARMONIC), 1, unit=" %"),
        at_least("simulated: right where nothing can be seen", share_percent(none, Outcome.RIGHT), 99, unit=" %"),
        at_least("simulated: answers where it could", None if silent is None else 100 - silent, 93, unit=" %"),
        at_least("simulated logs: within 10 %", share_percent(logs, Outcome.RIGHT, Outcome.NEAR), 93, unit=" %"),
        at_least(
            "real: within 10 %, or right that none", share_percent(real, Outcome.RIGHT, Outcome.NEAR), 97, unit=" %"
        ),
    )


def _groups(judged: Sequence[Judged]) -> tuple[list[Judged], list[Judged], list[Judged]]:
    """Answers to simulated traces, to look-alikes of logs, and to real traces whose truth is known."""
    simulated = [own for own in judged if own.case.simulated]
    logs = [own for own in simulated if own.case.kind.startswith(LOG)]
    plain = [own for own in simulated if not own.case.kind.startswith(LOG)]
    return plain, logs, [own for own in judged if not own.case.simulated and own.outcome is not Outcome.UNKNOWN]


def _answered(judged: Sequence[Judged]) -> list[Judged]:
    """Answers with a period to traces that have one."""
    return [
        own
        for own in judged
        if own.case.verdict is Verdict.PERIODIC and own.outcome not in (Outcome.SILENT, Outcome.UNKNOWN)
    ]


def _stream_goals(cases: Sequence[Case]) -> tuple[Goal, ...]:
    """The cost of a stream, over a trace of every kind."""
    costs = [stream_cost(case) for case in cases]
    mean_ms = sum(cost.mean_ms for cost in costs) / len(costs) if costs else None
    return (
        at_most("stream: mean time of an update", mean_ms, 5, unit=" ms"),
        at_most("stream: longest update", max((cost.longest_ms for cost in costs), default=None), 5, unit=" ms"),
    )


def _compared(judged: Sequence[Judged]) -> Iterator[str]:
    """For each detector, what its answers come to."""
    for detector in (OURS, *PEERS):
        simulated, logs, real = _groups([one for one in judged if one.detector == detector])
        answered, there = _answered(simulated), [one for one in simulated if one.case.verdict is Verdict.PERIODIC]
        yield (
            f"{detector}: answers {_percent(100 * len(answered) / len(there) if there else None)} of simulated traces "
            f"that have a period, {_percent(share_percent(answered, Outcome.RIGHT))} of these right, "
            f"{_percent(share_percent(answered, Outcome.HARMONIC))} wrong harmonics; simulated logs within "
            f"10 %: {_percent(share_percent(logs, Outcome.RIGHT, Outcome.NEAR))} of {len(logs)}; real within 10 %: "
            f"{_percent(share_percent(real, Outcome.RIGHT, Outcome.NEAR))} of {len(real)}."
        )


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f} %"
