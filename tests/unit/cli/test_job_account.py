"""Costs of the runs of a job, compared with default runs."""

from dataclasses import replace
from math import hypot

import pytest

from wattune.cli.job.output import account_lines, end_line, overview_document, print_job, simulated_fields
from wattune.core.errors import Infeasible
from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, Proposal, StepAccount
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.tariff import Tariff
from wattune.levels.job.policy import WattuneJobPolicy
from wattune.levels.job.step_tally import LEAST_ERROR
from wattune.levels.job.view.page import job_file
from wattune.levels.job.view.view_model import JobView, gpus_of

GPU = JobGpu(name="NVIDIA A40", simulated=True, max_power_w=300.0)
OTHER = JobGpu(name="NVIDIA V100", simulated=False, max_power_w=250.0)
JOB = Job(
    name="nightly", batch_sizes=(16, 32, 64, 128), default_batch_size=64, target=0.75, max_epochs=50, objective="cost:1"
)


STEPS = 100
"""Of an epoch."""


def ran(order, size, outcome, epochs, energy_j, *, gpu=GPU, exploring=False, recurrence=None, profiling_j=0.0):
    """A run whose steps take nine tenths of it; a tenth is its start. Steps of 64 take 12 J at the default."""
    default = Measurement(1.72, 480.0, 0.0086, 2.4) if size == 64 and profiling_j else None
    steps = StepAccount(
        total=STEPS * epochs,
        count=STEPS * epochs // 2,
        cost=Measurement(0.45 * energy_j / 200, 0.45 * energy_j, 0.0, 10.0),
        default_count=40 if default else 0,
        default_cost=default,
    )
    return JobRun(
        steps=steps if epochs else None,
        id=f"run-{order}",
        order=order,
        recurrence=order if recurrence is None else recurrence,
        batch_size=size,
        gpu=gpu,
        exploring=exploring,
        outcome=outcome,
        metrics=(0.5,) * epochs,
        cost=Measurement(energy_j / 200, energy_j),
        profiling=Measurement(profiling_j / 200, profiling_j),
        setting=Setting(power_limit_w=225.0),
        ended=None if outcome is Outcome.RUNNING else order + 1,
    )


def profile(size, *, epoch_j):
    trials = (
        Trial(Setting(power_limit_w=225.0), Measurement(epoch_j / 200, epoch_j)),
        Trial(Setting(power_limit_w=300.0), Measurement(epoch_j / 220, 1.2 * epoch_j)),
    )
    return Profile(gpu=GPU, batch_size=size, trials=trials)


RUNS = (
    ran(0, 64, Outcome.REACHED, 10, 10_000.0, profiling_j=500.0),
    ran(1, 32, Outcome.REACHED, 8, 8_000.0, exploring=True),
    ran(2, 128, Outcome.OUT_OF_MEMORY, 0, 100.0, exploring=True),
    ran(3, 32, Outcome.REACHED, 10, 9_000.0, recurrence=2),
    ran(4, 16, Outcome.STOPPED, 5, 6_000.0, exploring=True),
    ran(5, 64, Outcome.RUNNING, 1, 1_000.0, recurrence=4),
    ran(6, 16, Outcome.REACHED, 20, 90_000.0, gpu=OTHER),
)
MEMORY = JobMemory(RUNS, (profile(64, epoch_j=1000.0),))


def account(job, memory, gpu):
    return JobView(job=job, memory=memory, gpu=gpu)


def test_an_account_adds_up():
    found = account(JOB, MEMORY, GPU)
    assert (len(found.here), found.recurrences) == (6, 3)
    assert found.spent.energy_j == pytest.approx(33_100.0)  # the run that is not over does not count yet
    assert found.profiling.energy_j == 500.0
    assert found.exploring.energy_j == pytest.approx(14_100.0)
    assert found.best_run.energy_j == pytest.approx(8_500.0)
    # Steps are compared with steps, and runs that were replaced count with all that they cost. The default would have
    # taken 1,000 steps of 12 J three times; the starts of three runs cost a tenth of each on both sides.
    steps_j = 0.9 * 27_000 + 100
    assert found.energy_share.percent == pytest.approx(100 * (steps_j / 36_000 - 1))
    assert found.default_run.energy_j == pytest.approx(12_000 + 2_700 / 3)
    assert found.break_even == 0


def test_the_error_of_a_saving_is_that_of_the_default_and_of_its_epochs():
    only_default = account(JOB, JobMemory(RUNS[:1]), GPU).energy_share
    assert only_default.percent == pytest.approx(100 * (9_000 / 12_000 - 1))
    assert only_default.error_percent == pytest.approx(75 * hypot(0.005, 1.96 * LEAST_ERROR, 10 / 4500), rel=0.02)
    another_size = account(JOB, JobMemory(RUNS[:2]), GPU).energy_share
    assert another_size.error_percent > 8  # of one run, nobody knows how its epochs scatter


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (None, "counted no steps"),
        (StepAccount(why_not="the program does not follow its GPU"), "does not follow its GPU"),
        (
            StepAccount(total=9, count=9, cost=Measurement(1.0, 200.0, 0.0, 1.0)),
            "at the default batch size and setting",
        ),
    ],
)
def test_what_was_not_compared_is_unknown(steps, why):
    found = account(JOB, JobMemory((replace(RUNS[0], steps=steps),), MEMORY.profiles), GPU)
    assert (found.energy_share, found.objective_share, found.default_run, found.break_even) == (None,) * 4
    (line,) = (line for line in account_lines(found, Tariff()) if "saving" in line)
    assert line.startswith("saving unknown: ")
    assert why in line
    document = overview_document(found, Tariff())
    assert why in document["unknown_because"]
    assert (document["saving_percent"], document["energy_saving_percent"], document["default_run"]) == (None,) * 3
    page = job_file(found, searcher="wattune", made="Made now.", suffix=".html", tariff=Tariff())
    assert f"saving unknown: {document['unknown_because']}" in page


def test_start_pauses_and_end_are_alike_on_both_sides():
    slow_start = replace(RUNS[0], cost=Measurement(500.0, 100_000.0))
    same, found = (account(JOB, JobMemory((run,)), GPU) for run in (RUNS[0], slow_start))
    assert found.energy_share == same.energy_share
    assert found.time_share == same.time_share
    assert found.default_run.energy_j - same.default_run.energy_j == pytest.approx(90_000.0)


def test_runs_that_no_setting_can_have_made_faster_show_that_the_default_is_of_other_work():
    faster = replace(RUNS[0].steps, default_count=0, default_cost=None, cost=Measurement(19.5, 4_000.0, 0.0, 10.0))
    later = replace(RUNS[0], id="later", order=1, recurrence=1, steps=faster)
    found = account(JOB, JobMemory((RUNS[0], later)), GPU)
    assert found.energy_share is None
    assert "9 % faster than when the default was measured" in found.comparison


def test_what_a_run_saves_within_its_error_pays_for_nothing():
    learning = ran(0, 32, Outcome.STOPPED, 9, 20_000.0, exploring=True, recurrence=0)
    found = account(
        JOB, JobMemory((learning, ran(1, 64, Outcome.REACHED, 10, 13_322.0, profiling_j=500.0, recurrence=0))), GPU
    )
    # A run saves 10 J of 12,000 J, which are known to 0.5 %.
    assert found.best_run.energy_j == pytest.approx(found.default_run.energy_j - 10, abs=1)
    assert found.break_even is None


def test_sizes_have_states():
    states = {size.batch_size: size.state for size in account(JOB, MEMORY, GPU).sizes}
    assert states == {16: "failed", 32: "tried", 64: "tried", 128: "infeasible"}
    epochs = {size.batch_size: size.epochs for size in account(JOB, MEMORY, GPU).sizes}
    assert epochs == {16: 20.0, 32: 9.0, 64: 10.0, 128: None}  # epochs do not depend on the part
    assert {size.state for size in account(JOB, JobMemory(), GPU).sizes} == {"untried"}
    running = account(JOB, JobMemory(RUNS[5:6]), GPU)
    assert running.sizes[2].state == "running"
    assert running.energy_share is None


def test_sizes_of_an_earlier_definition_stay_listed():
    earlier = JobMemory((ran(0, 8, Outcome.REACHED, 4, 1.0),))
    assert [size.batch_size for size in account(JOB, earlier, GPU).sizes] == [8, 16, 32, 64, 128]


def test_break_even_is_reckoned_from_what_a_run_saves():
    memory = JobMemory((*RUNS[:2], ran(2, 16, Outcome.STOPPED, 9, 20_000.0, exploring=True, recurrence=1)))
    memory = JobMemory((*memory.runs, ran(3, 32, Outcome.REACHED, 8, 8_000.0, recurrence=1)))
    found = account(JOB, memory, GPU)
    # 46,000 J instead of 2 · 12,000 + 1,800 J; a run at 32 saves 12,900 − 8,000 J of a default run.
    assert found.energy_share.percent > 0
    assert found.break_even == 5


def test_the_newest_part_comes_first():
    assert gpus_of(MEMORY) == (OTHER, GPU)
    assert simulated_fields(RUNS)["simulated"]
    assert simulated_fields(RUNS)["trust"]["level"] == "fitted"
    assert simulated_fields(RUNS[6:]) == {"simulated": False, "trust": None}


def test_all_that_is_shown_says_simulated_where_it_is(capsys):
    from rich.console import Console

    found = tuple(JobView.of(JOB, MEMORY, gpu, searcher=WattuneJobPolicy()) for gpu in gpus_of(MEMORY))
    print_job(Console(width=120), JOB, found, (), Tariff())
    out = capsys.readouterr().out
    assert "NVIDIA A40 (simulated)" in out
    assert "NVIDIA V100 (simulated)" not in out
    assert "next on NVIDIA A40 (simulated): batch size" in out
    document = overview_document(found[1], Tariff())
    assert document["gpu"]["simulated"] is True
    assert {size["batch_size"] for size in document["law"]} == {16, 32, 64, 128}
    page = job_file(found[1], searcher="wattune", made="Made now.", suffix=".html", tariff=Tariff())
    assert "simulated" in page


def test_predicted_epochs_are_a_band_around_those_of_the_runs():
    policy = WattuneJobPolicy()
    bands = {band.batch_size: band for band in policy.predict_epochs(JOB, MEMORY, GPU)}
    assert all(band.low < band.epochs < band.high for band in bands.values())
    assert 8 < bands[32].epochs < 10.5
    assert policy.predict_epochs(JOB, JobMemory(), GPU) == ()


class NothingLeft:
    """A searcher that has nothing to propose."""

    name = "zeus"

    def propose(self, job, memory, gpu) -> Proposal:
        raise Infeasible("no batch size is left", hint="add smaller ones")

    def stop(self, job, memory, run):
        return None

    def predict_epochs(self, job, memory, gpu):
        return ()


def test_a_job_without_a_size_to_try_can_be_shown(capsys):
    from rich.console import Console

    found = JobView.of(JOB, MEMORY, GPU, searcher=NothingLeft())
    assert found.proposal is None
    print_job(Console(width=80), JOB, (found,), (), Tariff())
    assert "next on NVIDIA A40 (simulated): no batch size is left to try" in capsys.readouterr().out
    assert overview_document(found, Tariff())["next"] is None


def test_lines_for_people():
    assert account_lines(account(JOB, JobMemory(), GPU), Tariff()) == ("no runs yet on NVIDIA A40 (simulated)",)
    text = "\n".join(account_lines(account(JOB, MEMORY, GPU), Tariff()))
    assert "the steps of 3 recurrences, learning included, against the same work by default: time −5.4 ± " in text
    assert "the savings have paid for learning" in text
    line = end_line(RUNS[0], "the target 0.75 is reached after 10 epochs", Tariff())
    assert line.startswith("run run-0: the target 0.75 is reached after 10 epochs; 10.0 kJ in 50.0 s (simulated) at")
    assert end_line(RUNS[4], "32 is cheaper", Tariff()).startswith("run run-4: stopped by wattune (32 is cheaper); ")
