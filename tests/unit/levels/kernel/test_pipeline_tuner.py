"""One rank that plans while it trains, on simulated time: what it reads and what it sets."""

from itertools import pairwise
from random import Random

import pytest
from counted_gpu import CountedGpu

from wattune.core.errors import NotSupported
from wattune.core.setting import Setting
from wattune.levels.kernel.curves import Curve
from wattune.levels.kernel.online import OnlinePlanning, PlanHeld, PlanProfiling
from wattune.levels.kernel.shape import PipelineShape
from wattune.levels.kernel.tuner import OnlineListener

SHAPE = PipelineShape("1f1b", 1, 4)
SETTINGS = (Setting(1410), Setting(1005), Setting(900))
TRUTH = {
    "0.forward": Curve(1410, 0.002, 0.018, 0.2, 90.0, 200.0, 0.6, 0.3),
    "0.backward": Curve(1410, 0.002, 0.040, 0.2, 95.0, 240.0, 0.6, 0.3),
}


def tuner(gpu):
    policy = OnlinePlanning(graph=SHAPE.graph, spec=gpu.spec, settings=SETTINGS, slowdown=0.1)
    shared = []

    def share(reading):
        shared.append(reading)
        return [reading]

    return OnlineListener(policy, gpu=gpu, clocks=gpu, stamps=gpu, share=share, rank=0, wait=gpu.wait), shared


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
def test_it_profiles_at_each_clock_until_the_counter_has_told_enough(jitter):
    gpu = CountedGpu()
    listener, shared = tuner(gpu)
    while isinstance(listener.progress, PlanProfiling):
        train(listener, gpu, jitter=jitter)
    assert gpu.history == list(SETTINGS)
    for kind, trials in listener.progress.profile.items():
        for trial in trials:
            truth = TRUTH[kind].cost(trial.choice.setting.sm_mhz)
            assert trial.cost.time_s == pytest.approx(truth.time_s, rel=0.02)
            assert trial.cost.energy_j == pytest.approx(truth.energy_j, rel=0.03)
    assert listener.progress.waiting_w == pytest.approx(60.0, rel=0.3)
    told = [number for number, reading in enumerate(shared) if reading.trials]
    assert len(told) == len(SETTINGS)
    assert all(after - before > 5 for before, after in pairwise(told))  # 0.3 to 0.4 s each, 20 moves of 0.1 s


def test_it_plays_the_plan_and_reads_how_long_it_was_busy():
    gpu = CountedGpu()
    listener, shared = tuner(gpu)
    trained(listener, gpu)
    planned = set(listener.progress.held[0].choices)
    gpu.history.clear()
    train(listener, gpu)
    assert set(gpu.history) <= {choice.setting for choice in planned}
    busy_s = sum(listener.progress.held[0].durations_s)
    assert shared[-1].busy_s == pytest.approx(busy_s, rel=0.02)
    assert shared[-1].trials == ()


def test_a_slow_rank_is_known_after_two_iterations_and_forgotten_after_two():
    gpu = CountedGpu()
    listener, _ = tuner(gpu)
    trained(listener, gpu)
    for slowdown, believed in ((1.5, 1.0), (1.5, 1.5), (1.0, 1.5), (1.0, 1.0)):
        train(listener, gpu, slowdown=slowdown)
        assert listener.progress.slowdowns[0][0] == pytest.approx(believed, rel=0.03)


def test_a_counter_that_does_not_move_is_an_error_and_no_zero():
    gpu = CountedGpu(moves=False)
    listener, _ = tuner(gpu)
    with pytest.raises(NotSupported, match="does not move"):
        trained(listener, gpu, most=400)


def test_an_iteration_that_broke_off_is_followed_by_a_whole_one():
    gpu = CountedGpu()
    listener, _ = tuner(gpu)
    listener.start()
    listener.begin(SHAPE.order[0][0])
    train(listener, gpu)
    assert gpu.history == [SETTINGS[0]]
