"""Whether an answer about a trace is right, and what the answers of a detector come to.

Right is a period within 5 % of a level that the sensor can follow: a step, or, where the program has them, a micro-step
(alone, or with its share of the update) or a cycle of steps. A wrong harmonic is one within 5 % of a whole multiple or
fraction of such a level. Saying nothing where something could be seen is not wrong, and is counted by itself. Where
a level is slow enough for the sensor, but does not stand out even to a test that is told of it, "not observable" is
right, and so is that level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from wattune.benchmarks.period.cases import Case
from wattune.signals.period import PeriodAnswer, Verdict

_WITHIN = 0.05
WITHIN_REAL = 0.10
"""The clocks of public traces are good to 3 %, so they are judged by this as well."""
_MOST_MULTIPLE = 6


class Outcome(StrEnum):
    """What an answer is worth."""

    RIGHT = "right"
    NEAR = "near"
    """Off by 5 to 10 %, which a real trace's clock may be answerable for."""
    HARMONIC = "wrong harmonic"
    WRONG = "wrong"
    SILENT = "silent"
    UNKNOWN = "truth unknown"


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer, by whom, and what it is worth."""

    case: Case
    detector: str
    answer: PeriodAnswer
    outcome: Outcome

    @property
    def row(self) -> Mapping[str, object]:
        """As the bench prints it."""
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
        }


def judge(case: Case, answer: PeriodAnswer, *, detector: str) -> Judged:
    """The answer with its outcome."""
    return Judged(case, detector, answer, _outcome(case, answer))


def spans_s(case: Case) -> dict[str, tuple[float, float]]:
    """Between what each level lies."""
    return {**{name: (period_s, period_s) for name, period_s in case.periods_s.items()}, **case.spans_s}


def _outcome(case: Case, answer: PeriodAnswer) -> Outcome:
    spans = tuple(spans_s(case).values())
    if case.verdict is not Verdict.PERIODIC:
        known = answer.period_s is not None and _least_off(answer.period_s, spans) <= _WITHIN
        return Outcome.RIGHT if known or answer.verdict is case.verdict else Outcome.WRONG
    if answer.period_s is None:
        return Outcome.SILENT
    if not spans:
        return Outcome.UNKNOWN
    off = _least_off(answer.period_s, spans)
    if off <= _WITHIN:
        return Outcome.RIGHT
    factors = [factor for many in range(2, _MOST_MULTIPLE + 1) for factor in (many, 1 / many)]
    if any(_off(answer.period_s * factor, *span) <= _WITHIN for factor in factors for span in spans):
        return Outcome.HARMONIC
    return Outcome.NEAR if off <= WITHIN_REAL else Outcome.WRONG


def _least_off(period_s: float, spans: Sequence[tuple[float, float]]) -> float:
    """How far from the nearest of some spans."""
    return min((_off(period_s, *span) for span in spans), default=inf)


def _off(period_s: float, low_s: float, high_s: float) -> float:
    """How far outside of a span, as a share of its nearer end."""
    return max(1 - period_s / low_s, period_s / high_s - 1, 0.0)


def _nearest_s(case: Case, period_s: float | None) -> float | None:
    """The level nearest to an answer, or the step; the middle of where it may lie."""
    levels = {name: (low_s + high_s) / 2 for name, (low_s, high_s) in spans_s(case).items()}
    if not levels:
        return None
    if period_s is None:
        return levels.get("step", min(levels.values()))
    return min(levels.values(), key=lambda level_s: abs(period_s / level_s - 1))


def share_percent(judged: Sequence[Judged], *outcomes: Outcome) -> float | None:
    """The share of answers with one of these outcomes; None without any."""
    return 100 * sum(own.outcome in outcomes for own in judged) / len(judged) if judged else None
