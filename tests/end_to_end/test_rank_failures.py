"""Real ranks over gloo in which a part of the tuning fails: training goes on, GPUs are restored, no rank hangs."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

from rank_failure_worker import Case

WORKER = Path(__file__).with_name("rank_failure_worker.py")
LIMIT_S = 800
DEFAULT = "driver default"
RUN_CASES = [("policy", 0, 160), ("device", 0, 160), ("device", 1, 160), ("refused", 0, 1), ("refused", 1, 1)]
RUN_STEPS = 240
PIPELINE_CASES = [
    ("policy", 0, 2),
    ("policy", 1, 2),
    ("device", 1, 2),
    ("policy", 1, 40),
    ("device", 0, 40),
    ("refused", 0, 1),
    ("refused", 1, 1),
]
PIPELINE_STEPS = 60
WHY = {
    "policy": "ZeroDivisionError: the policy is broken",
    "device": "OSError: the driver is gone",
    "refused": "any more",
}


def trained(start_torch, folder, level, failures, *, steps, timeout_s):
    """Train two ranks, one failure after another, and return for each the results of the ranks that remain."""
    cases = [Case(str(folder), level, *failure, steps, timeout_s) for failure in failures]
    file = folder / "cases.json"
    file.write_text(json.dumps([asdict(case) for case in cases]))
    outputs = [folder / f"{rank}.output" for rank in range(2)]
    running = [start_torch(WORKER, str(file), str(rank), output=output) for rank, output in enumerate(outputs)]
    remaining = [rank for rank in range(2) if not (cases[-1].loses_a_rank and rank == cases[-1].rank)]
    for rank in remaining:
        assert running[rank].wait(timeout=LIMIT_S) == 0, outputs[rank].read_text()
    for process in running:
        process.kill()
    by_rank = [json.loads((folder / f"{rank}.json").read_text()) for rank in remaining]
    results = list(zip(*by_rank, strict=True))
    for of_ranks in results:
        for result in of_ranks:
            assert result["tuned"] == result["plain"][: len(result["tuned"])]  # losses and gradients, bit for bit
            assert result["after"] == DEFAULT
            assert result["applied"] > 0
    return results


@pytest.fixture(scope="module")
def programs(start_torch, tmp_path_factory):
    """The results of a tuned program for each of its cases."""
    folder = tmp_path_factory.mktemp("programs")
    results = trained(start_torch, folder, "run", RUN_CASES, steps=RUN_STEPS, timeout_s=240.0)
    return dict(zip(RUN_CASES, results, strict=True))


@pytest.fixture(scope="module")
def pipelines(start_torch, tmp_path_factory):
    """The results of a tuned pipeline for each of its cases."""
    folder = tmp_path_factory.mktemp("pipelines")
    results = trained(start_torch, folder, "pipeline", PIPELINE_CASES, steps=PIPELINE_STEPS, timeout_s=240.0)
    return dict(zip(PIPELINE_CASES, results, strict=True))


def assert_all_disabled(results, steps):
    for result in results:
        assert result["disabled"] is not None
        assert result["in_block"] == DEFAULT
        assert len(result["tuned"]) == steps


@pytest.mark.parametrize("case", [case for case in RUN_CASES if case[0] != "refused"])
def test_what_fails_on_one_rank_disables_a_tuned_program_on_all(programs, case):
    failure, rank, _ = case
    results = programs[case]
    assert_all_disabled(results, RUN_STEPS)
    assert results[rank]["disabled"] == WHY[failure]
    assert "another rank" in results[1 - rank]["disabled"]
    assert any(WHY[failure] in event for event in results[rank]["events"])


@pytest.mark.parametrize("case", [case for case in RUN_CASES if case[0] == "refused"])
def test_clocks_that_a_rank_refuses_midway_are_dropped_by_all_ranks(programs, case):
    results, rank = programs[case], case[1]
    assert any("could not set" in event for event in results[0]["events"])
    assert any("this rank was refused a setting: no " in event for event in results[rank]["events"])
    assert results[0]["setting"] == results[1]["setting"]
    assert len(results[0]["tuned"]) == RUN_STEPS


@pytest.mark.parametrize("case", PIPELINE_CASES)
def test_what_fails_on_one_rank_disables_a_pipeline_on_all(pipelines, case):
    failure, rank, at = case
    results = pipelines[case]
    assert_all_disabled(results, PIPELINE_STEPS)
    assert WHY[failure] in results[rank]["disabled"]
    assert "another rank" in results[1 - rank]["disabled"]
    assert results[0]["states"] == results[1]["states"]
    assert at == 1 or results[0]["states"][at - 2] == ("PlanHeld" if at > 2 else "PlanProfiling")


@pytest.mark.parametrize("failure", ["killed", "hung"])
def test_a_rank_that_is_lost_disables_a_tuned_program_and_does_not_stop_it(start_torch, tmp_path, failure):
    ((result,),) = trained(start_torch, tmp_path, "run", [(failure, 1, 160)], steps=RUN_STEPS, timeout_s=20.0)
    assert_all_disabled([result], RUN_STEPS)
    assert "cannot be reached" in result["disabled"]


@pytest.mark.parametrize("rank", range(2))
def test_a_rank_that_is_killed_disables_a_recurring_job_and_does_not_stop_its_training(start_torch, tmp_path, rank):
    ((result,),) = trained(start_torch, tmp_path, "job", [("killed", rank, 110)], steps=200, timeout_s=20.0)
    assert_all_disabled([result], 200)
    assert "cannot be reached" in result["disabled"]
    assert result["goes_on"] == [True] * 9 + [False]
    assert result["why"] == "the target 0.9 is reached after 10 epochs"


def test_a_rank_that_is_killed_disables_its_pipeline(start_torch, tmp_path):
    ((result,),) = trained(start_torch, tmp_path, "pipeline", [("killed", 1, 2)], steps=PIPELINE_STEPS, timeout_s=60.0)
    assert "cannot be reached" in result["disabled"]
    assert result["in_block"] == DEFAULT
    assert len(result["tuned"]) == 2
