"""Programs that do not follow the clock of their GPU are noticed, and no others."""

from dataclasses import replace

import numpy as np
import pytest

from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose, Window
from wattune.levels.run.figures import figures_of
from wattune.levels.run.simulated_program import SimulatedProgram
from wattune.physics.catalog import load_model
from wattune.response.clock_doubt import PointTime, doubt_of, window_doubt
from wattune_bench.family import family

BASE = PointTime(1410, 1.0, 0.002, 1.0)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (PointTime(210, 0.44, 0.01, 1.0), "56 % faster at 210 MHz instead of 1410 MHz"),
        (PointTime(360, 1.0, 0.01, 1.0), "+0.0 % at 360 MHz instead of 1410 MHz, although the GPU was busy"),
        (PointTime(1005, 0.9, 0.01, 1.0), "10 % faster"),
    ],
)
def test_what_physics_does_not_allow_is_doubted(other, words):
    assert words in doubt_of(BASE, [PointTime(1200, 1.05), other])


@pytest.mark.parametrize(
    ("base", "other"),
    [
        (BASE, PointTime(1005, 0.97, 0.01, 1.0)),
        (BASE, PointTime(1005, 0.9, 0.05, 1.0)),
        (BASE, PointTime(1005, 1.0, 0.0, 1.0)),
        (replace(BASE, busy=0.4), PointTime(360, 1.0, 0.0, 0.9)),
        (replace(BASE, busy=None), PointTime(360, 1.0, 0.0, 0.9)),
        (replace(BASE, sm_mhz=1200), PointTime(1410, 0.88)),
    ],
)
def test_noise_memory_and_waits_for_the_host_are_not(base, other):
    assert doubt_of(base, [other]) is None


@pytest.mark.parametrize("gpu", ["a100", "rtx-3080-ti", "mi300x"])
def test_no_program_of_the_simulated_family_is_doubted(gpu):
    model = load_model(gpu)
    clocks = np.array(model.clocks[0].sm_mhz)
    order = np.argsort(-clocks)
    for member in family(seed=0)[::4]:
        program = SimulatedProgram.of(model, member.step, name=member.name)
        points = [PointTime(clocks[i], program.time_s[0][i], 0.0, program.busy[0][i]) for i in order]
        assert doubt_of(points[0], points[1:]) is None


def test_a_doubtful_run_claims_nothing():
    def window(setting, purpose, sm_mhz, power_w):
        return Window(
            setting=setting,
            purpose=purpose,
            start_s=0.0,
            cost=Measurement(20.0, 20.0 * power_w, None, 1.0),
            settling=Measurement(0.0, 0.0),
            step_time_s=0.05,
            step_time_error_s=0.0001,
            source="steps",
            sm_mhz=sm_mhz,
            sm_util=1.0,
        )

    windows = (
        window(DRIVER_DEFAULT, Purpose.BASELINE, 1410.0, 400.0),
        window(Setting(360), Purpose.HOLD, 360.0, 110.0),
    )
    assert window_doubt(windows) is not None
    assert figures_of(windows, gpus=1, slowdown_limit=0.05).saving is None
    believed = (windows[0], replace(windows[1], sm_mhz=1005.0))
    assert window_doubt(believed) is None
    assert figures_of(believed, gpus=1, slowdown_limit=0.05).saving.value > 0.3
