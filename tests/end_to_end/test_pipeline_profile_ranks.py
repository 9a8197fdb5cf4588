"""The example of a pipeline that trains over gloo: profiled by the command, planned, and played."""

import json
import re
import sys
from pathlib import Path

import pytest

from wattune.cli.main import run
from wattune.levels.pipeline.plan_file import read_plan

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

import two_ranks

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline" / "train.py"
RANKS = (sys.executable, two_ranks.__file__, str(EXAMPLE))


@pytest.fixture
def command(tmp_path, monkeypatch, capfd):
    """A function that runs a command of wattune in a folder of its own, and returns what it printed."""
    monkeypatch.chdir(tmp_path)
    for variable, place in (("STORE", "h.db"), ("STATE", "state"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))

    def begin(*words):
        code = run(list(words))
        printed = capfd.readouterr()
        assert code == 0, printed.err
        return printed

    return begin


def test_the_example_is_profiled_planned_and_played(command, start_torch, tmp_path):
    printed = command("pipeline", "profile", "--out", "stage_profile.csv", "--clocks", "2", "--json", "--", *RANKS)
    found = json.loads(printed.out)
    assert found["simulated"]
    assert (found["stages"], found["pipelines"], found["clocks_mhz"]) == (2, 1, [1380, 832])
    assert found["instructions"] == ["0.backward", "0.forward", "1.backward", "1.forward"]
    assert found["waiting_w"] > 0
    assert "2 of 2 clocks measured" in printed.err
    options = ("--microbatches", "4", "--blocking-power", "20", "--gpu", "v100", "--out", "plan.json")
    command("pipeline", "plan", "--profile", "stage_profile.csv", *options)
    assert read_plan(Path("plan.json")).source.simulated
    port = str(two_ranks.free_port())
    outputs = [tmp_path / f"{rank}.output" for rank in range(two_ranks.RANKS)]
    ranks = [
        start_torch(EXAMPLE, "plan.json", output=output, environment=two_ranks.environment_of(rank, port))
        for rank, output in enumerate(outputs)
    ]
    for rank, (process, output) in enumerate(zip(ranks, outputs, strict=True)):
        assert process.wait() == 0, output.read_text()
        found = re.search(rf"rank {rank}: ([\d.]+) J per iteration \(simulated\), disabled: None", output.read_text())
        assert found
        assert float(found[1]) > 0
