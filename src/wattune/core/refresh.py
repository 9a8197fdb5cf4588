"""When a held counter moves, and what that means for the energy of a span.

An energy counter stands still between two refreshes of its sensor (100 ms on an A100), so the difference of two counts
is off by up to one refresh of power at each end. Whoever knows when the counter last moved can undo that.

Notation: τ period of the refresh, e an instant at which the counter moved, a(t) = (t − e) mod τ the age of a count
taken at t, P̄ mean power between the refreshes that the two counts saw. Then E ≈ ΔE + P̄·(a₁ − a₀).
All errors are half-widths of intervals meant to hold the truth in at least 95 of 100 cases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot
from typing import NamedTuple

from wattune.core.reading import Count

UNKNOWN_PERIOD_S = 0.1
"""Slowest refresh of a counter seen on a data-centre part (A100, H100); taken where a part's own is not known."""

READ_S = 5e-5
"""A driver call takes up to about this long, so a count may be this much older than its stamp says."""

RESOLUTION_J = 0.001
"""NVML counts millijoules."""


class Edge(NamedTuple):
    """A move of the counter that was watched: when, how far off that may be, and the counter before and after."""

    time_s: float
    error_s: float
    before_j: float
    after_j: float


@dataclass(frozen=True, slots=True)
class Refresh:
    """The period of a counter's refresh and one instant at which it moved, both with their errors."""

    period_s: float
    edge_s: float
    period_error_s: float = 0.0
    edge_error_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.period_s > 0:
            raise ValueError(f"a refresh period is positive, not {self.period_s}")

    def is_blind(self, time_s: float) -> bool:
        """Whether a count taken then may lie on either side of an edge, for all that is known."""
        error_s = self.age_error_s(time_s)
        return (time_s - self.edge_s + error_s) % self.period_s < 2 * error_s

    def age_s(self, time_s: float) -> float:
        """How long before `time_s` the counter last moved."""
        return (time_s - self.edge_s) % self.period_s

    def age_error_s(self, time_s: float) -> float:
        """How far off that age may be; a whole period where the phase is lost."""
        drift_s = abs(time_s - self.edge_s) / self.period_s * self.period_error_s
        return min(self.edge_error_s + drift_s + READ_S, self.period_s)

    def observed(self, edge_s: float, error_s: float) -> Refresh:
        """The refresh, knowing that the counter moved at `edge_s` too.

        Two edges many periods apart give the period far better than two neighbours, as long as there is no doubt how
        many periods lie between them. An edge where none could be means the refresh is not what we thought: the phase
        starts anew there and the period is trusted to a tenth only.
        """
        periods = round((edge_s - self.edge_s) / self.period_s)
        if periods == 0:
            return self._observed_soon(edge_s, error_s)
        slack_s = self.edge_error_s + error_s + abs(periods) * self.period_error_s
        if slack_s >= self.period_s / 2:
            return replace(self, edge_s=edge_s, edge_error_s=error_s)
        if abs(edge_s - (self.edge_s + periods * self.period_s)) > slack_s + 0.02 * self.period_s:
            return Refresh(self.period_s, edge_s, 0.1 * self.period_s, error_s)
        period_s = (edge_s - self.edge_s) / periods
        period_error_s = (self.edge_error_s + error_s) / abs(periods)
        if period_error_s > self.period_error_s:
            period_s, period_error_s = self.period_s, self.period_error_s
        return Refresh(period_s, edge_s, period_error_s, error_s)

    def _observed_soon(self, edge_s: float, error_s: float) -> Refresh:
        """The refresh after an edge less than half a period from the known one: the same edge, or a shorter period."""
        apart_s = abs(edge_s - self.edge_s)
        if apart_s > self.edge_error_s + error_s:
            return Refresh(apart_s, edge_s, apart_s / 2, error_s)
        return replace(self, edge_s=edge_s, edge_error_s=error_s) if error_s < self.edge_error_s else self


def spent_j(before: Count, after: Count, refresh: Refresh | None) -> tuple[float, float] | None:
    """Joules between two counts and their error; None where the counter did not move in between."""
    start_s, start_j = before
    end_s, end_j = after
    if end_j <= start_j or end_s <= start_s:
        return None
    if refresh is not None:
        held_s = refresh.period_s
        if 4 * refresh.edge_error_s < held_s:
            known = _in_phase(before, after, refresh)
            if known is not None:
                return known
    else:
        held_s = UNKNOWN_PERIOD_S
    # The refreshes seen are at least this many, so the power is at most this much.
    refreshes = int(0.999 * (end_s - start_s) / held_s) or 1
    return end_j - start_j, (end_j - start_j) / refreshes + RESOLUTION_J


def _in_phase(before: Count, after: Count, refresh: Refresh) -> tuple[float, float] | None:
    """The joules with both ages undone, and their error; None where the phase is not known well enough to help."""
    ages_s = refresh.age_s(before.time_s), refresh.age_s(after.time_s)
    age_errors_s = refresh.age_error_s(before.time_s), refresh.age_error_s(after.time_s)
    if max(age_errors_s) > refresh.period_s / 4:
        return None
    time_s = after.time_s - before.time_s
    seen_s = time_s - ages_s[1] + ages_s[0]
    # The counter has moved, so at least one refresh was seen, whatever the ages say.
    refreshes = max(round(seen_s / refresh.period_s), 1)
    power_w = (after.energy_j - before.energy_j) / (refreshes * refresh.period_s)
    # Power just outside the refreshes that were seen may differ from the mean; half of it covers ordinary training.
    doubt_s = hypot(*age_errors_s) + 0.5 * hypot(*ages_s)
    doubt_s += refresh.period_s * (refresh.is_blind(before.time_s) + refresh.is_blind(after.time_s))
    return power_w * time_s, power_w * doubt_s + RESOLUTION_J


def spent_until_j(before: Count, end_s: float, edge: Edge, refresh: Refresh) -> tuple[float, float] | None:
    """Joules from a count to `end_s`, shortly after which the counter was watched to move; None out of phase.

    What the counter shows after the edge is exact for the instant of the edge; what was spent between `end_s` and there
    is taken off at the power of that last refresh.
    """
    age_s, age_error_s = refresh.age_s(before.time_s), refresh.age_error_s(before.time_s)
    if not 0 <= edge.time_s - end_s <= refresh.period_s + edge.error_s or age_error_s > refresh.period_s / 4:
        return None
    refreshes = round((edge.time_s - before.time_s + age_s) / refresh.period_s)
    if refreshes < 2:
        return None
    power_w = (edge.after_j - before.energy_j) / (refreshes * refresh.period_s)
    last_w = (edge.after_j - edge.before_j) / refresh.period_s
    energy_j = power_w * (edge.time_s - before.time_s) - last_w * (edge.time_s - end_s)
    doubt_s = hypot(age_error_s, edge.error_s) + 0.5 * age_s + refresh.period_s * refresh.is_blind(before.time_s)
    return max(energy_j, 0.0), power_w * doubt_s + RESOLUTION_J
