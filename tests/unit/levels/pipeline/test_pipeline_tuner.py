"""One rank that plans while it trains, in simulated time: what it measures, sets and exchanges."""

from itertools import pairwise
from random import Random

import pytest
from counted_gpu import CountedGpu

from wattune.core.errors import SettingRefused
from wattune.core.setting import Setting
from wattune.levels.pipeline.online import OnlinePlanning, PlanDisabled, PlanHeld, PlanProfiling
from wattune.levels.pipeline.profiling import Curve
from wattune.levels.pipeline.tuner import OnlineListener
from wattune.plans.shape import PipelineShape

SHAPE = PipelineShape("1f1b", 1, 4)
SETTINGS = (Setting(1410), Setting(1005), Setting(900))
TRUTH = {
    "0.forward": Curve(1410, 0.002, 0.018, 0.2, 90.0, 200.0, 0.6, 0.3),
    "0.backward": Curve(1410, 0.002, 0.040, 0.2, 95.0, 240.0, 0.6, 0.3),
}


class ListeningRanks:
    """One rank, whose readings are written down with the iteration that they are from."""

    rank, size = 0, 1

    def __init__(self, policy):
        self.policy, self.listener = policy, None
        self.exchanges, self.readings = 0, {}

    def sum_and_max(self, values):
        self.exchanges += 1
        if len(values) == self.policy.numbers + 1 and not values[0]:
            (reading,) = self.policy.decoded(self.listener.progress, values[1:])
            self.readings[self.listener._iteration] = reading
        return tuple(values), tuple(values)


def tuner(gpu):
    policy = OnlinePlanning(graph=SHAPE.graph, spec=gpu.spec, settings=SETTINGS, slowdown=0.1)
    ranks = ListeningRanks(policy)
    listener = OnlineListener(policy, gpu=gpu, clocks=gpu, stamp=gpu.stamp, ranks=ranks, rank=0, wait=gpu.wait)
    ranks.listener = listener
    return listener, ranks


JITTER = Random(2)


def train(listener, gpu, *, slowdown=1.0, jitter=0.03):
    """One iteration, with a wait before each instruction and a step of the optimizer after all."""
    listener.start()
    for piece in SHAPE.order[0]:
        gpu.run(0.005, 60.0)
        listener.begin(piece)
        cost = TRUTH[piece.kind].cost(gpu.setting.sm_mhz)
        gpu.run(cost.time_s * slowdown * JITTER.uniform(1 - jitter, 1 + jitter), cost.power_w)
        listener.end(piece)
    listener.finish()
    gpu.run(0.02, 150.0)


def trained(listener, gpu, most=400):
    for _ in range(most):
        train(listener, gpu)
        if isinstance(listener.progress, PlanHeld):
            return
    raise AssertionError(f"nothing planned after {most} iterations")


@pytest.mark.parametrize("jitter", [0.03, 0.0], ids=["drifting", "in step with the counter"])
def test_it_profiles_at_each_clock_until_the_counter_has_moved_often_enough(jitter):
    gpu = CountedGpu()
    listener, ranks = tuner(gpu)
    while isinstance(listener.progress, PlanProfiling):
        train(listener, gpu, jitter=jitter)
    assert gpu.history == list(SETTINGS)
    for kind, trials in listener.progress.profile.items():
        for trial in trials:
            truth = TRUTH[kind].cost(trial.choice.setting.sm_mhz)
            assert trial.cost.time_s == pytest.approx(truth.time_s, rel=0.02)
            assert trial.cost.energy_j == pytest.approx(truth.energy_j, rel=0.03)
    assert listener.progress.waiting_w == pytest.approx(60.0, rel=0.3)
    measured = [iteration for iteration, reading in ranks.readings.items() if reading.trials]
    assert len(measured) == len(SETTINGS)
    assert all(after - before > 5 for before, after in pairwise(measured))  # 0.3 to 0.4 s each, 20 moves of 0.1 s


def train_to_decision(listener, gpu, ranks, **options):
    """Train until the ranks have exchanged readings again, and return how many iterations that took."""
    before = ranks.exchanges
    for number in range(1, 1000):
        train(listener, gpu, **options)
        if ranks.exchanges > before:
            return number
    raise AssertionError("no decision within 1000 iterations")


def test_it_plays_the_plan_and_measures_how_long_it_was_busy():
    gpu = CountedGpu()
    listener, ranks = tuner(gpu)
    trained(listener, gpu)
    planned = set(listener.progress.held[0].choices)
    gpu.history.clear()
    train_to_decision(listener, gpu, ranks)
    assert set(gpu.history) <= {choice.setting for choice in planned}
    busy_s = sum(listener.progress.held[0].durations_s)
    reading = list(ranks.readings.values())[-1]
    assert reading.busy_s == pytest.approx(busy_s, rel=0.02)
    assert reading.trials == ()


def test_between_decisions_a_held_plan_waits_for_no_gpu_and_no_rank():
    gpu = CountedGpu()
    listener, ranks = tuner(gpu)
    trained(listener, gpu)
    train_to_decision(listener, gpu, ranks)
    train_to_decision(listener, gpu, ranks)
    stamps, waits, counts, exchanges = gpu.stamps, gpu.waits, gpu.counts, ranks.exchanges
    iterations = train_to_decision(listener, gpu, ranks)
    assert iterations > 5  # of 0.3 s each
    assert ranks.exchanges - exchanges == 2
    instructions = len(SHAPE.order[0])
    assert gpu.waits - waits == 1
    assert gpu.counts - counts == 1
    assert gpu.stamps - stamps <= 2 * instructions + len(gpu.history)


def test_a_slow_rank_is_known_one_iteration_after_the_decision_that_notices_it():
    gpu = CountedGpu()
    listener, ranks = tuner(gpu)
    trained(listener, gpu)
    train_to_decision(listener, gpu, ranks)
    for slowdown, believed, soon in ((1.5, 1.0, False), (1.5, 1.5, True), (1.0, 1.5, False), (1.0, 1.0, True)):
        iterations = train_to_decision(listener, gpu, ranks, slowdown=slowdown)
        assert not soon or iterations == 1
        assert listener.progress.slowdowns[0][0] == pytest.approx(believed, rel=0.03)


def test_a_counter_that_does_not_move_disables_tuning_and_is_no_zero():
    gpu = CountedGpu(moves=False)
    listener, ranks = tuner(gpu)
    while not isinstance(listener.progress, PlanDisabled):
        train(listener, gpu)
    assert "does not move" in listener.progress.why
    assert gpu.disabled == listener.progress.why
    exchanges = ranks.exchanges
    train(listener, gpu)
    assert ranks.exchanges == exchanges


def test_a_refused_clock_disables_tuning_at_the_next_decision():
    gpu = CountedGpu()
    listener, ranks = tuner(gpu)
    trained(listener, gpu)
    gpu.failure = SettingRefused("no such clock")
    train_to_decision(listener, gpu, ranks)
    assert listener.progress == PlanDisabled("no such clock")
    assert gpu.disabled == "no such clock"


def test_a_failing_hook_restores_at_once_and_is_announced_at_the_next_decision():
    gpu = CountedGpu()
    listener, ranks = tuner(gpu)
    trained(listener, gpu)
    listener.fail(OSError("mine"))
    assert gpu.disabled == "OSError: mine"
    assert isinstance(listener.progress, PlanHeld)
    gpu.history.clear()
    train_to_decision(listener, gpu, ranks)
    assert listener.progress == PlanDisabled("OSError: mine")
    assert gpu.history == []


def test_an_iteration_that_broke_off_is_followed_by_a_whole_one():
    gpu = CountedGpu()
    listener, _ = tuner(gpu)
    listener.start()
    listener.begin(SHAPE.order[0][0])
    train(listener, gpu)
    assert gpu.history == [SETTINGS[0]]
