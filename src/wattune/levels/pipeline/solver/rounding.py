"""Round relaxed durations to real options, without exceeding the planned time and with little slack left.

A relaxed plan lets an operation last anywhere between two options; a real plan picks one. Picking the faster option
everywhere keeps the planned time but wastes the difference. Three sweeps, each once through the graph, pass the slack
on: an operation may last until its latest finish in the relaxed plan, counted from its actual start. They differ in
what may use slack: every option, the corners of the hull, or only operations that the relaxed plan left between two
corners. Each result is swept once more with the slack that it left, and the best is taken: a sweep that leaves more
slack often ends up better. The last sweep alone is nearly as good, in a third of the time. All keep finish ≤ latest
finish, hence the time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattune.levels.pipeline.solver.relaxation import Floats, Options, successors
from wattune.plans.plan import WorkGraph

CLOSE_S = 1e-9
"""Times closer than this are equal."""

CORNER_S = 1e-7
"""A relaxed duration this close to a corner counts as the corner: the accuracy of the linear programme."""


@dataclass(frozen=True, slots=True, eq=False)
class Rounding:
    """A graph and its options as plain lists, which Python walks faster than arrays."""

    predecessors: tuple[tuple[int, ...], ...]
    successors: tuple[list[int], ...]
    times_s: tuple[list[float], ...]
    effective_j: tuple[list[float], ...]
    corners: tuple[tuple[int, ...], ...]
    corner_times_s: tuple[list[float], ...]

    @classmethod
    def of(cls, graph: WorkGraph, options: Mapping[str, Options[Any]]) -> Rounding:
        """Make the lists of a graph; operations of one kind share theirs."""
        lists = {
            kind: (own.times_s.tolist(), own.effective_j.tolist(), own.corners, own.hull_times_s.tolist())
            for kind, own in options.items()
        }
        times_s, effective_j, corners, corner_times_s = zip(
            *(lists[operation.kind] for operation in graph.operations), strict=True
        )
        return cls(graph.predecessors, successors(graph), times_s, effective_j, corners, corner_times_s)

    def rounded(self, durations_s: Floats, time_s: float) -> tuple[int, ...]:
        """Round to options (by their places) that end in time and spend little more than the relaxed plan."""
        wanted_s = durations_s.tolist()
        latest_s = self.latest_s(wanted_s, time_s)
        sweeps = (*self.sweeps(latest_s), self._sweep_undecided(wanted_s, latest_s))
        return min((self.reusing_slack(choice, time_s) for choice in sweeps), key=self.effective_of)

    def rounded_once(self, durations_s: Floats, time_s: float) -> tuple[int, ...]:
        """Round as `rounded` does with its last sweep alone."""
        wanted_s = durations_s.tolist()
        return self.reusing_slack(self._sweep_undecided(wanted_s, self.latest_s(wanted_s, time_s)), time_s)

    def sweeps(self, latest_s: list[float]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sweep over every option, and over the corners of the hull."""
        return self._sweep(self.times_s, latest_s), self._sweep_corners(latest_s)

    def at_corners(self, durations_s: Floats) -> tuple[int, ...]:
        """The places of the corners at, or next faster than, these durations."""
        faster = self._faster_corners(durations_s.tolist())
        return tuple(own[corner] for own, corner in zip(self.corners, faster, strict=True))

    def between_corners(self, durations_s: Floats) -> Iterator[tuple[int, int, float]]:
        """Each operation that lies between two corners: its place, the faster corner, and its share of the way."""
        wanted = durations_s.tolist()
        for place, (wanted_s, corner) in enumerate(zip(wanted, self._faster_corners(wanted), strict=True)):
            times_s = self.corner_times_s[place]
            if corner + 1 < len(times_s) and wanted_s - times_s[corner] > CORNER_S < times_s[corner + 1] - wanted_s:
                yield place, corner, (wanted_s - times_s[corner]) / (times_s[corner + 1] - times_s[corner])

    def reusing_slack(self, choice: tuple[int, ...], time_s: float) -> tuple[int, ...]:
        """Slow every operation down as far as the slack allows."""
        latest_s = self.latest_s([self.times_s[place][option] for place, option in enumerate(choice)], time_s)
        return self._sweep(self.times_s, latest_s)

    def effective_of(self, choice: tuple[int, ...]) -> float:
        return sum([own[option] for own, option in zip(self.effective_j, choice, strict=True)])

    def time_of(self, choice: tuple[int, ...]) -> float:
        """Compute the end of the last operation of a choice."""
        ends_s = [0.0] * len(choice)
        for place, before in enumerate(self.predecessors):
            start_s = 0.0
            for other in before:
                if ends_s[other] > start_s:
                    start_s = ends_s[other]
            ends_s[place] = start_s + self.times_s[place][choice[place]]
        return max(ends_s, default=0.0)

    def latest_s(self, durations_s: list[float], time_s: float) -> list[float]:
        """Compute the latest end of each operation for all to end in time."""
        latest_s = [time_s] * len(durations_s)
        for place in range(len(durations_s) - 1, -1, -1):
            for other in self.successors[place]:
                start_s = latest_s[other] - durations_s[other]
                if start_s < latest_s[place]:
                    latest_s[place] = start_s
        return latest_s

    def _sweep_corners(self, latest_s: list[float]) -> tuple[int, ...]:
        """Sweep over the corners of the hull, so that slack adds up until it suffices for the next corner."""
        chosen = self._sweep(self.corner_times_s, latest_s)
        return tuple([own[corner] for own, corner in zip(self.corners, chosen, strict=True)])

    def _sweep_undecided(self, wanted_s: list[float], latest_s: list[float]) -> tuple[int, ...]:
        """Sweep over operations between two corners only; those at a corner stay there and leave their slack."""
        faster = self._faster_corners(wanted_s)
        allowed_s = [
            times_s[corner : corner + 1 + (times_s[corner] < own_s - CORNER_S)]
            for times_s, corner, own_s in zip(self.corner_times_s, faster, wanted_s, strict=True)
        ]
        chosen = self._sweep(allowed_s, latest_s)
        return tuple([own[corner + one] for own, corner, one in zip(self.corners, faster, chosen, strict=True)])

    def _faster_corners(self, wanted_s: list[float]) -> list[int]:
        """The corner at, or next faster than, each duration."""
        return [
            max(bisect_right(times_s, own_s + CORNER_S) - 1, 0)
            for times_s, own_s in zip(self.corner_times_s, wanted_s, strict=True)
        ]

    def _sweep(self, allowed_s: Sequence[list[float]], latest_s: list[float]) -> tuple[int, ...]:
        """For each operation, the place of its slowest allowed time that still ends by its latest finish."""
        ends_s: list[float] = []
        choice: list[int] = []
        for before, times_s, end_s in zip(self.predecessors, allowed_s, latest_s, strict=True):
            start_s = 0.0
            for other in before:
                if ends_s[other] > start_s:
                    start_s = ends_s[other]
            found = bisect_right(times_s, end_s - start_s + CLOSE_S) - 1
            if found < 0:
                found = 0
            choice.append(found)
            ends_s.append(start_s + times_s[found])
        return tuple(choice)
