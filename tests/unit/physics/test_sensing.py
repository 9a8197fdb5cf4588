from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wattune.core.errors import NotSupported
from wattune.core.gpu_spec import Sensors
from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog import load_model
from wattune.physics.sensor import counter_samples, power_samples
from wattune.physics.stepped import Command, Machine, play

A100 = replace(load_model("a100"), noise_w=0.0)
# Half of each 100 ms busy, half idle: a sensor that looks at a quarter of the time sees the one or the other.
SQUARE = Workload(
    name="square",
    phases=(Phase(name="busy", flops=1560e12 * 0.05 * 0.1, pipe=Pipe.FP16), Phase(name="idle", host_stall_s=0.05)),
)


@pytest.fixture(scope="module")
def played():
    locked = Setting(sm_mhz=1005)
    table = Machine.of(A100, SQUARE).tables[0]
    busy_s = table.duration_s[0, table.sm_mhz.index(1005)]
    load = replace(SQUARE, phases=(SQUARE.phases[0], replace(SQUARE.phases[1], host_stall_s=0.1 - busy_s)))
    return play(Machine.of(A100, load), 20.0, commands=(Command(0.0, locked),))


def test_a_window_of_a_quarter_aliases_with_the_load(played) -> None:
    samples = power_samples(A100, played)
    assert len(samples.time_s) == 200
    assert samples.value[-1] < 0.8 * played.mean_power_w  # it always looks at the idle end of the square
    whole = power_samples(replace(A100, sensors=Sensors(0.1, 0.1, 0.1)), played)
    assert whole.value[100:].mean() == pytest.approx(played.after(10.0), rel=0.01)


def test_a_counter_misses_nothing_unless_it_works_part_time(played) -> None:
    full = counter_samples(A100, played)
    part = counter_samples(replace(A100, counter_window_s=0.025), played)
    assert full.value[-1] == pytest.approx(played.energy_j[-1], rel=1e-9)
    assert part.value[-1] < 0.85 * full.value[-1]
    assert np.all(np.diff(part.value) > 0)


def test_gain_offset_and_noise(played) -> None:
    plain = power_samples(A100, played).value
    skewed = power_samples(replace(A100, gain=1.05, offset_w=-3.0), played).value
    assert skewed == pytest.approx(1.05 * plain - 3.0)
    noisy = power_samples(replace(A100, noise_w=0.5), played, seed=1).value
    assert 0.3 < (noisy - plain).std() < 0.7
    assert np.array_equal(noisy, power_samples(replace(A100, noise_w=0.5), played, seed=1).value)


def test_a_part_without_a_counter_adds_up_its_power(played) -> None:
    samples = counter_samples(replace(A100, has_counter=False, sensors=Sensors(None, 0.02, 0.01)), played)
    assert len(samples.time_s) == 1000
    with pytest.raises(NotSupported):
        power_samples(replace(A100, sensors=Sensors()), played)
