"""`wattune pipeline profile` with a program of one rank and a schedule of its own, on a simulated GPU."""

import json
import sys

import pytest

from wattune.cli.main import run
from wattune.plans.stage_profile import parse_stage_profile

PROGRAM = """
import sys, time
from wattune.api import open_gpu
from wattune.control.ranks import Alone
from wattune.core.workload import Phase, Pipe, Workload
from wattune.integrations.pipeline_steps import profiled_steps
from wattune.plans.shape import PipelineShape

iterations, ending = int(sys.argv[1]), sys.argv[2]

def work(name, flops):
    return Workload(name=name, phases=(Phase(name=name, flops=flops, pipe=Pipe.FP16, dram_bytes=1e9),))

shape = PipelineShape("1f1b", stages=1, microbatches=4)
with open_gpu("sim:v100") as gpu, profiled_steps(shape, gpu, rank=0, ranks=Alone()) as hooks:
    forward = hooks.forward(lambda: gpu.run(work("forward", 3e11)))
    backward = hooks.backward(lambda: gpu.run(work("backward", 6e11)))

    def schedule():
        for piece in shape.order[0]:
            {"forward": forward, "backward": backward}[piece.instruction]()

    train = hooks.iteration(schedule)
    if ending == "refuse":
        def refuse(setting):
            raise RuntimeError("not permitted")
        gpu.apply = refuse
    for _ in range(iterations):
        train()
        if hooks.listener.has_profile and ending != "go on":
            break
    while ending == "go on":
        time.sleep(0.05)
print("trained")
sys.exit(int(ending) if ending.isdigit() else 0)
"""


@pytest.fixture
def profile(tmp_path, monkeypatch, capfd):
    """A function that runs the command in a folder of its own; it returns the code, the output and what was said."""
    monkeypatch.chdir(tmp_path)
    for variable, place in (("STORE", "h.db"), ("STATE", "state"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    (tmp_path / "program.py").write_text(PROGRAM)

    def begin(*options, iterations=4000, ending="0"):
        program = (sys.executable, "program.py", str(iterations), ending)
        code = run(["pipeline", "profile", "--out", "p.csv", *options, "--", *program])
        return code, *capfd.readouterr()

    return begin


def clocks_in(file):
    profile = parse_stage_profile(file.read_text(), file="p.csv")
    return sorted({trial.choice.setting.sm_mhz for trials in profile.options.values() for trial in trials})


def test_a_profile_is_measured_collected_and_ready_to_plan_with(profile, tmp_path, capfd):
    code, out, said = profile("--clocks", "3", "--json")
    assert code == 0
    found = json.loads(out)
    assert found.pop("trust")["gpu"] == "Tesla V100-PCIE-32GB"
    assert found == {
        "simulated": True,
        "gpu": "Tesla V100-PCIE-32GB (simulated)",
        "stages": 1,
        "pipelines": 1,
        "instructions": ["0.backward", "0.forward"],
        "clocks_mhz": [1380, 1102, 832],
        "waiting_w": None,
        "doubts": [],
        "out": "p.csv",
    }
    assert "trained" in said  # the program's own output
    assert "3 of 3 clocks measured" in said
    read = parse_stage_profile((tmp_path / "p.csv").read_text(), file="p.csv")
    assert read.simulated
    for trials in read.options.values():
        fast, _, slow = sorted(trials, key=lambda trial: -trial.choice.setting.sm_mhz)
        assert fast.cost.time_s < slow.cost.time_s
        assert fast.cost.power_w > slow.cost.power_w
    code, out, said = profile("--clocks", "3")
    assert code == 0
    assert "3 of them already in p.csv" in said
    assert "1 stage at 3 clocks of Tesla V100-PCIE-32GB (simulated), written to p.csv" in out
    assert "No rank waited" in out
    options = ("--microbatches", "4", "--blocking-power", "30", "--gpu", "v100", "--out", "plan.json")
    assert run(["pipeline", "plan", "--profile", "p.csv", *options]) == 0
    assert "A change of clocks takes 10 ms" in capfd.readouterr().out


def test_a_program_that_ends_too_early_is_continued(profile, tmp_path):
    code, _, said = profile("--clocks", "4", iterations=12)
    assert code == 1
    begun = clocks_in(tmp_path / "p.csv")
    assert 1 <= len(begun) < 4
    assert f"the profile has {len(begun)} of 4 clocks: the program ended with code 0" in said
    assert "the same command goes on from there" in said
    code, _, said = profile("--clocks", "4")
    assert code == 0
    assert f"{len(begun)} of them already in p.csv" in said
    assert len(clocks_in(tmp_path / "p.csv")) == 4


def test_the_exit_code_of_the_program_is_kept(profile):
    code, out, _ = profile("--clocks", "2", ending="7")
    assert code == 7
    assert "written to p.csv" in out
    code, _, said = profile("--clocks", "5", iterations=1, ending="7")
    assert code == 7
    assert "the profile has 2 of 5 clocks" in said


def test_a_program_can_be_ended_with_its_profile(profile, monkeypatch):
    monkeypatch.setattr(sys.modules["wattune.cli.pipeline.profile"], "GRACE_S", 0.1)
    code, out, said = profile("--clocks", "2", "--stop", ending="go on", iterations=300)
    assert code == 0
    assert "written to p.csv" in out
    assert "trained" not in out + said


def test_a_gpu_that_refuses_its_clocks_ends_the_profile_and_not_the_training(profile, tmp_path):
    code, out, said = profile("--clocks", "2", iterations=5, ending="refuse")
    assert code == 1
    assert "trained" in out
    assert "the profile has 0 of 2 clocks: RuntimeError: not permitted" in said
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--out", "p.csv", "--", "true"), "measured nothing"),
        (("--out", "p.csv", "--", "no-such-program"), "there is no command"),
        (("--out", "no/p.csv", "--", "true"), "no folder to write to"),
        (("--out", "p.csv"), "COMMAND"),
    ],
)
def test_bad_input_is_one_line(words, message, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert run(["pipeline", "profile", *words]) != 0
    said = capfd.readouterr().err
    assert message in said
    assert "Traceback" not in said
