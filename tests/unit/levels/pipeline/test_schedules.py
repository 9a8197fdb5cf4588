"""Schedules: known makespans, every piece once, and what waits for what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.core.errors import PlanError
from wattune.plans.schedules import (
    BACKWARD,
    EXTRAS,
    FORWARD,
    SCHEDULES,
    early_recomputation,
    gpipe,
    interleaved,
    one_forward_one_backward,
    with_extras,
    work_graph,
    zero_bubble,
)

SECONDS = {"forward": 1.0, "backward": 2.0, "recompute": 1.0, "weight": 1.0}


def makespan_s(order, seconds=SECONDS):
    graph = work_graph(order)
    return graph.makespan_s(tuple(seconds[operation.kind.split(".")[1]] for operation in graph.operations))


@pytest.mark.parametrize(
    ("order", "expected_s"),
    [
        # (M + S − 1)·(F + B)
        (gpipe(4, 8), 33),
        (one_forward_one_backward(4, 8), 33),
        # M·(F + B) + (S − 1)·(F + B)/V, chunks of half the work (Narayanan et al. 2021, §2.2)
        (interleaved(4, 8, chunks=2), 2 * (24 + 4.5)),
        # M·(F + R + B) + (S − 1)·(F + B): a recomputation does not wait for the gradient
        (early_recomputation(4, 8), 41),
    ],
)
def test_known_makespans(order, expected_s):
    assert makespan_s(order) == pytest.approx(expected_s)


def test_zero_bubble_saves_as_much_as_in_its_paper():
    # M·(F + B + W) + (S − 1)·(F + B − W) with F = B = W = 1 (Qi et al. 2024, table 2)
    assert makespan_s(zero_bubble(4, 8), {**SECONDS, "backward": 1.0}) == pytest.approx(24 + 3)


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 6), st.integers(1, 8))
def test_every_piece_runs_once_and_after_what_it_needs(name, stages, microbatches):
    order = SCHEDULES[name](stages, microbatches)
    pieces = [piece for rank in order for piece in rank]
    for instruction in (FORWARD, BACKWARD):
        ran = sorted((piece.stage, piece.microbatch) for piece in pieces if piece.instruction == instruction)
        assert ran == [(stage, microbatch) for stage in range(stages) for microbatch in range(microbatches)]
    graph = work_graph(order)
    place = graph.position
    for stage in range(stages):
        for microbatch in range(microbatches):
            forward, backward = f"forward {stage}.{microbatch}", f"backward {stage}.{microbatch}"
            assert place[forward] < place[backward]
            if stage:
                assert place[f"forward {stage - 1}.{microbatch}"] < place[forward]
                assert place[backward] < place[f"backward {stage - 1}.{microbatch}"]


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_interleaved_runs_every_chunk(stages, groups, chunks):
    order = interleaved(stages, groups * stages, chunks=chunks)
    pieces = [piece for rank in order for piece in rank]
    assert len(set(pieces)) == len(pieces) == 2 * stages * chunks * groups * stages
    work_graph(order)


def test_transfers_and_endings_are_waited_for():
    plain = one_forward_one_backward(2, 1)
    extended = with_extras(plain, EXTRAS)
    seconds = {**SECONDS, "send-forward": 0.1, "send-backward": 0.2, "all-reduce": 3.0, "optimizer": 4.0}
    # F0, send, F1, B1, send, B0, all-reduce, optimizer: the longest way through two stages and one microbatch
    assert makespan_s(extended, seconds) == pytest.approx(1 + 0.1 + 1 + 2 + 0.2 + 2 + 3 + 4)
    names = {operation.name for operation in work_graph(extended).operations}
    assert "send-forward 1.0" not in names  # the last stage sends no activations
    assert "send-backward 0.0" not in names
    assert with_extras(plain, ()) == plain


def test_schedules_that_do_not_fit_are_refused():
    with pytest.raises(PlanError, match="multiple of 4"):
        interleaved(4, 6, chunks=2)
    with pytest.raises(PlanError, match="at least one"):
        gpipe(0, 4)
    order = one_forward_one_backward(2, 2)
    with pytest.raises(PlanError, match="twice"):
        work_graph((order[0] + order[0][:1], order[1]))
    with pytest.raises(PlanError, match="waits for itself"):
        work_graph((order[0][::-1], order[1]))
