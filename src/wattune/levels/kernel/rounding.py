"""Round relaxed durations to real options, without exceeding the planned time and with little slack left.

A relaxed plan lets an operation last anywhere between two options; a real plan picks one. Picking the faster option
everywhere keeps the planned time but wastes the difference. Three sweeps, each once through the graph, pass the slack
on: an operation may last until its latest finish in the relaxed plan, counted from its actual start. They differ in
what may use slack: every option, the corners of the hull, or only operations that the relaxed plan left between two
corners. The best result is swept once more with the remaining slack. All keep finish ≤ latest finish, hence the time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wattune.core.workgraph import WorkGraph
from wattune.levels.kernel.relaxation import Floats, Options

CLOSE_S = 1e-9
"""Times closer than this are equal."""

CORNER_S = 1e-7
"""A relaxed duration this close to a corner counts as the corner: the accuracy of the linear programme."""


@dataclass(frozen=True, slots=True, eq=False)
class Rounding:
    """A graph and its options as plain lists, which Python walks faster than arrays."""

    predecessors: tuple[tuple[int, ...], ...]
    successors: tuple[tuple[int, ...], ...]
    times_s: tuple[list[float], ...]
    effective_j: tuple[list[float], ...]
    corners: tuple[tuple[int, ...], ...]
    corner_times_s: tuple[list[float], ...]

    @classmethod
    def of(cls, graph: WorkGraph, options: Mapping[str, Options[Any]]) -> Rounding:
        """Make the lists of a graph; operations of one kind share theirs."""
        after: list[list[int]] = [[] for _ in graph.operations]
        for index, others in enumerate(graph.predecessors):
            for other in others:
                after[other].append(index)
        lists = {
            kind: (own.times_s.tolist(), own.effective_j.tolist(), own.corners, own.hull_times_s.tolist())
            for kind, own in options.items()
        }
        times_s, effective_j, corners, corner_times_s = zip(
            *(lists[operation.kind] for operation in graph.operations), strict=True
        )
        return cls(
            graph.predecessors, tuple(tuple(others) for others in after), times_s, effective_j, corners, corner_times_s
        )

    def rounded(self, durations_s: Floats, time_s: float) -> tuple[int, ...]:
        """Round to options (by their places) that end in time and spend little more than the relaxed plan."""
        wanted_s = durations_s.tolist()
        latest_s = self.latest_s(wanted_s, time_s)
        best = min(self._sweeps(wanted_s, latest_s), key=self.effective_of)
        return self.reusing_slack(best, time_s)

    def at_corners(self, durations_s: Floats) -> tuple[int, ...]:
        """The places of the corners at, or next faster than, these durations."""
        return tuple(
            own[max(bisect_right(times_s, wanted_s + CORNER_S) - 1, 0)]
            for own, times_s, wanted_s in zip(self.corners, self.corner_times_s, durations_s.tolist(), strict=True)
        )

    def between_corners(self, durations_s: Floats) -> Iterator[tuple[int, int, float]]:
        """Each operation that lies between two corners: its place, the faster corner, and its share of the way."""
        for place, wanted_s in enumerate(durations_s.tolist()):
            times_s = self.corner_times_s[place]
            corner = max(bisect_right(times_s, wanted_s + CORNER_S) - 1, 0)
            if corner + 1 < len(times_s) and wanted_s - times_s[corner] > CORNER_S < times_s[corner + 1] - wanted_s:
                yield place, corner, (wanted_s - times_s[corner]) / (times_s[corner + 1] - times_s[corner])

    def reusing_slack(self, choice: tuple[int, ...], time_s: float) -> tuple[int, ...]:
        """Slow every operation down as far as the slack allows."""
        latest_s = self.latest_s([self.times_s[place][option] for place, option in enumerate(choice)], time_s)
        return self._sweep_options(latest_s)

    def effective_of(self, choice: tuple[int, ...]) -> float:
        return sum([own[option] for own, option in zip(self.effective_j, choice, strict=True)])

    def time_of(self, choice: tuple[int, ...]) -> float:
        """When the last operation of a choice ends."""
        ends_s = [0.0] * len(choice)
        for place, before in enumerate(self.predecessors):
            start_s = 0.0
            for other in before:
                if ends_s[other] > start_s:
                    start_s = ends_s[other]
            ends_s[place] = start_s + self.times_s[place][choice[place]]
        return max(ends_s, default=0.0)

    def latest_s(self, durations_s: list[float], time_s: float) -> list[float]:
        """When each operation must have ended for all to end in time."""
        latest_s = [time_s] * len(durations_s)
        for place in range(len(durations_s) - 1, -1, -1):
            for other in self.successors[place]:
                start_s = latest_s[other] - durations_s[other]
                if start_s < latest_s[place]:
                    latest_s[place] = start_s
        return latest_s

    def _sweeps(self, wanted_s: list[float], latest_s: list[float]) -> Iterator[tuple[int, ...]]:
        yield self._sweep_options(latest_s)
        yield self._sweep_corners(latest_s)
        yield self._sweep_undecided(wanted_s, latest_s)

    def _sweep_options(self, latest_s: list[float]) -> tuple[int, ...]:
        """Every operation at its slowest option that still ends by its latest finish."""
        ends_s, choice = [0.0] * len(latest_s), [0] * len(latest_s)
        for place, before in enumerate(self.predecessors):
            start_s = 0.0
            for other in before:
                if ends_s[other] > start_s:
                    start_s = ends_s[other]
            times_s = self.times_s[place]
            option = bisect_right(times_s, latest_s[place] - start_s + CLOSE_S) - 1
            if option < 0:
                option = 0
            choice[place], ends_s[place] = option, start_s + times_s[option]
        return tuple(choice)

    def _sweep_corners(self, latest_s: list[float]) -> tuple[int, ...]:
        """The same among the corners of the hull, so that slack adds up until it suffices for the next corner."""
        ends_s, choice = [0.0] * len(latest_s), [0] * len(latest_s)
        for place, before in enumerate(self.predecessors):
            start_s = 0.0
            for other in before:
                if ends_s[other] > start_s:
                    start_s = ends_s[other]
            times_s = self.corner_times_s[place]
            corner = max(bisect_right(times_s, latest_s[place] - start_s + CLOSE_S) - 1, 0)
            choice[place], ends_s[place] = self.corners[place][corner], start_s + times_s[corner]
        return tuple(choice)

    def _sweep_undecided(self, wanted_s: list[float], latest_s: list[float]) -> tuple[int, ...]:
        """The same for operations between two corners only; those at a corner stay there and leave their slack."""
        ends_s, choice = [0.0] * len(latest_s), [0] * len(latest_s)
        for place, before in enumerate(self.predecessors):
            start_s = 0.0
            for other in before:
                if ends_s[other] > start_s:
                    start_s = ends_s[other]
            times_s = self.corner_times_s[place]
            corner = max(bisect_right(times_s, wanted_s[place] + CORNER_S) - 1, 0)
            slower = corner + 1
            undecided = slower < len(times_s) and times_s[corner] < wanted_s[place] - CORNER_S
            if undecided and times_s[slower] <= latest_s[place] - start_s + CLOSE_S:
                corner = slower
            choice[place], ends_s[place] = self.corners[place][corner], start_s + times_s[corner]
        return tuple(choice)
