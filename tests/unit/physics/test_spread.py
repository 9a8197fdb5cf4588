from __future__ import annotations

import numpy as np

from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import CHIP_SPREAD, chip_of
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload

A100 = load_model("a100")


def test_chips_stay_within_the_published_spread_and_fill_it() -> None:
    chips = [chip_of(A100, seed) for seed in range(400)]
    knee = np.array([chip.core.voltage_knee_mhz / A100.core.voltage_knee_mhz for chip in chips])
    floor_squared = np.array([chip.core.idle_clock_w_per_ghz / A100.core.idle_clock_w_per_ghz for chip in chips])
    leakage = np.array([chip.core.leak_w / A100.core.leak_w for chip in chips]) / floor_squared
    for ratio, most in zip((knee, np.sqrt(floor_squared), leakage), CHIP_SPREAD, strict=True):
        values = ratio - 1
        assert np.all(np.abs(values) <= most + 1e-12)
        assert 0.35 * most < values.std() < 0.65 * most
        assert abs(values.mean()) < 0.1 * most


def test_a_seed_is_a_chip() -> None:
    assert chip_of(A100, 7) == chip_of(A100, 7)
    assert chip_of(A100, 7) != chip_of(A100, 8)


def test_the_same_work_costs_a_few_per_cent_more_or_less() -> None:
    load = make_workload("resnet50")
    energy_j = np.array([tabulate(chip_of(A100, seed), load)[0].iteration_j[60] for seed in range(40)])
    time_s = tabulate(chip_of(A100, 1), load)[0].iteration_s
    assert 0.005 < energy_j.std() / energy_j.mean() < 0.05
    assert np.array_equal(time_s, tabulate(A100, load)[0].iteration_s)
