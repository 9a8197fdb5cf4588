"""What `wattune job` says was saved, beside what the emulated node knows."""

import json
import sys
from pathlib import Path

import pytest

from command import Command
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload

TRAINER, FOLLOWER = (str(Path(__file__).with_name(name)) for name in ("job_trainer.py", "job_follower.py"))
METRIC = ("--metric-pattern", "accuracy: ([0-9.]+)")
JOB = ("--batch-sizes", "64", "--default", "64", "--target", "1", "--linger", "0")
SLOW = """
import time
time.sleep(1.0)
for epoch in range(1, 5):
    for step in range(5):
        time.sleep(0.05)
        print("step", 5 * (epoch - 1) + step + 1, flush=True)
    print("accuracy:", epoch / 4, flush=True)
"""


@pytest.fixture
def wattune(tmp_path):
    return Command(tmp_path)


def shown(wattune, name="nightly"):
    """The document of a job on its GPU, what the terminal shows, and the page."""
    text = wattune("job", "show", name).stdout
    document = json.loads(wattune("job", "show", name, "--json", "--plot", "page.html").stdout)
    return document["parts"][0], text, (wattune.folder / "page.html").read_text(encoding="utf-8")


def assert_unknown(wattune, why):
    part, text, page = shown(wattune)
    assert why in part["unknown_because"]
    figures = ("saving_percent", "energy_saving_percent", "slowdown_percent", "default_run", "break_even")
    assert [part[name] for name in figures] == [None] * 5
    for words in (text, page):
        assert f"saving unknown: {part['unknown_because']}" in " ".join(words.replace("&#x27;", "'").split())
        assert "of the default's cost" not in words
    return part


@pytest.mark.parametrize("steps", [(), ("--step-pattern", "step ([0-9]+)")])
def test_a_program_that_does_not_follow_its_gpu_saves_nothing(wattune, steps):
    command = ("job", "run", "nightly", "--device", "sim:a100", *JOB, *METRIC, *steps, "--json", "--")
    runs = []
    for _ in range(3):
        done = wattune(*command, sys.executable, "-c", SLOW)
        assert "does not follow its clock" in done.stderr
        runs.append(json.loads(done.stdout)["runs"][0])
    part = assert_unknown(wattune, "does not follow its clock")
    assert part["spent"]["energy_j"] == pytest.approx(sum(one["cost"]["energy_j"] for one in runs))
    assert [one["setting"] for one in runs] == [None] * 3
    assert min(one["cost"]["time_s"] for one in runs) > 1.0  # its start is part of what a run costs


def test_beside_a_followed_gpu_only_steps_of_an_optimizer_show_anything(wattune):
    job = ("job", "run", "nightly", *JOB, *METRIC, "--step-pattern", "step ([0-9]+)")
    wattune("simulate", "--follow", "--", *wattune.line(*job), "--", sys.executable, "-c", SLOW)
    assert_unknown(wattune, "only optimizer steps of PyTorch follow its clock")


@pytest.fixture
def trained(wattune, emulated_node):
    """A function that trains in the virtual time of a node, and returns what the steps of that run took."""
    node = emulated_node("a40")
    truth = wattune.folder / "truth"
    wattune.environment |= {
        "WATTUNE_NODE": str(node.path),
        "LD_LIBRARY_PATH": str(node.library.parent),
        "START_S": "200",
        "PAUSE_S": "8",
        "TRUTH": str(truth),
    }

    def train(name, *options):
        options = ("--device", "nvml:0", "--metric-file", "metrics", "--objective", "energy:5%", *JOB, *options)
        wattune("job", "run", name, *options, "--", sys.executable, TRAINER, "64=8")
        return json.loads(truth.read_text(encoding="utf-8").splitlines()[-1])

    return train


def test_a_saving_is_that_of_the_steps_within_its_error(wattune, trained):
    plain = trained("plain", "--knob", "none")
    tuned = [trained("nightly") for _ in range(3)]
    part, text, page = shown(wattune)
    true = {name: sum(one[name] for one in tuned) / 3 / plain[name] - 1 for name in ("time_s", "energy_j")}
    assert abs(-part["energy_saving_percent"] - 100 * true["energy_j"]) <= part["energy_saving_error_percent"] < 2
    assert abs(part["slowdown_percent"] - 100 * true["time_s"]) <= part["slowdown_error_percent"] < 2
    assert (part["compared_recurrences"], part["compared_unit"], part["unknown_because"]) == (3, "step", None)
    assert "the steps of 3 recurrences, learning included" in text
    assert "the steps of 3 recurrences, learning included" in page
    # Its start and its pauses are in what a default run costs, as they were.
    assert part["default_run"]["time_s"] == pytest.approx(plain["time_s"] + 200 + 8 * 8, rel=0.03)
    none = shown(wattune, "plain")[0]
    assert abs(none["energy_saving_percent"]) <= none["energy_saving_error_percent"]


def test_a_job_finds_nearly_the_best_clock_within_its_limit_in_its_first_run(wattune, trained):
    plain, tuned = trained("plain", "--knob", "none"), [trained("nightly") for _ in range(2)][-1]
    table = tabulate(load_model("a40"), make_workload("resnet50:64"))[0]
    time_s, energy_j = table.iteration_s, table.iteration_s * table.mean_power_w
    best = 1 - energy_j[time_s <= 1.05 * time_s[-1]].min() / energy_j[-1]
    assert 1 - tuned["energy_j"] / plain["energy_j"] > 0.8 * best > 0.04
    assert tuned["time_s"] / plain["time_s"] < 1.055


def test_a_program_that_follows_its_gpu_saves_what_the_node_knows(wattune):
    pytest.importorskip("torch")
    job = ("job", "run", "nightly", *JOB, *METRIC, "--objective", "energy:5%")
    program = (sys.executable, FOLLOWER, "8", "45", "truth.json")
    wattune(
        "simulate", "--follow", "--gpu", "a100", "--workload", "resnet50:64", "--", *wattune.line(*job), "--", *program
    )
    part, *_ = shown(wattune)
    truth = json.loads((wattune.folder / "truth.json").read_text(encoding="utf-8"))
    (steps, time_s, energy_j), (top_steps, top_s, top_j) = truth["every"], truth["top"]
    assert part["compared_unit"] == "step"
    energy = 100 * (energy_j / steps / (top_j / top_steps) - 1)
    time = 100 * (time_s / steps / (top_s / top_steps) - 1)
    # The last settings of the first run are tried while its node already knows what they cost: half a point for that.
    assert abs(-part["energy_saving_percent"] - energy) <= part["energy_saving_error_percent"] + 0.5
    assert abs(part["slowdown_percent"] - time) <= part["slowdown_error_percent"] + 0.5


def test_later_runs_may_leave_out_where_the_metric_is(wattune):
    quick = ("--device", "sim:a100")
    good = ("--", sys.executable, "-c", "print('step 1'); print('accuracy: 1.0')")
    wattune("job", "run", "nightly", *JOB, *METRIC, "--step-pattern", "step ([0-9]+)", *quick, *good)
    second = json.loads(wattune("job", "run", "nightly", "--json", *quick, *good).stdout)
    assert (second["reached"], second["redefined"]) == (True, [])
    assert (second["job"]["metric_pattern"], second["job"]["step_pattern"]) == (METRIC[1], "step ([0-9]+)")
    other = ("-c", "open('metric', 'w').write('metric\\n1.0\\n')")
    third = json.loads(
        wattune(
            "job", "run", "nightly", "--json", "--metric-file", "metric", *quick, "--", sys.executable, *other
        ).stdout
    )
    assert third["redefined"] == ["file of the metric: metric"]
    assert third["job"]["metric_pattern"] is None


def test_next_and_show_answer_for_the_same_gpu(wattune):
    good = ("--", sys.executable, "-c", "print('accuracy: 1.0')")
    for gpu in ("sim:a100", "sim:v100"):
        wattune("job", "run", "nightly", *JOB, *METRIC, "--device", gpu, *good)
    part, text, _ = shown(wattune)
    following = json.loads(wattune("job", "next", "nightly", "--json").stdout)
    assert following["gpu"] == part["gpu"]
    assert "V100" in following["gpu"]["name"]
    assert f"next on {following['gpu']['name']} (simulated): batch size 64" in text
    assert f"batch size 64 on {following['gpu']['name']} (simulated)" in wattune("job", "next", "nightly").stdout
    elsewhere = json.loads(wattune("job", "next", "nightly", "--device", "sim:a100", "--json").stdout)
    assert "A100" in elsewhere["gpu"]["name"]
