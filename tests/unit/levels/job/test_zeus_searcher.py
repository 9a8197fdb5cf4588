"""Zeus's batch size optimizer, as published."""

from dataclasses import replace

import pytest

from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.job.zeus import ZeusSearcher

GPU = JobGpu(name="v100", simulated=False, max_power_w=100.0)
JOB = Job(name="nightly", batch_sizes=(8, 16, 32, 64, 128), default_batch_size=32, target=0.6, max_epochs=10)
COSTS = {8: 900.0, 16: 300.0, 32: 400.0, 64: 500.0, 128: 950.0}


def ran(order, size, *, cost, outcome=Outcome.REACHED, epochs=4, recurrence=None, ended=None):
    """A run whose cost, half of energy and half of 100 W times seconds, is this."""
    return JobRun(
        id=str(order),
        order=order,
        recurrence=order if recurrence is None else recurrence,
        batch_size=size,
        gpu=GPU,
        outcome=outcome,
        metrics=(0.1,) * epochs,
        cost=None if outcome is Outcome.RUNNING else Measurement(cost / 100, cost),
        ended=order + 1 if ended is None else ended,
    )


def served(searcher, count, *, failing=(), costs=COSTS):
    """The sizes of so many runs, one after another, and the memory they leave."""
    memory, sizes, recurrence = JobMemory(), [], 0
    for order in range(count):
        size = searcher.propose(JOB, memory, GPU).batch_size
        reached = size not in failing
        outcome = Outcome.REACHED if reached else Outcome.STOPPED
        # A little noise, the same in each test, so that variances are not zero.
        cost = costs[size] * (1 + 0.01 * (order * 7 % 5))
        memory = JobMemory((*memory.runs, ran(order, size, cost=cost, outcome=outcome, recurrence=recurrence)))
        recurrence += reached
        sizes.append(size)
    return sizes, memory


def test_pruning_goes_down_then_up_twice_and_starts_again_from_the_cheapest():
    sizes, _ = served(ZeusSearcher(), 10)
    assert sizes == [32, 16, 8, 64, 128, 16, 8, 32, 64, 128]


def test_a_failure_ends_that_way_and_prunes_the_size():
    sizes, _ = served(ZeusSearcher(), 9, failing={8, 128})
    assert sizes[:5] == [32, 16, 8, 64, 128]
    assert sizes[5:8] == [16, 32, 64]
    assert sizes[8] in (16, 32, 64)


def test_sampling_prefers_what_was_cheap():
    sizes, _ = served(ZeusSearcher(), 60)
    assert sizes[10:].count(16) > 45


def test_equal_memories_and_seeds_choose_alike_and_other_seeds_differ():
    even = dict.fromkeys(COSTS, 500.0)
    first, second = (served(ZeusSearcher(seed=1), 40, costs=even)[0] for _ in range(2))
    assert first == second
    assert first != served(ZeusSearcher(seed=2), 40, costs=even)[0]


def test_all_draws_of_one_choice_are_independent():
    """The published server seeds each arm alike with the clock's second, so that they all have the same luck."""
    even = dict.fromkeys(COSTS, 500.0)
    assert len(set(served(ZeusSearcher(), 60, costs=even)[0][10:])) > 2


def test_while_the_pruning_waits_others_get_the_cheapest_so_far():
    _, memory = served(ZeusSearcher(), 2)
    out = JobMemory((*memory.runs, ran(2, 8, cost=0.0, outcome=Outcome.RUNNING)))
    proposal = ZeusSearcher().propose(JOB, out, GPU)
    assert (proposal.batch_size, proposal.exploring) == (16, False)
    first = JobMemory((ran(0, 32, cost=0.0, outcome=Outcome.RUNNING),))
    assert ZeusSearcher().propose(JOB, first, GPU).batch_size == 32


def test_what_runs_beside_the_pruning_does_not_move_it():
    _, memory = served(ZeusSearcher(), 2)
    beside = ran(2, 16, cost=310.0)
    assert ZeusSearcher().propose(JOB, JobMemory((*memory.runs, beside)), GPU).batch_size == 8


def test_a_crash_says_nothing_and_no_memory_is_a_failure():
    _, memory = served(ZeusSearcher(), 1)
    crashed = JobMemory((*memory.runs, ran(1, 16, cost=1.0, outcome=Outcome.CRASHED)))
    assert ZeusSearcher().propose(JOB, crashed, GPU).batch_size == 16
    full = JobMemory((*memory.runs, ran(1, 16, cost=1.0, outcome=Outcome.OUT_OF_MEMORY)))
    assert ZeusSearcher().propose(JOB, full, GPU).batch_size == 64


def test_when_everything_was_pruned_the_default_is_left():
    _, memory = served(ZeusSearcher(), 8, failing=set(COSTS))
    assert ZeusSearcher().propose(JOB, memory, GPU).batch_size == 32


def test_a_run_stops_before_it_passes_twice_the_least_cost():
    memory = JobMemory((ran(0, 32, cost=400.0),), (_profile(16, 100.0),))
    run = replace(ran(1, 16, cost=700.0, epochs=7), outcome=Outcome.RUNNING, cost=Measurement(7.0, 700.0))
    assert ZeusSearcher().stop(JOB, memory, run) is None
    assert "2 times" in ZeusSearcher().stop(JOB, memory, replace(run, metrics=(0.1,) * 8))
    assert ZeusSearcher(beta=None).stop(JOB, memory, replace(run, metrics=(0.1,) * 8)) is None
    assert ZeusSearcher().stop(JOB, JobMemory(), run) is None


def test_without_a_profile_the_epochs_so_far_tell_what_the_next_one_costs():
    memory = JobMemory((ran(0, 32, cost=400.0),))
    run = replace(ran(1, 16, cost=700.0, epochs=7), outcome=Outcome.RUNNING, cost=Measurement(7.0, 700.0))
    assert ZeusSearcher().stop(JOB, memory, run) is None
    assert ZeusSearcher().stop(JOB, memory, replace(run, cost=Measurement(7.1, 710.0))) is not None


def test_the_least_cost_counts_failed_runs_of_the_same_recurrence_and_no_failure_lowers_it():
    failed = ran(0, 8, cost=100.0, outcome=Outcome.STOPPED, recurrence=0)
    memory = JobMemory((failed, ran(1, 32, cost=400.0, recurrence=0)), (_profile(16, 100.0),))
    run = replace(ran(2, 16, cost=0.0, epochs=9), outcome=Outcome.RUNNING, cost=Measurement(9.0, 900.0))
    assert ZeusSearcher().stop(JOB, memory, run) is None
    assert ZeusSearcher().stop(JOB, memory, replace(run, metrics=(0.1,) * 10)) is not None


def test_a_window_forgets_old_observations():
    memory = JobMemory(
        tuple(
            ran(order, size, cost=cost)
            for order, (size, cost) in enumerate(
                [*((size, 500.0) for size in (32, 16, 8, 64, 128)), *((size, 501.0) for size in (32, 16, 8, 64, 128))]
            )
        )
    )
    runs = list(memory.runs)
    for _ in range(6):
        runs.append(ran(len(runs), 32, cost=200.0 + len(runs)))
    chosen = {
        window: [ZeusSearcher(window=window, seed=seed).propose(JOB, JobMemory(tuple(runs)), GPU) for seed in range(20)]
        for window in (0, 3)
    }
    assert all(proposal.batch_size == 32 for proposal in chosen[3])


@pytest.mark.parametrize("objective", ["energy:5%", "deadline:2h", "money:0.3,2", "edp"])
def test_other_objectives_are_taken_too(objective):
    job = replace(JOB, objective=objective)
    _, memory = served(ZeusSearcher(), 12)
    assert ZeusSearcher().propose(job, memory, GPU).batch_size in JOB.batch_sizes


def _profile(size, epoch_cost):
    cost = Measurement(epoch_cost / 100, epoch_cost)
    return Profile(gpu=GPU, batch_size=size, trials=(Trial(Setting(power_limit_w=100.0), cost),))
