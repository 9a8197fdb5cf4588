"""`wattune kernels`: plans, what is refused, resuming, the files of Kareus, and that every option is documented."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import click
import pytest

from wattune.cli.kernels import command
from wattune.cli.kernels.plan import SCHEDULES, SEARCHES
from wattune.cli.main import run
from wattune.core.measurement import Measurement
from wattune.levels.overlap import searched_model
from wattune.levels.overlap.layout import ParallelLayout
from wattune.levels.overlap.partitions import partition_model
from wattune.levels.overlap.space import PartitionChoice, choices
from wattune.levels.overlap.trial_file import (
    PartitionTrial,
    PassChoice,
    PassTrial,
    TrialHeader,
    appended_trials,
    read_header,
    read_trials,
)
from wattune.levels.pipeline.plan_file import read_plan
from wattune.physics.catalog import load_model
from wattune.plans import shape

MODEL = ("--model", "llama-3.2-3b", "--tp", "8", "--microbatch-size", "8", "--sequence", "4096")
PLAN = ("kernels", "plan", *MODEL, "--pp", "2", "--microbatches", "4", "--gpu", "a100-40gb", "--out", "plan.json")
RANDOM = ("--search", "random", "--budget", "40")
COMMANDS_PAGE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for variable, place in (("STORE", "h.db"), ("STATE", "state"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complaint(capsys, *arguments):
    assert run([*arguments]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("hint: ")
    return lines[0].removeprefix("error: "), lines[1]


def planned(capsys, *arguments):
    assert run([*PLAN, *RANDOM, "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_pipeline_is_planned_again_against_the_same_baseline(home, capsys):
    found = planned(capsys, "--profile-csv", "stages.csv", "--html", "page.html")
    microbatches = PLAN[PLAN.index("--microbatches") + 1]
    again = ["pipeline", "plan", "--profile", "stages.csv", "--microbatches", microbatches]
    assert run([*again, "--json"]) == 0
    pipeline = json.loads(capsys.readouterr().out)
    assert pipeline["baseline"] == found["baseline"] == "whole microbatches at the highest clock"
    assert pipeline["default"] == pytest.approx(found["default"])
    assert pipeline["default"] == pytest.approx(found["comparison"]["megatron"])
    saved = [one["saved_per_1000_gpu_hours"]["energy_kwh"] for one in (found, pipeline)]
    assert saved[0] == pytest.approx(saved[1])
    assert pipeline["blocking_power_w"] == found["blocking_power_w"]
    assert run(again) == 0
    assert "GPU-hours (simulated), against whole microbatches at the highest clock." in capsys.readouterr().out
    assert "against whole microbatches at the highest clock" in (home / "page.html").read_text()


def test_a_plan_is_compared_with_megatron_and_its_file_says_the_same(home, capsys):
    found = planned(capsys, "--html", "page.html", "--profile-csv", "stages.csv")
    assert found["simulated"]
    assert [own["name"] for own in found["partitions"]] == ["fwd_attn", "fwd_mlp", "bwd_mlp", "bwd_attn"]
    assert found["kareus_measurements"] == 896
    assert found["gpu_hours"] == pytest.approx(found["measurements"] * 12.5 * 8 / 3600)
    compared = found["comparison"]
    assert compared["wattune"]["time_s"] <= compared["perseus"]["time_s"] <= compared["megatron"]["time_s"] * 1.001
    assert compared["equal_time_energy_percent"] < 0
    assert compared["equal_energy_time_percent"] < 0
    assert found["plan"]["time_s"] <= found["default"]["time_s"] == compared["megatron"]["time_s"]
    plan = read_plan(home / "plan.json")
    assert (len(plan.frontier), plan.chosen) == (found["plans"], found["chosen"])
    assert found["saved_per_1000_gpu_hours"]["energy_kwh"] > 0
    assert plan.plan.cost.energy_j == pytest.approx(found["plan"]["energy_j"])
    page = (home / "page.html").read_text(encoding="utf-8")
    assert "simulated" in page
    assert "all-reduce, " in page
    assert run(["pipeline", "verify", "plan.json", "--profile", "stages.csv", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["plans"]
    assert all(abs(row["time_percent"]) < 1e-4 and abs(row["energy_percent"]) < 1e-4 for row in rows)


def test_without_a_file_of_trials_every_setting_is_computed(home, capsys):
    assert run([*PLAN, "--html", "page.html", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(own["measurements"] == own["settings"] for own in found["partitions"])
    assert found["expected_epsilon"] == 0
    assert found["plan"]["energy_j"] <= planned(capsys, "--search", "wattune", "--budget", "60")["plan"]["energy_j"]
    page = (home / "page.html").read_text(encoding="utf-8")
    assert "settings computed" in page
    assert "one of " in page
    assert run(PLAN) == 0
    text = capsys.readouterr().out
    assert f"{found['measurements']} settings, all computed" in text
    assert "Expected, not measured" not in text


def test_the_same_command_plans_the_same(capsys):
    assert planned(capsys)["plan"] == planned(capsys)["plan"]


def test_text_output_shows_partitions_comparison_and_what_was_assumed(capsys):
    assert run([*PLAN, *RANDOM, "--blocking-power", "85"]) == 0
    text = capsys.readouterr().out
    for words in ("(simulated)", "Megatron + Perseus, fastest", "GPU-hours", "85 W: as given", "Switching is taken"):
        assert words in text


def test_a_deadline_and_a_cost_of_switching(capsys):
    slow = planned(capsys, "--deadline", "3")
    assert slow["plan"]["time_s"] <= 3
    assert slow["plan"]["energy_j"] < planned(capsys)["plan"]["energy_j"]
    assert run([*PLAN, *RANDOM, "--switch-latency", "5ms"]) == 0
    assert "A change of clocks takes 5 ms" in capsys.readouterr().out


def test_trials_are_kept_and_a_stopped_search_goes_on(home, capsys):
    whole = planned(capsys, "--trials", "t.jsonl")
    lines = (home / "t.jsonl").read_text().splitlines()
    assert len(lines) == 1 + whole["measurements"]
    (home / "t.jsonl").write_text("\n".join(lines[:50]) + '\n{"partition": "fwd_')
    again = planned(capsys, "--trials", "t.jsonl")
    assert again["plan"] == whole["plan"]
    assert (home / "t.jsonl").read_text().splitlines() == lines
    planned(capsys, "--trials", "t.jsonl")
    assert len((home / "t.jsonl").read_text().splitlines()) == len(lines)


def test_measured_trials_are_planned_from(capsys):
    assert (
        run(["kernels", "measure", *MODEL, *RANDOM, "--device", "sim:a100-40gb", "--trials", "t.jsonl", "--json"]) == 0
    )
    measured = json.loads(capsys.readouterr().out)
    assert measured["simulated"]
    found = planned(capsys, "--trials", "t.jsonl")
    assert found["measurements"] == measured["measurements"]


def test_schedules_of_kareus_are_written_and_read_back(home, capsys):
    planned(capsys, "--no-plain", "--profile-csv", "stages.csv")
    assert run(["pipeline", "export", "plan.json", "--format", "kareus", "--out", "kareus"]) == 0
    imported = ["--profile", "stages.csv", "--blocking-power", "96.8", "--out", "back.json"]
    assert run(["pipeline", "import", "kareus", *imported]) == 0
    before, after = read_plan(home / "plan.json"), read_plan(home / "back.json")
    assert [trial.choice.choices for trial in after.frontier] == [trial.choice.choices for trial in before.frontier]


def test_plans_without_nanobatches_cannot_be_schedules_of_kareus(capsys):
    small = ["--model", "qwen3-1.7b", "--tp", "4", "--cp", "2", "--microbatch-size", "8", "--sequence", "4096"]
    rest = ["--pp", "2", "--microbatches", "4", "--gpu", "a100", "--search", "random", "--budget", "20"]
    assert run(["kernels", "plan", *small, *rest, "--out", "plan.json"]) == 0
    assert run(["kernels", "show", "plan.json"]) == 0
    assert "no nanobatches" in capsys.readouterr().out
    problem, hint = complaint(capsys, "pipeline", "export", "plan.json", "--format", "kareus", "--out", "kareus")
    assert "without nanobatches" in problem
    assert "--no-plain" in hint


def test_show_lists_settings_and_draws_streams(home, capsys):
    planned(capsys, "--trials", "t.jsonl")
    assert run(["kernels", "show", "plan.json", "--trials", "t.jsonl", "--html", "page.html"]) == 0
    text = capsys.readouterr().out
    for words in ("stage 1 backward", "bwd_mlp", " SMs", "MHz ×", "fwd_attn at "):
        assert words in text
    assert max(map(len, text.splitlines()[2:])) <= 80
    assert "streams" in (home / "page.html").read_text(encoding="utf-8")
    assert run(["kernels", "show", "plan.json", "--plan", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    runs = [option["runs"] for option in found["instructions"]["0.forward"]]
    assert (found["chosen"], sum(runs)) == (0, 4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("--tp", "7"), "24 heads"),
        (("--tp", "3"), "3 tensor-parallel GPUs cannot share"),
        (("--pp", "29"), "28 layers do not fill 29 stages"),
        (("--gpus", "24"), "are 16 GPUs, not 24"),
        (("--cp", "3"), "6 pieces of context-parallel GPUs cannot share 4096 tokens"),
        (("--microbatch-size", "3"), "cannot be split into 2 equal nanobatches"),
        (("--sequence", "4095", "--sequence-parallel"), "4095 tokens"),
        (("--stage-layers", "20,20"), "no split of 28 layers"),
        (("--stage-layers", "a,b"), "no list of layers"),
        (("--model", "gpt-9"), "no transformer 'gpt-9'"),
        (("--model", "llama3.2-3b:depth=4"), "'depth=4' in 'llama3.2-3b:depth=4' is no size"),
        (("--model", "llama3.2-3b:width=100,heads=24"), "24 heads cannot share a width of 100"),
        (("--gpu", "a101"), "no simulated GPU 'a101'"),
        (("--epsilon", "small"), "no share"),
        (("--epsilon", "2"), "200 %"),
        (("--switch-latency", "soon"), "--switch-latency soon"),
        (("--deadline", "0.1"), "no choice on the frontier takes 0.1 s"),
        (("--blocking-power", "5000"), "less than the blocking power"),
        (("--out", "missing/plan.json"), "cannot write"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(changes, words, capsys):
    assert words in complaint(capsys, *PLAN, *RANDOM, *changes)[0]


def test_trials_of_another_model_layout_or_gpu_are_refused(home, capsys):
    planned(capsys, "--trials", "t.jsonl")
    other = ["--trials", "t.jsonl", "--tp", "4"]
    assert "its layout is llama3.2-3b tp8 8x4096, and now llama3.2-3b tp4" in complaint(capsys, *PLAN, *other)[0]
    assert "its gpu is" in complaint(capsys, *PLAN, "--trials", "t.jsonl", "--gpu", "a100-80gb")[0]
    (home / "bad.jsonl").write_text("no trials\n")
    assert "bad.jsonl, line 1" in complaint(capsys, *PLAN, "--trials", "bad.jsonl")[0]
    assert "no trials in none.jsonl" in complaint(capsys, "kernels", "show", "plan.json", "--trials", "none.jsonl")[0]


def partitioned():
    return partition_model("llama3.2-3b", ParallelLayout(tp=8, pp=2), microbatch_size=8, sequence=4096)


PARTITIONS = ("fwd_attn", "fwd_mlp", "bwd_mlp", "bwd_attn")


def write_trials(file, own, *, simulated=False, executed=False):
    """Write trials as ranks measure them, from (partition, choice, cost)."""
    header = TrialHeader.of(partitioned(), gpu=load_model("a100-40gb").name, simulated=simulated, executed=executed)
    rest = {"repeats": 9, "cooling_s": 1.0, "window_s": 2.0, "start_c": 40.0, "end_c": 45.0, "simulated": simulated}
    with appended_trials(file, header) as append:
        for name, choice, cost in own:
            append(PartitionTrial(partition=name, choice=choice, cost=cost, **rest))


def test_trials_of_real_gpus_are_planned_from_as_they_are(home, capsys):
    gpu, model = load_model("a100-40gb"), partitioned()
    measure = searched_model.simulated_measure(gpu)
    own = [
        (partition.name, choice, measure(partition, choice))
        for partition in model.partitions
        for choice in choices(partition, gpu, clocks_mhz=[1110, 1410], comm_sms=[6, 12])
    ]
    write_trials(home / "t.jsonl", own)
    before = (home / "t.jsonl").read_bytes()
    found = planned(capsys, "--trials", "t.jsonl")
    assert (found["measured_on_gpus"], found["comparison"], found["measurements"]) == (True, None, len(own))
    assert (home / "t.jsonl").read_bytes() == before
    assert run([*PLAN, "--trials", "t.jsonl"]) == 0
    assert "no comparison with Megatron" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "choice", "words"),
    [
        ("fwd_attn", PartitionChoice(1410, 200, "norm_0"), "200 of the 108 SMs"),
        ("fwd_attn", PartitionChoice(1411, 6, "norm_0"), "no core clock of 1411 MHz"),
        ("fwd_attn", PartitionChoice(1410, 6, "linear_7"), "cannot launch its collective at 'linear_7'"),
        ("fwd_ssm", PartitionChoice(1410, 6, "norm_0"), "no partition 'fwd_ssm'"),
        ("fwd_attn", PartitionChoice(1410, 6, "norm_0"), "no trial of partition fwd_mlp"),
    ],
)
def test_trials_that_the_model_or_the_gpu_cannot_have_are_refused(name, choice, words, home, capsys):
    write_trials(home / "t.jsonl", [(name, choice, Measurement(1e-3, 0.3))])
    assert words in complaint(capsys, *PLAN, "--trials", "t.jsonl")[0]


def test_measured_partitions_must_share_their_clocks(home, capsys):
    own = [
        (partition.name, PartitionChoice(clock, 6, "norm_0"), Measurement(1e-3, 0.3))
        for partition, clock in zip(partitioned().partitions, (1410, 1410, 1410, 1110), strict=True)
    ]
    write_trials(home / "t.jsonl", own)
    problem, _ = complaint(capsys, *PLAN, "--trials", "t.jsonl")
    assert "no clock is measured in all partitions of a backward pass" in problem
    assert "lacks 1110 MHz" in problem
    more = [(name, PartitionChoice(1110, 6, "norm_0"), cost) for name, _, cost in own[:2]]
    more += [(name, PartitionChoice(1410, 6, "norm_0"), cost) for name, _, cost in own[3:]]
    (home / "t.jsonl").unlink()
    write_trials(home / "t.jsonl", own + more)
    assert run([*PLAN, "--trials", "t.jsonl"]) == 0
    text = capsys.readouterr().out
    assert "Left out of backward passes, not measured in every partition: 1110 MHz." in text
    assert "Left out of forward" not in text


def test_a_layout_is_read_back_from_the_header_of_trials(home):
    layout = ParallelLayout(cp=2, tp=4, sequence_parallel=True)
    model = partition_model("qwen3-1.7b", layout, microbatch_size=8, sequence=4096)
    header = TrialHeader.of(model, gpu="a100", simulated=True)
    assert header.layout == "qwen3-1.7b cp2 tp4 sp 8x4096"
    assert header.model == model
    assert read_header(home / "none.jsonl") is None
    assert read_trials(home / "none.jsonl", header) == ()


MEASURE = ("kernels", "measure", *MODEL, "--trials", "t.jsonl")


def test_a_real_gpu_is_measured_by_a_program(capsys):
    problem, hint = complaint(capsys, *MEASURE, "--device", "nvml:0")
    assert "nvml:0 needs a program" in problem
    assert "torchrun" in hint


def program(text):
    """Return a command that knows what it is asked for as `request`, and has the function that writes trials."""
    head = (
        "import json, os, sys\n"
        "from pathlib import Path\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n"
        "request = json.loads(os.environ['WATTUNE_KERNELS'])\n"
    )
    return ("--", sys.executable, "-c", head + text)


WRITING = (
    "from test_kernels_command import write_trials, measured_rows\n"
    "write_trials(Path(request['trials']), measured_rows(), executed=True)\n"
)


def test_a_program_that_measures_nothing_is_reported(home, capsys):
    problem, hint = complaint(capsys, *MEASURE, *program("assert request['layout'] == 'llama3.2-3b tp8 8x4096'"))
    assert "measured nothing" in problem
    assert "measured_if_asked" in hint
    assert "exit code 3" in complaint(capsys, *MEASURE, *program("sys.exit(3)"))[0]
    assert "no command 'torchrunn'" in complaint(capsys, *MEASURE, "--", "torchrunn", "x")[0]
    planned(capsys, "--trials", "t.jsonl")
    assert "has computed trials" in complaint(capsys, *MEASURE, *program(""))[0]


def test_trials_of_a_program_are_shown_and_stored_also_where_it_fails(home, capfd):
    assert run([*MEASURE, *program(WRITING + "sys.exit(4)")]) == 4
    text = capfd.readouterr().err
    assert "ended with exit code 4; it added 8 trials to t.jsonl" in text
    assert "goes on from there" in text
    assert run([*MEASURE, *program("")]) == 0
    text = capfd.readouterr().out
    assert "8 measurements" in text
    assert "Calibration of forward passes: not calibrated." in text
    assert run(["history", "--kind", "kernels", "--json"]) == 0
    stored = json.loads(capfd.readouterr().out)["runs"]
    assert [own["name"] for own in stored] == ["llama3.2-3b tp8 8x4096"] * 2
    (home / "other.jsonl").write_bytes((home / "t.jsonl").read_bytes())
    other = [*MEASURE[:-1], "other.jsonl", "--tp", "4", *program("")]
    assert run(other) == 1
    assert "its layout is llama3.2-3b tp8 8x4096, and now llama3.2-3b tp4" in capfd.readouterr().err


def measured_rows():
    """Return (partition, choice, cost) as ranks of real GPUs may measure them."""
    return [
        (own.name, PartitionChoice(clock, 6, "norm_0"), Measurement(1e-3 * 1410 / clock, 0.3 * clock / 1410))
        for own in partitioned().partitions
        for clock in (1110, 1410)
    ]


def write_passes(file, factor, *, settings="norm_0-none-6-1024"):
    """Add whole passes of 2 layers, which take so many times the sum of their partitions."""
    header = TrialHeader.of(partitioned(), gpu=load_model("a100-40gb").name, simulated=False, executed=True)
    rest = {"repeats": 9, "cooling_s": 1.0, "window_s": 2.0, "start_c": 40.0, "end_c": 45.0, "simulated": False}
    with appended_trials(file, header) as append:
        for instruction, names in (("forward", ("fwd_attn", "fwd_mlp")), ("backward", tuple(PARTITIONS))):
            cost = Measurement(factor * 2 * 2 * len(names) * 1e-3, factor * 2 * 2 * len(names) * 0.3)
            choice = PassChoice(instruction, 1410, dict.fromkeys(names, settings) if settings else {})
            append(PassTrial(choice=choice, layers=2, recompute=True, cost=cost, **rest))


def test_measured_passes_calibrate_plans_and_whole_microbatches_are_compared(home, capsys):
    write_trials(home / "t.jsonl", measured_rows(), executed=True)
    before = planned(capsys, "--trials", "t.jsonl", "--stage-layers", "14,14", "--blocking-power", "50")
    assert before["calibrations"] == {"forward": None, "backward": None}
    write_passes(home / "t.jsonl", 1.25)
    found = planned(capsys, "--trials", "t.jsonl", "--stage-layers", "14,14", "--blocking-power", "50")
    assert found["calibrations"]["backward"] == pytest.approx({"time": 1.25, "energy": 1.25})
    assert found["measurements"] == before["measurements"]
    # Not all of an iteration is in layers, so that it takes less than 1.25 times as long.
    assert 1.15 < found["default"]["time_s"] / before["default"]["time_s"] < 1.25
    assert found["comparison"] is None
    write_passes(home / "t.jsonl", 1.4, settings=None)
    found = planned(capsys, "--trials", "t.jsonl", "--stage-layers", "14,14", "--blocking-power", "50")
    assert found["comparison"]["megatron"]["time_s"] > found["comparison"]["wattune"]["time_s"]
    assert found["calibrations"]["forward"] is not None
    assert run([*PLAN, "--trials", "t.jsonl", "--no-recompute", "--blocking-power", "50"]) == 0
    text = capsys.readouterr().out
    assert "Calibration of forward passes: time ×1.250, energy ×1.250 (1 passes)." in text
    assert "Calibration of backward passes: not calibrated." in text


def test_a_plan_of_clocks_alone_is_shown_by_the_pipeline_command(home, capsys):
    rows = "stage,instruction,frequency,time,energy\n0,forward,900,2,200\n0,forward,1410,1,300\n"
    (home / "stages.csv").write_text(rows + rows.partition("\n")[2].replace("forward", "backward"))
    plan = ["--profile", "stages.csv", "--microbatches", "2", "--blocking-power", "50", "--out", "plan.json"]
    assert run(["pipeline", "plan", *plan]) == 0
    capsys.readouterr()
    assert "clocks alone" in complaint(capsys, "kernels", "show", "plan.json")[0]


def test_the_names_that_are_written_out_are_those_that_there_are():
    assert SEARCHES == searched_model.SEARCHES
    assert set(SCHEDULES) <= set(shape.SCHEDULE_NAMES)


def section(name):
    text = COMMANDS_PAGE.read_text(encoding="utf-8")
    return re.search(rf"^## wattune kernels {name}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)[1]


@pytest.mark.parametrize("name", list(command.commands))
def test_every_option_has_a_line(name):
    documented = set(re.findall(r"^\| `(--[a-z-]+)", section(name), re.MULTILINE))
    parameters = command.commands[name].params
    there = {max(own.opts, key=len) for own in parameters if isinstance(own, click.Option)}
    assert documented == there - {"--json", "--help"}


_OTHERS = ("instructions", "settings", "trust")
"""Objects whose fields are names, or have a table of their own."""


def fields(document):
    if isinstance(document, dict):
        inner = {key for name, part in document.items() if name not in _OTHERS for key in fields(part)}
        return set(document) | inner
    return {key for part in document for key in fields(part)} if isinstance(document, list) else set()


def test_every_field_has_a_word(capsys):
    words = " ".join(re.findall(r"`[^`\n]+`", section("plan")))
    assert [name for name in sorted(fields(planned(capsys))) if not re.search(rf"\b{name}\b", words)] == []
