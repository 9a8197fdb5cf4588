"""Real ranks that measure kernels as `wattune kernels measure` asks them to: killed in the middle, resumed, planned."""

import json
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

from wattune.cli.main import run
from wattune.core.codec import to_json
from wattune.levels.overlap.trial_file import MeasureRequest

WORKER = Path(__file__).with_name("measuring_rank.py")
MODEL = "llama3.2-3b:layers=2,width=16,heads=4,key_heads=4,inner=24,vocabulary=100"
SIZES = ("--model", MODEL, "--tp", "2", "--microbatch-size", "4", "--sequence", "4")
BUDGET = 3
LIMIT_S = 600


def started(start_torch, folder, *, killed=0, asked=True):
    """Run both ranks to their end and return their exit codes."""
    request = MeasureRequest(
        layout=f"{MODEL} tp2 4x4",
        nanobatches=2,
        search="random",
        budget=BUDGET,
        seed=0,
        epsilon=0.005,
        passes=True,
        trials=str(folder / "trials.jsonl"),
        device="sim:a100-40gb",
    )
    environment = {"WATTUNE_KERNELS": json.dumps(to_json(request)) if asked else "", "WATTUNE_STATE": str(folder)}
    running = [
        start_torch(
            WORKER, str(folder), str(rank), "2", str(killed), output=folder / f"{rank}.out", environment=environment
        )
        for rank in range(2)
    ]
    return [process.wait(timeout=LIMIT_S) for process in running]


def records(folder):
    lines = (folder / "trials.jsonl").read_text().split("\n")
    assert lines[-1] == ""
    return [json.loads(line) for line in lines[1:-1]]


def test_killed_ranks_go_on_without_repeating_a_trial_and_are_planned_from(start_torch, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert started(start_torch, tmp_path, killed=8) == [-signal.SIGKILL] * 2
    before = (tmp_path / "trials.jsonl").read_bytes()
    # The first trial is made twice, to warm up; the eighth was not finished.
    assert len(records(tmp_path)) == 6
    (tmp_path / "trials.jsonl").write_bytes(before + b'{"partition": "fwd_')
    assert started(start_torch, tmp_path) == [0, 0], [(tmp_path / f"{rank}.out").read_text() for rank in range(2)]
    assert (tmp_path / "trials.jsonl").read_bytes().startswith(before)
    found = records(tmp_path)
    trials = [own for own in found if "partition" in own]
    keys = [(own["partition"], str(own["choice"])) for own in trials]
    assert len(keys) == len(set(keys))
    assert {own["partition"] for own in trials} == {"fwd_attn", "fwd_mlp", "bwd_mlp", "bwd_attn"}
    assert int((tmp_path / "0.prepared").read_text()) == len(trials) - 6 + 1
    passes = [own["choice"] for own in found if "partition" not in own]
    assert {own["instruction"] for own in passes} == {"forward", "backward"}
    assert any(own["settings"] for own in passes)
    assert any(not own["settings"] for own in passes)

    rest = ("--pp", "1", "--microbatches", "2", "--gpu", "a100-40gb", "--blocking-power", "40", "--out", "plan.json")
    assert run(["kernels", "plan", *SIZES, *rest, "--trials", "trials.jsonl", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["simulated"]
    assert (planned["measured_by_ranks"], planned["measured_on_gpus"]) == (True, False)
    assert all(own["time"] > 1 for own in planned["calibrations"].values())
    compared = planned["comparison"]
    assert compared["wattune"]["time_s"] <= 1.001 * compared["megatron"]["time_s"]


def test_ranks_that_are_not_asked_train(start_torch, tmp_path):
    assert started(start_torch, tmp_path, asked=False) == [0, 0]
    assert (tmp_path / "0.out").read_text() == "trained\n"
    assert not (tmp_path / "trials.jsonl").exists()
