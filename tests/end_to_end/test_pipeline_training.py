"""Real processes that train over gloo while a plan sets the clocks of their emulated GPUs."""

import json
import signal
from pathlib import Path

import pytest

from emulated import plain_gpu
from pipelines import planned_at, profile_csv
from processes import wait_until
from wattune.cli.main import run
from wattune.levels.pipeline.plan_file import plan_text, read_plan
from wattune.levels.pipeline.solver.switching import shortest_dwell_s
from wattune.plans.schedules import interleaved
from wattune.plans.stage_profile import parse_stage_profile

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

import pipeline_worker  # noqa: E402

WORKER = Path(pipeline_worker.__file__)


def plan_for(ranks, chunks, microbatches, file):
    """Write a plan that changes the clock at most instructions and keeps it at some; return it."""
    clocks = (1410, 900, 900, 1200, 1005, 1005, 1305, 1095)
    planned = planned_at(interleaved(ranks, microbatches, chunks=chunks), clocks)
    file.write_text(plan_text(planned))
    return planned.plan.choice


def is_part_of(part, whole):
    remaining = iter(whole)
    return all(clock in remaining for clock in part)


@pytest.fixture
def start(start_torch, tmp_path):
    """A function that starts the ranks of a job; whoever is left at the end is killed."""
    running = []

    def begin(job, node):
        file = pipeline_worker.write(job)
        environment = {"WATTUNE_NODE": str(node.path)}
        for rank in range(job.ranks):
            output = tmp_path / f"{rank}.output"
            running.append(start_torch(WORKER, str(file), str(rank), output=output, environment=environment))
        return running

    yield begin
    for process in running:
        process.kill()


def job_in(tmp_path, node, **what):
    return pipeline_worker.Job(folder=str(tmp_path), node=str(node.path), library=str(node.library), **what)


def finished(processes, tmp_path):
    """What each rank found."""
    for rank, process in enumerate(processes):
        assert process.wait() == 0, (tmp_path / f"{rank}.output").read_text()
    return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank, _ in enumerate(processes)]


@pytest.mark.parametrize(("ranks", "chunks", "microbatches"), [(3, 1, 6), (2, 2, 4)], ids=["1f1b", "interleaved"])
def test_a_plan_changes_the_clocks_and_nothing_else(ranks, chunks, microbatches, emulated_node, tmp_path, start):
    node = emulated_node(*["a100"] * ranks, clock="wall")
    before = [node.setting(index) for index in range(ranks)]
    file = tmp_path / "plan.json"
    plan = plan_for(ranks, chunks, microbatches, file)
    shape = {"ranks": ranks, "chunks": chunks, "microbatches": microbatches, "iterations": 3}
    found = finished(start(job_in(tmp_path, node, **shape, plan_file=str(file)), node), tmp_path)
    for rank, (what, steps) in enumerate(zip(found, plan.ranks, strict=True)):
        assert what["planned"] == what["plain"]
        assert what["simulated"]
        requested = pipeline_worker.requested(steps, shape["iterations"])
        assert len(what["applied"]) == len(requested) - what["skipped"]
        assert is_part_of(what["applied"], requested)
        assert node.setting(rank) == before[rank]
    assert len(found[-1]["plain"]["losses"]) == shape["iterations"] * microbatches


def test_a_plan_of_the_command_for_slow_switching_is_played(emulated_node, tmp_path, start, capsys):
    node = emulated_node("a100", "a100", clock="wall")
    before = [node.setting(index) for index in range(2)]
    (tmp_path / "profile.csv").write_text(profile_csv(2, (1410, 1200, 1005, 900)))
    file = tmp_path / "plan.json"
    options = ("--microbatches", "6", "--blocking-power", "60", "--switch-latency", "20ms", "--deadline", "0.238")
    arguments = ["pipeline", "plan", "--profile", str(tmp_path / "profile.csv"), *options, "--out", str(file)]
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["switching"]["latency_s"] == 0.02
    planned = read_plan(file)
    dwell_s = shortest_dwell_s(planned.plan.choice)
    assert dwell_s is not None
    assert dwell_s >= 0.02
    shape = {"ranks": 2, "chunks": 1, "microbatches": 6, "iterations": 2}
    found = finished(start(job_in(tmp_path, node, **shape, plan_file=str(file)), node), tmp_path)
    for rank, (what, steps) in enumerate(zip(found, planned.plan.choice.ranks, strict=True)):
        assert what["planned"] == what["plain"]
        requested = pipeline_worker.requested(steps, shape["iterations"])
        assert len(what["applied"]) == len(requested) - what["skipped"]
        assert node.setting(rank) == before[rank]


def test_crashed_ranks_leave_all_gpus_as_they_were_found(emulated_node, tmp_path, start):
    node = emulated_node(*["a100"] * 3, clock="wall")
    before = [node.setting(index) for index in range(3)]
    file = tmp_path / "plan.json"
    plan_for(3, 1, 4, file)
    shape = {"ranks": 3, "chunks": 1, "microbatches": 4, "iterations": 10**6}
    processes = start(job_in(tmp_path, node, **shape, plan_file=str(file), plain_first=False), node)
    wait_until(lambda: all(node.setting(index) != before[index] for index in range(3)), *processes)
    processes[2].kill()
    processes[1].send_signal(signal.SIGTERM)  # and the first finds nobody to talk to
    for process in processes:
        assert process.wait() != 0
    assert node.setting(0) == before[0]
    assert node.setting(1) == before[1]
    wait_until(lambda: node.setting(2) == before[2])  # the watchdog of the one that was killed


def test_ranks_plan_together_while_they_train_and_answer_a_straggler(emulated_node, tmp_path, start):
    gpus = [plain_gpu(sm_mhz=pipeline_worker.SM_MHZ, counter_period_s=0.02, index=index) for index in range(2)]
    node = emulated_node(*gpus, clock="wall")
    before = [node.setting(index) for index in range(2)]
    shape = {"ranks": 2, "chunks": 1, "microbatches": 4, "iterations": 200}
    job = job_in(tmp_path, node, **shape, plain_first=False, straggler=1)
    one, two = (found["tuned"] for found in finished(start(job, node), tmp_path))
    assert one == two  # no rank reported to another
    powers_w = {kind: values[-1] for kind, values in one["planned"]["powers_w"].items()}
    # A machine that is busy with something else blurs which of the two it was, but not what they draw together.
    for rank in ("0", "1"):
        assert powers_w[f"{rank}.forward"] + powers_w[f"{rank}.backward"] == pytest.approx(260 + 280, rel=0.25)
    clocks_mhz = [one[part]["clocks_mhz"] for part in ("planned", "straggling", "recovered")]
    assert clocks_mhz[0] != clocks_mhz[1] != clocks_mhz[2]
    assert [node.setting(index) for index in range(2)] == before


def test_ranks_measure_the_profile_that_the_command_plans_with(emulated_node, tmp_path, start, capsys):
    gpus = [plain_gpu(sm_mhz=pipeline_worker.SM_MHZ, counter_period_s=0.02, index=index) for index in range(2)]
    node = emulated_node(*gpus, clock="wall")
    before = [node.setting(index) for index in range(2)]
    file = tmp_path / "profile.csv"
    shape = {"ranks": 2, "chunks": 1, "microbatches": 4, "iterations": 300, "plain_first": False}
    job = job_in(tmp_path, node, **shape, profile=str(file), clocks=3)
    one, two = (found["profiled"] for found in finished(start(job, node), tmp_path))
    assert one == two
    assert one["waiting_w"] > 0
    profile = parse_stage_profile(file.read_text(), file="profile.csv")
    assert (profile.stages, profile.simulated, len(profile.options)) == (2, True, 4)
    for trials in profile.options.values():
        assert sorted(trial.choice.setting.sm_mhz for trial in trials) == one["clocks_mhz"]
        slow, fast = (pick(trials, key=lambda trial: trial.choice.setting) for pick in (min, max))
        assert slow.cost.time_s > fast.cost.time_s
        assert slow.cost.power_w < fast.cost.power_w
    assert [node.setting(index) for index in range(2)] == before
    power = str(min(one["waiting_w"], 0.9 * min(t.cost.power_w for own in profile.options.values() for t in own)))
    arguments = ("--microbatches", "4", "--blocking-power", power, "--switch-latency", "10ms", "--json")
    assert run(["pipeline", "plan", "--profile", str(file), *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["simulated"]
