"""The replay of recurring jobs: who sees what, and who pays."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from job_tables import write_tables
from wattune.core.job import Outcome, Proposal
from wattune.core.setting import Setting
from wattune.levels.job.zeus import ZeusSearcher
from wattune_bench.job.cases import FixedChoice, make_policy
from wattune_bench.job.environment import ATTEMPTS, play
from wattune_bench.job.replayed_run import PaidEpochs, Ruled, ShippedLimits, ZeusLimits
from wattune_bench.job.trace import JobDrift, read_workloads

TOP = Setting(power_limit_w=250.0)


@pytest.fixture
def workload(tmp_path):
    (found,) = read_workloads(write_tables(tmp_path))
    return found


@dataclass
class Scripted:
    """Proposes sizes in turn, stops after so many epochs of the first run, and remembers what it was shown."""

    sizes: tuple[int, ...]
    stop_after: int | None = None
    shown: list = field(default_factory=list)
    name: str = "scripted"

    def propose(self, job, memory, gpu):
        self.shown.append((memory, None))
        return Proposal(self.sizes[len(memory.runs) % len(self.sizes)], exploring=False, why="in turn")

    def stop(self, job, memory, run):
        self.shown.append((memory, run))
        return "enough" if run.order == 0 and run.epochs == self.stop_after else None


def test_the_default_pays_its_epochs_at_the_highest_limit(workload):
    searcher, limits = make_policy("default", workload, 0)
    played = play(workload, searcher, limits, recurrences=30, seed=1)
    epoch = workload.epochs[64][TOP]
    for bill, run in zip(played.recurrences, played.memory.runs, strict=True):
        assert run.outcome is Outcome.REACHED
        assert run.setting == TOP
        assert bill.time_s == pytest.approx(run.epochs * epoch.time_s)
        assert bill.energy_j == pytest.approx(run.epochs * epoch.energy_j)
        assert bill.profiling == 0
    assert {run.epochs for run in played.memory.runs} == {8, 9, 10}


def test_the_mean_of_many_recurrences_is_what_is_expected(workload):
    searcher, limits = make_policy("oracle", workload, 0)
    played = play(workload, searcher, limits, recurrences=600, seed=3)
    expected = workload.objective.value(workload.oracle[1])
    assert played.costs.mean() == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("policy", ["grid", "zeus", "wattune"])
@pytest.mark.parametrize("load", [None, 0.8])
def test_every_run_is_paid_for_and_seeds_repeat(workload, policy, load):
    def once():
        searcher, limits = make_policy(policy, workload, 5)
        return play(workload, searcher, limits, recurrences=15, seed=5, load=load)

    played = once()
    spent = {}
    for run in played.memory.runs:
        time_s, energy_j = spent.get(run.recurrence, (0.0, 0.0))
        spent[run.recurrence] = (time_s + run.cost.time_s, energy_j + run.cost.energy_j)
        assert run.outcome is not Outcome.RUNNING
        assert run.ended is not None
    assert sorted(spent) == list(range(15))
    for number, bill in enumerate(played.recurrences):
        assert (bill.time_s, bill.energy_j) == pytest.approx(spent[number])
        assert bill.reached
    assert [run.order for run in played.memory.runs] == list(range(len(played.memory.runs)))
    assert once() == played


def test_a_stopped_run_is_replaced_in_its_recurrence_which_pays_for_both(workload):
    searcher = Scripted((16, 64), stop_after=2)
    played = play(workload, searcher, Ruled(lambda *_: TOP), recurrences=1, seed=0)
    first, second = played.memory.runs
    assert (first.outcome, first.epochs, second.outcome) == (Outcome.STOPPED, 2, Outcome.REACHED)
    assert (first.recurrence, second.recurrence) == (0, 0)
    assert played.recurrences[0].batch_sizes == (16, 64)
    assert played.recurrences[0].time_s == pytest.approx(first.cost.time_s + second.cost.time_s)


def test_a_missed_run_costs_all_its_epochs(tmp_path):
    (workload,) = read_workloads(write_tables(tmp_path, never=(16,)))
    played = play(workload, Scripted((16, 64)), Ruled(lambda *_: TOP), recurrences=1, seed=0)
    missed, _ = played.memory.runs
    assert (missed.outcome, missed.epochs) == (Outcome.MISSED, workload.job.max_epochs)


def test_it_is_given_up_after_twenty_runs(tmp_path):
    (workload,) = read_workloads(write_tables(tmp_path, never=(16,)))
    played = play(workload, FixedChoice("stubborn", 16), Ruled(lambda *_: TOP), recurrences=5, seed=0)
    assert played.stuck
    assert len(played.recurrences) == 1
    assert played.recurrences[0].attempts == ATTEMPTS


def test_a_searcher_sees_only_what_has_happened(workload):
    searcher = Scripted((64, 128, 32))
    play(workload, searcher, ShippedLimits(), recurrences=6, seed=2)
    for memory, run in searcher.shown:
        over = memory.runs if run is None else memory.runs[:-1]
        tried = {old.batch_size for old in memory.runs}
        assert all(old.outcome is Outcome.REACHED for old in over)
        assert {profile.batch_size for profile in memory.profiles} <= tried
        if run is not None:
            submitted = memory.runs[run.order]
            assert (submitted.outcome, submitted.metrics, submitted.cost) == (Outcome.RUNNING, (), None)
            assert run.outcome is Outcome.RUNNING
            assert not any(workload.job.reaches(metric) for metric in run.metrics)
            assert run.epochs < workload.job.max_epochs
            assert memory.profile(run.gpu, run.batch_size) is not None


def test_profiling_fades_and_the_best_limit_is_held_then(workload):
    played = play(workload, FixedChoice("same", 64), ShippedLimits(), recurrences=40, seed=0)
    first, *later = played.recurrences
    assert first.profiling > 0
    assert sum(bill.profiling > 0 for bill in later) <= 10
    assert all(bill.profiling == 0 for bill in later[-10:])
    held = played.memory.runs[-1].setting
    costs = {setting: workload.objective.value(cost) for setting, cost in workload.epochs[64].items()}
    assert costs[held] <= 1.01 * min(costs.values())


def test_zeus_goes_evenly_through_all_limits_in_the_first_epoch(workload):
    played = play(workload, FixedChoice("same", 64), ZeusLimits(), recurrences=2, seed=0)
    cells = list(workload.epochs[64].values())
    (profiled, _) = played.memory.runs
    assert profiled.profiling.time_s == pytest.approx(np.mean([cell.time_s for cell in cells]))
    assert profiled.profiling.energy_j == pytest.approx(np.mean([cell.energy_j for cell in cells]))


def test_the_profile_of_the_shipped_profiling_is_noisy_and_near_the_table(workload):
    played = play(workload, FixedChoice("same", 64), ShippedLimits(), recurrences=3, seed=0)
    (profile,) = played.memory.profiles
    assert len(profile.trials) > 1
    for trial in profile.trials:
        assert trial.cost.time_s == pytest.approx(workload.epochs[64][trial.choice].time_s, rel=0.05)
        assert trial.cost.time_s != workload.epochs[64][trial.choice].time_s


def test_drift_comes_half_way(workload):
    longer = workload.patient(4)
    searcher, limits = make_policy("default", longer, 0)
    played = play(longer, searcher, limits, recurrences=10, seed=0, drift=JobDrift(factor=2.0))
    epochs = [run.epochs for run in played.memory.runs]
    assert max(epochs[:5]) <= 10
    assert min(epochs[5:]) >= 16


def test_overlapping_runs_see_each_other(workload):
    searcher = Scripted((64,))
    played = play(workload, searcher, Ruled(lambda *_: TOP), recurrences=40, seed=0, load=3.0)
    assert len(played.recurrences) == 40
    assert any(old.outcome is Outcome.RUNNING for memory, run in searcher.shown if run is None for old in memory.runs)
    for memory, run in searcher.shown:
        if run is not None:
            assert memory.runs[run.order].metrics == ()
            assert [old.order for old in memory.runs] == list(range(len(memory.runs)))


def test_what_was_known_before_is_the_start(tmp_path):
    first, second = read_workloads(write_tables(tmp_path, gpus=("p100", "t4")))
    searcher = Scripted((64,))
    before = play(first, searcher, ShippedLimits(), recurrences=3, seed=0).memory
    played = play(second, searcher, ShippedLimits(), recurrences=2, seed=0, start=before)
    assert played.memory.runs[:3] == before.runs
    assert [run.recurrence for run in played.memory.runs] == [0, 1, 2, 3, 4]
    assert {profile.gpu.name for profile in played.memory.profiles} == {"p100", "t4"}
    assert len(played.recurrences) == 2


def test_policies_that_choose_alike_are_dealt_alike(workload):
    same = [
        play(workload, FixedChoice(name, 64), Ruled(lambda *_: TOP), recurrences=20, seed=4).costs.tolist()
        for name in "ab"
    ]
    assert same[0] == same[1]


def test_a_run_may_be_called_off_at_no_cost_only_in_the_published_conditions(workload):
    stingy = ZeusSearcher(beta=0.05)
    played = play(workload, stingy, ZeusLimits(), recurrences=2, seed=0)
    called_off = [run for run in played.memory.runs if not run.epochs]
    assert called_off
    assert all(run.cost.time_s == 0 and run.outcome is Outcome.STOPPED for run in called_off)
    assert all(run.epochs for run in play(workload, stingy, ShippedLimits(), recurrences=2, seed=0).memory.runs)


@pytest.mark.parametrize("policy", ["default", "oracle"])
def test_the_expected_cost_of_a_fixed_choice_is_that_of_the_table(workload, policy):
    searcher, limits = make_policy(policy, workload, 0)
    choice = workload.default if policy == "default" else workload.oracle[0]
    expected = workload.objective.value(workload.expected(choice))
    played = play(workload, searcher, limits, recurrences=10, seed=1)
    assert [bill.expected for bill in played.recurrences] == pytest.approx([expected] * 10)


@pytest.mark.parametrize("policy", ["zeus", "wattune"])
def test_costs_differ_from_what_was_expected_by_chance_only(workload, policy):
    drawn, expected = [], []
    for seed in range(30):
        searcher, limits = make_policy(policy, workload, seed)
        played = play(workload, searcher, limits, recurrences=12, seed=seed)
        drawn.append(played.costs.sum())
        expected.append(sum(bill.expected for bill in played.recurrences))
    differences = np.array(drawn) - np.array(expected)
    assert abs(differences.mean()) < 3 * differences.std() / len(differences) ** 0.5
    assert np.std(expected) < np.std(drawn)


def test_an_epoch_that_was_played_once_costs_the_same_for_every_training(workload):
    epochs = PaidEpochs(workload.epochs[64], TOP)
    third, first = epochs.after(3), epochs.after(1)
    assert third.spent == pytest.approx(tuple(3 * spent for spent in first.spent))
    assert epochs.after(3) is third
    assert first.spent[0] == pytest.approx(workload.epochs[64][TOP].time_s)
