"""Curves of time and power from a few clocks."""

from itertools import pairwise
from random import Random

import pytest

from wattune.core.errors import PlanError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.levels.pipeline.profiling import Curve, fit_curves
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate

CLOCKS = (1410, 1275, 1140, 1005, 855)


def trials(cost, clocks=CLOCKS, noise=0.0):
    random = Random(3)
    return tuple(
        Trial(
            Setting(mhz),
            Measurement(*(part * random.gauss(1, noise) for part in (cost(mhz).time_s, cost(mhz).energy_j))),
        )
        for mhz in clocks
    )


def test_data_of_the_models_form_gives_its_parameters_back():
    truth = Curve(1410, 0.01, 0.04, 0.5, 90.0, 200.0, 0.7, 0.3)
    found = fit_curves({"0.forward": trials(truth.cost)}, highest_mhz=1410)["0.forward"]
    for mhz in range(855, 1411, 15):
        assert found.cost(mhz).time_s == pytest.approx(truth.cost(mhz).time_s, rel=1e-3)
        assert found.cost(mhz).energy_j == pytest.approx(truth.cost(mhz).energy_j, rel=2e-3)


@pytest.mark.parametrize("bytes_per_flop", [0.0002, 0.004, 0.02], ids=["arithmetic", "both", "memory"])
@pytest.mark.parametrize("gpu", ["a100", "v100"])
def test_curves_fit_a_simulated_gpu_between_measured_clocks(gpu, bytes_per_flop):
    model = load_model(gpu)
    flops = 5e12
    phase = Phase(name="kernel", flops=flops, pipe=Pipe.FP16, dram_bytes=flops * bytes_per_flop, launches=200)
    table = tabulate(model, Workload(name="simulated", phases=(phase,)))[0]
    costs = {
        mhz: Measurement(time_s, energy_j)
        for mhz, time_s, energy_j in zip(table.sm_mhz, table.iteration_s, table.iteration_j, strict=True)
    }
    between = [mhz for mhz in table.sm_mhz if mhz >= 0.6 * table.sm_mhz[-1]]
    clocks = [between[len(between) * place // 4 - (place == 4)] for place in range(5)]
    found = fit_curves({"0.forward": trials(costs.get, clocks)}, highest_mhz=table.sm_mhz[-1])["0.forward"]
    for mhz in between:
        assert found.cost(mhz).time_s == pytest.approx(costs[mhz].time_s, rel=0.025)
        assert found.cost(mhz).energy_j == pytest.approx(costs[mhz].energy_j, rel=0.025)


def test_noise_is_smoothed_and_the_voltage_is_shared():
    truths = {
        f"{stage}.forward": Curve(1410, 0.0, 0.02 + stage / 100, 0.2, 80.0, 220.0, 0.6, 0.4) for stage in range(4)
    }
    found = fit_curves({kind: trials(truth.cost, noise=0.01) for kind, truth in truths.items()}, highest_mhz=1410)
    assert len({(curve.knee, curve.rise) for curve in found.values()}) == 1
    for kind, truth in truths.items():
        for mhz in range(855, 1411, 45):
            assert found[kind].cost(mhz).energy_j == pytest.approx(truth.cost(mhz).energy_j, rel=0.04)


def test_a_higher_clock_is_never_slower_and_never_draws_less():
    truth = Curve(1410, 0.01, 0.04, 0.5, 90.0, 200.0, 0.7, 0.3)
    options = fit_curves({"k": trials(truth.cost, noise=0.05)}, highest_mhz=1410)["k"].options(range(855, 1411, 15))
    for slow, fast in pairwise(options):
        assert fast.cost.time_s <= slow.cost.time_s
        assert fast.cost.power_w >= slow.cost.power_w


def test_one_clock_is_too_few():
    truth = Curve(1410, 0.01, 0.04, 0.5, 90.0, 200.0, 0.7, 0.3)
    with pytest.raises(PlanError, match=r"0.forward was not measured at two clocks"):
        fit_curves({"0.forward": trials(truth.cost, (1410,))}, highest_mhz=1410)
