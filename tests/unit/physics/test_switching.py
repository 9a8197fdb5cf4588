from __future__ import annotations

import numpy as np
import pytest

from wattune.core.gpu_spec import Switching
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.physics.catalog import load_model
from wattune.physics.operating_point import AT_ONCE, IDEAL, Delay, delay_of

A4000 = load_model("a4000")


def delay(after: Setting, *, medians: Switching = A4000.switching, number: int = 0, seed: int = 1) -> Delay:
    return delay_of(medians, A4000.change, before=DRIVER_DEFAULT, after=after, seed=seed, number=number)


def test_waits_are_lognormal_around_their_median() -> None:
    waits_s = np.array([delay(Setting(sm_mhz=900), number=number).wait_s for number in range(2000)])
    assert np.median(waits_s) == pytest.approx(0.080, rel=0.08)
    assert np.quantile(waits_s, 0.99) == pytest.approx(0.400, rel=0.2)


def test_only_what_changes_takes_time() -> None:
    assert delay(Setting(power_limit_w=120.0)) == AT_ONCE
    assert delay(Setting(sm_mhz=900)).stall_s == 0.0001
    assert delay(Setting(mem_mhz=5001)).stall_s == 0.010
    both = delay(Setting(sm_mhz=900, mem_mhz=5001))
    assert both.wait_s == max(delay(Setting(sm_mhz=900)).wait_s, delay(Setting(mem_mhz=5001)).wait_s)


def test_none_and_zero_are_the_ideal() -> None:
    for medians in (IDEAL, Switching(), Switching(0.0, None)):
        assert delay(Setting(sm_mhz=900, mem_mhz=5001), medians=medians) == AT_ONCE


def test_a_seed_and_a_number_make_the_same_wait() -> None:
    assert delay(Setting(sm_mhz=900), number=3) == delay(Setting(sm_mhz=600), number=3)
    assert delay(Setting(sm_mhz=900), number=3) != delay(Setting(sm_mhz=900), number=4)
    assert delay(Setting(sm_mhz=900), seed=3) != delay(Setting(sm_mhz=900), seed=4)
