"""Real tensor-parallel ranks over gloo whose collectives overlap with computation, as planned."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

from overlap_worker import Case, Cases

WORKER = Path(__file__).with_name("overlap_worker.py")
LIMIT_S = 600
LAUNCHES = ("norm_0", "linear_0", "rope_0", "attn_0", "activation_0", "none")
PLANNED = [Case(launch=launch) for launch in LAUNCHES]
EXECUTED = [
    Case(activations="save", launch="rope_0"),
    Case(nanobatches=4, launch="linear_0"),
    Case(nanobatches=1),
    Case(dtype="float32", launch="attn_0"),
    Case(sequence_parallel=True),
    Case(whole="forward backward"),
    Case(whole="forward", launch="linear_0"),
    Case(whole="backward", launch="linear_0"),
]
TOLERANCE = {"float64": 1e-12, "float32": 2e-4}


def ran(start_torch, folder, *, ranks, cases, timeout_s=240.0, lost=()):
    """Run the cases on all ranks and return the results of each rank that remains."""
    file = Cases(str(folder), ranks, timeout_s, tuple(cases)).write()
    outputs = [folder / f"{rank}.output" for rank in range(ranks)]
    running = [start_torch(WORKER, str(file), str(rank), output=output) for rank, output in enumerate(outputs)]
    remaining = [rank for rank in range(ranks) if rank not in lost]
    for rank in remaining:
        assert running[rank].wait(timeout=LIMIT_S) == 0, outputs[rank].read_text()
    for process in running:
        process.kill()
        process.wait()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in remaining]


@pytest.mark.parametrize(("ranks", "cases"), [(2, PLANNED + EXECUTED), (4, [PLANNED[2], *EXECUTED])], ids=["2", "4"])
def test_ranks_compute_what_plain_execution_does_in_the_planned_order(start_torch, tmp_path, ranks, cases):
    by_rank = ran(start_torch, tmp_path, ranks=ranks, cases=cases)
    for case, *results in zip(cases, *by_rank, strict=True):
        for result in results:
            for quantity in ("output", "loss", "gradients"):
                assert result[quantity] < TOLERANCE[case.dtype], (case, quantity)
            assert result["log"] == results[0]["log"]
            assert result["exchange"] == 0.0
            if case.nanobatches > 1 and not (case.sequence_parallel or case.whole):
                assert result["collectives"] > 4 * case.nanobatches
                assert result["budgets"] == [3, 6]


@pytest.mark.parametrize(("failure", "ranks"), [("raises", 2), ("killed", 2), ("hung", 2), ("killed", 4)])
def test_a_rank_that_fails_is_an_error_on_the_others_and_no_hang(start_torch, tmp_path, failure, ranks):
    lost = () if failure == "raises" else (ranks - 1,)
    cases = [Case(launch="none", failure=failure)]
    results = ran(start_torch, tmp_path, ranks=ranks, cases=cases, timeout_s=4.0, lost=lost)
    for (found,), rank in zip(results, range(ranks), strict=False):
        if failure == "raises" and rank == ranks - 1:
            assert "this rank is broken" in found["error"]
        else:
            assert "another rank failed or hangs" in found["notes"][0]


def test_ranks_measure_partitions_together_and_continue_after_a_stop(start_torch, tmp_path):
    leader, follower = ran(start_torch, tmp_path, ranks=2, cases=[Case(measured=True)])
    trials = leader[0]["trials"]
    assert [trial["partition"] for trial in trials] == ["fwd_attn", "fwd_mlp", "bwd_mlp", "bwd_attn"]
    assert all(trial["simulated"] and trial["cost"]["energy_j"] > 0 for trial in trials)
    assert len((tmp_path / "trials.jsonl").read_text().splitlines()) == 1 + len(trials)
    assert (leader[0]["after"], follower[0]["after"]) == ("driver default", "driver default")


@pytest.mark.parametrize("failure", ["raises", "killed"])
def test_a_rank_that_fails_while_partitions_are_measured_is_an_error_on_the_others(start_torch, tmp_path, failure):
    lost = () if failure == "raises" else (1,)
    cases = [Case(measured=True, failure=failure)]
    ((first,), *_) = ran(start_torch, tmp_path, ranks=2, cases=cases, timeout_s=4.0, lost=lost)
    assert first["error"]
    assert len((tmp_path / "trials.jsonl").read_text().splitlines()) == 1 + 2
