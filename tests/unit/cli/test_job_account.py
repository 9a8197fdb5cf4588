"""Costs of the runs of a job, compared with default runs."""

import pytest

from wattune.cli.job.output import account_lines, end_line, overview_document, print_job, simulated_fields
from wattune.core.errors import Infeasible
from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, Proposal
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.tariff import Tariff
from wattune.levels.job.policy import WattuneJobPolicy
from wattune.levels.job.view.page import job_file
from wattune.levels.job.view.view_model import JobView, gpus_of

GPU = JobGpu(name="NVIDIA A40", simulated=True, max_power_w=300.0)
OTHER = JobGpu(name="NVIDIA V100", simulated=False, max_power_w=250.0)
JOB = Job(
    name="nightly", batch_sizes=(16, 32, 64, 128), default_batch_size=64, target=0.75, max_epochs=50, objective="cost:1"
)


def ran(order, size, outcome, epochs, energy_j, *, gpu=GPU, exploring=False, recurrence=None, profiling_j=0.0):
    return JobRun(
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
    assert found.default_run.energy_j == pytest.approx(12_000.0)  # ten epochs at the highest limit
    assert found.best_run.energy_j == pytest.approx(8_500.0)
    assert found.saving_percent == pytest.approx(100 * (1 - 33_100 / 36_000))
    assert found.break_even == 0


def test_sizes_have_states():
    states = {size.batch_size: size.state for size in account(JOB, MEMORY, GPU).sizes}
    assert states == {16: "failed", 32: "tried", 64: "tried", 128: "infeasible"}
    epochs = {size.batch_size: size.epochs for size in account(JOB, MEMORY, GPU).sizes}
    assert epochs == {16: 20.0, 32: 9.0, 64: 10.0, 128: None}  # epochs do not depend on the part
    assert {size.state for size in account(JOB, JobMemory(), GPU).sizes} == {"untried"}
    running = account(JOB, JobMemory(RUNS[5:6]), GPU)
    assert running.sizes[2].state == "running"
    assert running.saving_percent is None


def test_sizes_of_an_earlier_definition_stay_listed():
    earlier = JobMemory((ran(0, 8, Outcome.REACHED, 4, 1.0),))
    assert [size.batch_size for size in account(JOB, earlier, GPU).sizes] == [8, 16, 32, 64, 128]


def test_break_even_is_reckoned_from_what_a_run_saves():
    memory = JobMemory((*RUNS[:2], ran(2, 16, Outcome.STOPPED, 9, 20_000.0, exploring=True)), MEMORY.profiles)
    found = account(JOB, memory, GPU)
    assert found.break_even == 4  # 38,000 J instead of 24,000 J; a run at 32 saves 4,000 J
    assert found.saving_percent < 0
    only_default = JobMemory((RUNS[0], ran(1, 32, Outcome.MISSED, 50, 50_000.0, exploring=True)))
    assert account(JOB, only_default, GPU).break_even is None


def test_without_a_default_run_nothing_is_said_to_be_saved():
    found = account(JOB, JobMemory(RUNS[1:2]), GPU)
    assert (found.default_run, found.saving_percent, found.break_even) == (None, None, None)


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
    assert "next: batch size" in out
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
    assert "next: no batch size is left to try" in capsys.readouterr().out
    assert overview_document(found, Tariff())["next"] is None


def test_lines_for_people():
    assert account_lines(account(JOB, JobMemory(), GPU), Tariff()) == ("no runs yet on NVIDIA A40 (simulated)",)
    text = "\n".join(account_lines(account(JOB, MEMORY, GPU), Tariff()))
    assert "energy −8.1 %" in text
    assert "the savings have paid for learning" in text
    line = end_line(RUNS[0], "the target 0.75 is reached after 10 epochs", Tariff())
    assert line.startswith("run run-0: the target 0.75 is reached after 10 epochs; 10.0 kJ in 50.0 s (simulated) at")
    assert end_line(RUNS[4], "32 is cheaper", Tariff()).startswith("run run-4: stopped by wattune (32 is cheaper); ")
