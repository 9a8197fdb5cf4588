"""Two streams: what holds whatever the phases, the collective and its launch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.physics.streams import StreamPhases, two_streams

times = st.floats(1e-5, 1e-2)
phase_lists = st.lists(st.tuples(times, st.floats(1.0, 3.0), st.floats(0.1, 1.0)), min_size=1, max_size=6)


def made(phases: list[tuple[float, float, float]]) -> StreamPhases:
    alone_s = np.array([[alone_s] for alone_s, _, _ in phases])
    slower = np.array([[slower] for _, slower, _ in phases])
    progress = np.array([[progress] for _, _, progress in phases])
    watts = np.full_like(alone_s, 100.0)
    return StreamPhases(alone_s, watts, alone_s * slower, watts, progress)


def run(phases: list[tuple[float, float, float]], comm_s: float, before_s: float, wait_after: int | None = None):
    wait = None if wait_after is None else np.array([float(wait_after)])
    return two_streams(made(phases), np.array([comm_s]), np.array([before_s]), wait)


@given(phases=phase_lists, comm_s=times)
def test_one_after_the_other_is_the_sum(phases, comm_s) -> None:
    cost = run(phases, comm_s, np.inf)
    assert cost.time_s[0] == pytest.approx(sum(alone_s for alone_s, _, _ in phases) + comm_s)
    assert cost.exposed_s[0] == pytest.approx(comm_s)


@given(phases=phase_lists, comm_s=times, share=st.floats(0.0, 1.0))
def test_never_faster_than_the_longer_nor_slower_than_both_slowed(phases, comm_s, share) -> None:
    total_s = sum(alone_s for alone_s, _, _ in phases)
    cost = run(phases, comm_s, share * total_s)
    slowest = sum(alone_s * slower for alone_s, slower, _ in phases)
    assert cost.time_s[0] >= max(total_s, comm_s) * (1 - 1e-9)
    assert cost.time_s[0] <= (slowest + comm_s) * (1 + 1e-9)
    assert 0 <= cost.exposed_s[0] <= comm_s * (1 + 1e-9)
    assert cost.comm_s[0] >= comm_s * (1 - 1e-9)


@given(phases=phase_lists, comm_s=times, share=st.floats(0.0, 1.0))
def test_phases_that_lose_nothing_make_overlap_never_slower_than_sequence(phases, comm_s, share) -> None:
    unslowed = [(alone_s, 1.0, progress) for alone_s, _, progress in phases]
    total_s = sum(alone_s for alone_s, _, _ in unslowed)
    assert run(unslowed, comm_s, share * total_s).time_s[0] <= (total_s + comm_s) * (1 + 1e-9)


@given(phases=phase_lists, comm_s=times, longer=st.floats(1.0, 4.0))
def test_a_longer_collective_never_shortens_the_whole(phases, comm_s, longer) -> None:
    assert run(phases, longer * comm_s, 0.0).time_s[0] >= run(phases, comm_s, 0.0).time_s[0] * (1 - 1e-9)


@given(phases=phase_lists, comm_s=times, shares=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)))
def test_a_later_launch_exposes_at_least_as_much(phases, comm_s, shares) -> None:
    total_s = sum(alone_s for alone_s, _, _ in phases)
    # With equal slowdown and progress everywhere it does not matter beside which phase the collective runs.
    alike = [(alone_s, phases[0][1], phases[0][2]) for alone_s, _, _ in phases]
    early, late = (run(alike, comm_s, share * total_s).exposed_s[0] for share in sorted(shares))
    assert late >= early - 1e-9 * comm_s


def test_computation_waits_for_the_collective_at_the_end_of_a_window() -> None:
    phases = [(1.0, 1.0, 1.0), (1.0, 1.0, 1.0)]
    assert run(phases, 1.5, 0.0).time_s[0] == pytest.approx(2.0)
    assert run(phases, 1.5, 0.0, wait_after=0).time_s[0] == pytest.approx(2.5)
    assert run(phases, 1.5, 0.0, wait_after=1).time_s[0] == pytest.approx(2.0)


def test_settings_and_clocks_broadcast() -> None:
    cost = two_streams(made([(1.0, 1.2, 0.6)]), np.array([0.5, 1.0, 2.0]), np.array([[0.0], [np.inf]]))
    assert cost.time_s.shape == (2, 3)
    assert np.all(cost.time_s[1] == [1.5, 2.0, 3.0])
