"""What runs beside the measured program: the sampler, the integrator, and CPU energy."""

import threading

import pytest

from fakes import FakeGpu
from processes import PATIENCE_S
from wattune.core.errors import DeviceLost
from wattune.core.reading import Count, Reading
from wattune.devices.nvml.gpu import IntegratedPower
from wattune.devices.rapl import cpu_energy_j, find_packages, read_packages_j
from wattune.devices.sampler import Sampler


class Scripted(FakeGpu):
    """A GPU whose readings come from a list, one per count, and which signals when they are used up."""

    def __init__(self, readings):
        super().__init__()
        self._readings = list(readings)
        self._now = None
        self.used_up = threading.Event()

    def count(self):
        self._now = self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]
        if len(self._readings) == 1:
            self.used_up.set()
        if isinstance(self._now, Exception):
            raise self._now
        return Count(self._now.time_s, self._now.energy_j)

    def read(self):
        return self._now


def test_repeated_values_are_not_samples():
    powers = [100.0, 100.0, 120.0, 120.0, 120.0, 90.0]
    gpu = Scripted(Reading(time_s=float(i), power_w=p, energy_j=p) for i, p in enumerate(powers))
    with Sampler((gpu,), interval_s=0.001) as sampler:
        assert gpu.used_up.wait(PATIENCE_S)
    assert [reading.power_w for reading in sampler.traces[0].readings] == [100, 120, 90]


def test_equal_power_with_a_moving_counter_is_a_sample():
    gpu = Scripted(Reading(time_s=float(i), power_w=100.0, energy_j=100.0 * i) for i in range(5))
    with Sampler((gpu,), interval_s=0.001) as sampler:
        assert gpu.used_up.wait(PATIENCE_S)
    assert len(sampler.traces[0].readings) == 5


def test_one_lost_gpu_does_not_end_the_others():
    lost = Scripted([Reading(time_s=0.0, power_w=1.0, energy_j=1.0), DeviceLost("gone"), DeviceLost("gone")])
    fine = Scripted(Reading(time_s=float(i), power_w=float(i), energy_j=float(i)) for i in range(30))
    with Sampler((lost, fine), interval_s=0.001) as sampler:
        assert fine.used_up.wait(PATIENCE_S)
    assert len(sampler.traces[1].readings) == 30
    assert isinstance(sampler.failures[0], DeviceLost)
    assert sampler.failures[1] is None


def test_integrated_power_is_energy():
    now = [0.0]
    integrated = IntegratedPower(lambda: 50.0, lambda: now[0], period_s=0.001)
    try:
        first = integrated.count()
        now[0] = 10.0
        second = integrated.count()
    finally:
        integrated.stop()
    assert second.energy_j - first.energy_j == pytest.approx(500)


def test_a_lost_sensor_raises_at_the_next_count():
    answers = [50.0]

    def watts():
        if not answers:
            raise DeviceLost("gone")
        return answers.pop()

    integrated = IntegratedPower(watts, lambda: 0.0, period_s=0.001)
    integrated.count()
    integrated._thread.join(10)
    with pytest.raises(DeviceLost):
        integrated.count()
    integrated.stop()


def package(root, number, name, energy_uj, wraps_uj=1000):
    folder = root / f"intel-rapl:{number}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(name + "\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{wraps_uj}\n")
    return folder


def test_cpu_packages_add_up_and_wrap(tmp_path):
    first = package(tmp_path, 0, "package-0", 900)
    second = package(tmp_path, 1, "package-1", 100)
    package(tmp_path, "0:0", "core", 5)
    package(tmp_path, 2, "psys", 5)
    packages = find_packages(tmp_path)
    before = read_packages_j(packages)
    (first / "energy_uj").write_text("50")
    (second / "energy_uj").write_text("300")
    assert cpu_energy_j(packages, before, read_packages_j(packages)) == pytest.approx(350e-6)


def test_unreadable_cpu_energy_is_none_never_zero(tmp_path):
    assert find_packages(tmp_path) == ()
    assert read_packages_j(()) is None
    assert cpu_energy_j((), None, None) is None
    folder = package(tmp_path, 0, "package-0", 10)
    packages = find_packages(tmp_path)
    before = read_packages_j(packages)
    (folder / "energy_uj").unlink()
    assert cpu_energy_j(packages, before, read_packages_j(packages)) is None
