"""The refresh of an energy counter, and the energy of a span between two counts.

An energy counter stands still between two refreshes of its sensor (100 ms on an A100), so the difference of two counts
is off by up to one refresh of power at each end. Knowing when the counter last moved allows correcting that.

Notation: τ period of the refresh, e an instant at which the counter moved, a(t) = (t − e) mod τ the age of a count
taken at t, P̄ mean power between the refreshes before the two counts. Then E ≈ ΔE + P̄·(a₁ − a₀).
All errors are half-widths of 95 % intervals.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot
from typing import NamedTuple

from wattune.core.reading import Count

UNKNOWN_PERIOD_S = 0.1
"""Slowest counter refresh of data-centre GPUs (A100, H100); assumed where a GPU's own is not known."""

READ_S = 5e-5
"""A driver call takes up to about this long, so a count may be this much older than its time stamp."""

RESOLUTION_J = 0.001
"""NVML counts millijoules."""


class Edge(NamedTuple):
    """An observed move of the counter: its time with the error of that, and the counter before and after."""

    time_s: float
    error_s: float
    before_j: float
    after_j: float


@dataclass(frozen=True, slots=True)
class Refresh:
    """The refresh period of a counter and one time at which it moved, both with their errors."""

    period_s: float
    edge_s: float
    period_error_s: float = 0.0
    edge_error_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.period_s > 0:
            raise ValueError(f"a refresh period is positive, not {self.period_s}")

    def is_blind(self, time_s: float) -> bool:
        """Return whether a count taken at this time may lie on either side of an edge."""
        error_s = self.age_error_s(time_s)
        return (time_s - self.edge_s + error_s) % self.period_s < 2 * error_s

    def age_s(self, time_s: float) -> float:
        """Return how long before `time_s` the counter last moved."""
        return (time_s - self.edge_s) % self.period_s

    def age_error_s(self, time_s: float) -> float:
        """Return the error of that age; a whole period where the phase is lost."""
        drift_s = abs(time_s - self.edge_s) / self.period_s * self.period_error_s
        return min(self.edge_error_s + drift_s + READ_S, self.period_s)

    def is_known(self, time_s: float) -> bool:
        """Return whether the phase is known at this time."""
        return self.age_error_s(time_s) < self.period_s / 4

    def still_s(self, time_s: float) -> float:
        """Return how long a counter that was read at this time stands still; 0 where that is not known."""
        if not self.is_known(time_s) or self.is_blind(time_s):
            return 0.0
        return max(self.period_s - self.age_s(time_s) - self.age_error_s(time_s), 0.0)

    def observed(self, edge_s: float, error_s: float) -> Refresh:
        """Return the refresh after one more observed edge.

        Two edges many periods apart give a more exact period than two neighbours, as long as the number of periods
        between them is certain. An edge at an impossible time means that the refresh was wrong: the phase starts again
        there and the period gets an error of a tenth.
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
        """Return the refresh after an edge near the known one: the same edge, or a shorter period."""
        distance_s = abs(edge_s - self.edge_s)
        if distance_s > self.edge_error_s + error_s:
            return Refresh(distance_s, edge_s, distance_s / 2, error_s)
        return replace(self, edge_s=edge_s, edge_error_s=error_s) if error_s < self.edge_error_s else self


def spent_j(before: Count, after: Count, refresh: Refresh | None) -> tuple[float, float] | None:
    """Return the joules between two counts and their error; None if the counter did not move in between."""
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
    # At least this many refreshes lie between the counts, so the power is at most this much.
    refreshes = int(0.999 * (end_s - start_s) / held_s) or 1
    return end_j - start_j, (end_j - start_j) / refreshes + RESOLUTION_J


def _in_phase(before: Count, after: Count, refresh: Refresh) -> tuple[float, float] | None:
    """Return the joules corrected for both ages, and their error; None if the phase is not known well enough."""
    (start_s, start_j), (end_s, end_j), period_s = before, after, refresh.period_s
    start_error_s, end_error_s = refresh.age_error_s(start_s), refresh.age_error_s(end_s)
    if max(start_error_s, end_error_s) > period_s / 4:
        return None
    start_age_s, end_age_s = (start_s - refresh.edge_s) % period_s, (end_s - refresh.edge_s) % period_s
    time_s = end_s - start_s
    # The counter has moved, so there was at least one refresh, whatever the ages are.
    refreshes = max(round((time_s - end_age_s + start_age_s) / period_s), 1)
    power_w = (end_j - start_j) / (refreshes * period_s)
    # Power just outside these refreshes may differ from the mean; half of it covers ordinary training.
    uncertain_s = hypot(start_error_s, end_error_s) + 0.5 * hypot(start_age_s, end_age_s)
    # A count close to an edge may lie on either side of it.
    for age_s, error_s in ((start_age_s, start_error_s), (end_age_s, end_error_s)):
        if age_s < error_s or age_s >= period_s - error_s:
            uncertain_s += period_s
    return power_w * time_s, power_w * uncertain_s + RESOLUTION_J


def spent_until_j(before: Count, end_s: float, edge: Edge, refresh: Refresh) -> tuple[float, float] | None:
    """Return the joules from a count to `end_s`, shortly after which an edge was observed, with their error.

    None if the phase is lost. The counter after the edge is exact for the time of the edge; what was spent between
    `end_s` and there is subtracted at the power of that last refresh.
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
    uncertain_s = hypot(age_error_s, edge.error_s) + 0.5 * age_s + refresh.period_s * refresh.is_blind(before.time_s)
    return max(energy_j, 0.0), power_w * uncertain_s + RESOLUTION_J
