"""Whether what a run says it saved is true, within the error that it states."""

from statistics import fmean

import pytest
from claimed_run import claimed

from wattune.control.controller import WindowController
from wattune.control.state import Observation, OpenWindow, Progress
from wattune.control.window_state import Measuring
from wattune.control.window_totals import Tally
from wattune.core.objective import LeastEnergy
from wattune.core.reading import Reading
from wattune.core.setting import DRIVER_DEFAULT
from wattune.core.window import Order, Purpose
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.integrations.training import TrainingEnergy
from wattune.levels.run.figures import RunFigures
from wattune.levels.run.policy import CurvePolicy
from wattune.levels.run.summaries import EstimateWithError
from wattune.physics.catalog import load_model
from wattune.signals.change import PERIOD, Change, Shift
from wattune.workloads.catalog import make_workload


@pytest.mark.parametrize(
    ("gpu", "workload", "seconds"), [("a100", "resnet50:64", 40.0), ("rtx-3080-ti", "resnet50:64", 35.0)]
)
def test_the_stated_interval_holds_the_truth(gpu, workload, seconds):
    claims = [claimed(gpu, workload, seconds + 0.37 * seed, seed=seed) for seed in range(30)]
    for which in (0, 1):  # the saving, the slowdown
        assert sum(claim.holds[which] for claim in claims) >= 0.93 * len(claims)
        assert abs(fmean(claim.off[which] for claim in claims)) < 0.001
    errors = [claim.figures.saving.error for claim in claims]
    assert fmean(errors) < 0.004  # and says something


def test_events_name_times_by_the_clock_of_the_run():
    spec = load_model("a100").spec()
    order = Order(setting=DRIVER_DEFAULT, purpose=Purpose.BASELINE, least_s=5.0, most_s=20.0)
    first, last = (Reading(time_s=at_s, energy_j=at_s, sm_util=1.0) for at_s in (1200.0, 1640.0))
    progress = Progress(spec, state=Measuring(order, OpenWindow(Tally(first))), first=first, last=first)
    change = Change(time_s=1640.0, since_s=1637.4, samples=3, shifts={PERIOD: Shift(0.5, 0.1, certain=True)})
    controller = WindowController(CurvePolicy(objective=LeastEnergy(0.05)), spec)
    after = controller.step(progress, Observation(readings=(last,), change=change))
    assert after.events[-1].time_s == pytest.approx(440.0)
    assert "since 437.4 s" in after.events[-1].text


def test_a_short_training_run_says_what_it_was_and_not_that_the_gpu_was_unused():
    gpu, lines = SimulatedGpu(load_model("a100"), time=VirtualTime()), []
    gpu.play(make_workload("resnet50:64"))
    with TrainingEnergy(gpus=(gpu,), max_slowdown=0.05, store=False, notify=lines.append) as energy:
        for _ in range(100):
            gpu.wait(0.03)
            energy.step()
    assert "100 steps" in lines[-1]
    assert "saved or lost: the program ended before another setting was tried; catalogue error: " in lines[-1]
    assert "not using the GPU" not in lines[-1]


def test_printed_figures_are_two_short_lines():
    figures = RunFigures(saving=EstimateWithError(0.0634, 0.0011), slowdown=EstimateWithError(0.0231, 0.0004))
    assert str(figures) == (
        "search included: energy saved +6.34 ± 0.11 %, slowdown +2.31 ± 0.04 %\n"
        "while held: energy saved unknown, slowdown unknown"
    )
