"""Our batch size policy: first runs, objectives, redefined jobs, and its reasons."""

from dataclasses import replace
from math import inf, nan

import pytest

from synthetic_job import EPOCHS, GPU, JOB, World, ended, epoch_cost, finished, profile, remembered
from wattune.core.job import JobGpu, JobMemory, Outcome
from wattune.levels.job.policy import WattuneJobPolicy

SEARCHER = WattuneJobPolicy()


def test_the_first_run_is_the_default():
    proposal = SEARCHER.propose(JOB, JobMemory(), GPU)
    assert (proposal.batch_size, proposal.exploring) == (512, False)
    assert "default" in proposal.why


def test_runs_submitted_before_the_first_has_ended_are_the_default_too():
    out = ended(0, 512, 3, outcome=Outcome.RUNNING, whole=40.0)
    assert SEARCHER.propose(JOB, JobMemory((out,)), GPU).batch_size == 512


def test_a_default_that_misses_the_target_gives_way_to_its_neighbours():
    missed = ended(0, 512, 100, outcome=Outcome.MISSED, whole=500.0)
    first = SEARCHER.propose(JOB, JobMemory((missed,)), GPU).batch_size
    assert first in (256, 1024)
    again = ended(1, first, 100, outcome=Outcome.MISSED, whole=500.0)
    assert SEARCHER.propose(JOB, JobMemory((missed, again)), GPU).batch_size not in (512, first)


def test_a_job_whose_default_never_learns_is_trained_all_the_same():
    world = World(SEARCHER, epochs=EPOCHS | {512: None, 1024: None})
    world.recur(12)
    assert world.memory.runs[-1].batch_size in (64, 128, 256)


def test_what_replaces_a_stopped_trial_is_no_trial():
    stopped = ended(2, 1024, 5, outcome=Outcome.STOPPED, whole=90.0, exploring=True)
    memory = remembered(finished(0, 512, 40), finished(1, 512, 40), stopped)
    assert not SEARCHER.propose(JOB, memory, GPU).exploring


@pytest.mark.parametrize("objective", ["cost:0", "cost:1", "money:0.3,2.5", "carbon:380", "edp", "ed2p", "power:200"])
def test_every_objective_is_followed(objective):
    world = World(SEARCHER, job=replace(JOB, objective=objective), noise=0.02)
    costs = world.recur(20)
    degree = {"edp": 2, "ed2p": 3}.get(objective, 1)
    fixed = min(world.value(epoch_cost(size)) * needed**degree for size, needed in EPOCHS.items())
    assert sum(costs[12:]) / 8 <= 1.15 * fixed


def test_a_deadline_leaves_the_sizes_that_keep_it():
    """With this part 512 takes the least energy, and half as long again as 256."""
    runs = [finished(order, size, int(EPOCHS[size])) for order, size in enumerate((512, 256, 512, 256, 512, 256))]
    frugal = [
        replace(run, cost=replace(run.cost, energy_j=run.cost.energy_j / 3)) if run.batch_size == 512 else run
        for run in runs
    ]
    memory = remembered(*frugal)
    long_s, short_s = 1e6, 1.1 * EPOCHS[256] * epoch_cost(256).time_s
    assert SEARCHER.propose(replace(JOB, objective=f"deadline:{long_s}s"), memory, GPU).batch_size >= 512
    assert SEARCHER.propose(replace(JOB, objective=f"deadline:{short_s}s"), memory, GPU).batch_size <= 256


def test_a_deadline_that_nothing_keeps_takes_the_fastest():
    runs = [finished(order, size, int(EPOCHS[size])) for order, size in enumerate((512, 256, 128, 256, 128))]
    job = replace(JOB, objective="deadline:1s")
    times = {size: EPOCHS[size] * epoch_cost(size).time_s for size in (512, 256, 128)}
    assert SEARCHER.propose(job, remembered(*runs), GPU).batch_size == min(times, key=lambda size: times[size])


def test_a_slowdown_is_held_against_the_default_run():
    runs = [finished(order, size, int(EPOCHS[size])) for order, size in enumerate((512, 256, 128, 256, 128))]
    assert SEARCHER.propose(replace(JOB, objective="energy:5%"), remembered(*runs), GPU).batch_size in (64, 128)


def test_a_job_that_was_redefined_with_other_sizes_ignores_runs_of_sizes_that_are_gone():
    memory = remembered(*(finished(order, size, int(EPOCHS[size])) for order, size in enumerate((512, 256, 128, 128))))
    job = replace(JOB, batch_sizes=(48, 96, 192), default_batch_size=96)
    assert SEARCHER.propose(job, memory, GPU).batch_size == 96
    going = ended(4, 128, 5, outcome=Outcome.RUNNING, whole=18.0, exploring=True)
    assert SEARCHER.stop(job, memory, going) is None


@pytest.mark.parametrize("report", [None, nan, inf, -inf])
def test_reports_that_are_no_numbers_do_no_harm(report):
    outlier = replace(finished(1, 256, 24, exploring=True), metrics=(report,) * 24)
    memory = remembered(finished(0, 512, 40), outlier, finished(2, 256, 25))
    assert SEARCHER.propose(JOB, memory, GPU).batch_size in JOB.batch_sizes
    going = replace(ended(3, 64, 4, outcome=Outcome.RUNNING, whole=15.0, exploring=True), metrics=(report,) * 4)
    assert SEARCHER.stop(JOB, memory, going) is None


def test_a_job_without_any_metric_is_still_learned():
    """Runs that report nothing but their end: a program that stops by itself at the target."""
    runs = [replace(finished(order, size, n), metrics=(None,) * n) for order, (size, n) in enumerate([(512, 40)] * 3)]
    assert SEARCHER.propose(JOB, remembered(*runs), GPU).batch_size in JOB.batch_sizes


def test_a_lower_metric_may_be_the_better_one():
    job = replace(JOB, higher_is_better=False, target=-0.9)
    runs = [finished(0, 512, 40), finished(1, 512, 40)]
    turned = [replace(run, metrics=tuple(-metric for metric in run.metrics)) for run in runs]
    slow = ended(2, 1024, 8, outcome=Outcome.RUNNING, whole=300.0, exploring=True)
    slow = replace(slow, metrics=tuple(-metric for metric in slow.metrics))
    quick = ended(2, 256, 8, outcome=Outcome.RUNNING, whole=20.0, exploring=True)
    quick = replace(quick, metrics=tuple(-metric for metric in quick.metrics))
    memory = remembered(*turned)
    memory = replace(memory, profiles=(*memory.profiles, profile(1024), profile(256)))
    assert SEARCHER.stop(job, memory, quick) is None
    assert SEARCHER.stop(job, memory, slow) is not None


def test_the_reason_is_a_sentence_with_its_figures():
    trial = SEARCHER.propose(JOB, remembered(*(finished(order, 512, 40) for order in range(3))), GPU)
    assert trial.exploring
    assert "trial of" in trial.why
    assert "epochs" in trial.why
    assert "%" in trial.why
    known = SEARCHER.propose(JOB, remembered(*(finished(order, 128, 18) for order in range(40))), GPU)
    assert "cheapest known" in known.why or known.exploring


def test_a_new_part_learns_sizes_too_large_for_itself_only():
    small = JobGpu(name="small", simulated=True, max_power_w=150.0)
    world = World(SEARCHER)
    world.recur(10)
    refused = ended(len(world.memory.runs), 128, 0, outcome=Outcome.OUT_OF_MEMORY, gpu=small)
    memory = replace(world.memory, runs=(*world.memory.runs, refused))
    assert SEARCHER.propose(JOB, memory, small).batch_size < 128
    assert SEARCHER.propose(JOB, memory, GPU).batch_size == world.memory.runs[-1].batch_size
