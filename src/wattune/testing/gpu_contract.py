"""The tests that every GPU back-end must pass. Subclass `GpuContract`, give it a fixture `gpu` and a method `work`:

    class TestMyGpu(GpuContract):
        @pytest.fixture
        def gpu(self):
            with my_gpu() as gpu:
                yield gpu

        def work(self, gpu):
            gpu.run(a_load, seconds=2)

The tests use only what the spec of the GPU offers: a recording, on which nothing can be set, passes as well.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from itertools import pairwise
from math import isfinite

import pytest

from wattune.core.errors import NotSupported, SettingRefused
from wattune.core.measurement import Measurement
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.gpu import Gpu

LIMIT_SLACK = 1.03
"""Firmware keeps a limit on the average and exceeds it by a few watts."""


class GpuContract:
    """The tests. A subclass defines `gpu` and `work`, and `settings` if its spec offers more than can be set alone."""

    @pytest.fixture
    def gpu(self) -> Gpu:
        """Return a GPU that was just opened."""
        raise NotImplementedError("define the fixture gpu")

    def work(self, gpu: Gpu) -> None:
        """Make the GPU work for at least two seconds of its own time."""
        raise NotImplementedError("define how to make the GPU work")

    def settings(self, gpu: Gpu) -> tuple[Setting, ...]:
        """Return settings that the GPU has: by default the ends of each knob of its spec."""
        spec = gpu.spec
        clocks = spec.sm_clocks_mhz
        chosen = [Setting(sm_mhz=clocks[place]) for place in (0, len(clocks) // 2, -1) if clocks]
        if spec.can_lock_mem:
            chosen += [Setting(mem_mhz=mhz) for mhz in spec.mem_clocks_mhz]
        if spec.power_limits:
            chosen += [Setting(power_limit_w=watts) for watts in astuple(spec.power_limits)]
        return tuple(dict.fromkeys(chosen))

    # spec

    def test_its_spec_is_consistent(self, gpu: Gpu) -> None:
        spec = gpu.spec
        assert spec.name
        assert spec.uuid
        assert ("simulated" in spec.label) == spec.simulated
        for table in spec.clocks:
            assert all(lower < higher for lower, higher in pairwise(table.sm_mhz))
        assert all(higher > lower for higher, lower in pairwise(spec.mem_clocks_mhz))
        if spec.power_limits:
            limits = spec.power_limits
            assert 0 < limits.min_w <= limits.default_w <= limits.max_w
        for known in (*astuple(spec.sensors), *astuple(spec.switching)):
            assert known is None or known >= 0

    def test_its_spec_does_not_change(self, gpu: Gpu) -> None:
        spec = gpu.spec
        self.work(gpu)
        assert gpu.spec == spec

    def test_its_refresh_can_be_stored(self, gpu: Gpu) -> None:
        assert gpu.refresh is None or isinstance(gpu.refresh, Refresh)
        gpu.refresh = Refresh(0.1, 0.0)
        assert gpu.refresh == Refresh(0.1, 0.0)

    # readings

    def test_unknown_is_none_and_never_zero(self, gpu: Gpu) -> None:
        self.work(gpu)
        reading = gpu.read()
        assert isfinite(reading.time_s)
        for known in (reading.sm_mhz, reading.mem_mhz, reading.power_limit_w, reading.temperature_c, reading.power_w):
            assert known is None or (isfinite(known) and known > 0)
        for share in (reading.sm_util, reading.mem_util):
            assert share is None or 0 <= share <= 1
        assert reading.energy_j is None or (isfinite(reading.energy_j) and reading.energy_j >= 0)
        assert reading.memory_used_bytes is None or reading.memory_used_bytes >= 0

    def test_time_and_energy_never_go_back(self, gpu: Gpu) -> None:
        readings = [gpu.read()]
        for _ in range(3):
            self.work(gpu)
            readings += [gpu.read(), gpu.read()]
        for before, after in pairwise(readings):
            assert after.time_s >= before.time_s
            if before.energy_j is not None and after.energy_j is not None:
                assert after.energy_j >= before.energy_j

    def test_work_takes_time_and_energy(self, gpu: Gpu) -> None:
        before = gpu.count()
        self.work(gpu)
        cost = Measurement.between(before, gpu.count())
        assert cost.time_s > 0
        assert cost.energy_j > 0

    def test_a_count_agrees_with_readings_around_it(self, gpu: Gpu) -> None:
        self.work(gpu)
        before, count, after = gpu.read(), gpu.count(), gpu.read()
        assert isinstance(count, Count)
        assert before.time_s <= count.time_s <= after.time_s
        assert before.energy_j is not None
        assert after.energy_j is not None
        # NVML counts in whole millijoules.
        assert before.energy_j - 1e-3 <= count.energy_j <= after.energy_j + 1e-3

    # settings

    def test_the_driver_default_is_always_accepted(self, gpu: Gpu) -> None:
        gpu.apply(DRIVER_DEFAULT)
        gpu.restore()

    def test_clocks_stay_at_or_below_their_lock(self, gpu: Gpu) -> None:
        for setting in self.settings(gpu):
            gpu.apply(setting)
            self.work(gpu)
            reading = gpu.read()
            if setting.sm_mhz is not None and reading.sm_mhz is not None:
                assert reading.sm_mhz <= setting.sm_mhz
            if setting.mem_mhz is not None and reading.mem_mhz is not None:
                assert reading.mem_mhz == setting.mem_mhz

    def test_a_limit_holds_on_the_average(self, gpu: Gpu) -> None:
        clocks_mhz = gpu.spec.sm_clocks_mhz
        lowest = [setting for setting in self.settings(gpu) if clocks_mhz and setting.sm_mhz == clocks_mhz[0]]
        floor_w = self._power_w(gpu, lowest[0]) if lowest else 0.0
        for setting in self.settings(gpu):
            if setting.power_limit_w is not None:
                power_w = self._power_w(gpu, setting)
                assert power_w <= max(setting.power_limit_w, floor_w) * LIMIT_SLACK
                assert gpu.read().power_limit_w in (None, pytest.approx(setting.power_limit_w, abs=0.01))

    def test_setting_twice_equals_setting_once(self, gpu: Gpu) -> None:
        for setting in self.settings(gpu):
            gpu.apply(setting)
            once = self._state(gpu)
            gpu.apply(setting)
            assert self._state(gpu) == once

    def test_none_resets_a_knob_to_the_driver(self, gpu: Gpu) -> None:
        found = self._state(gpu)
        for setting in self.settings(gpu):
            gpu.apply(setting)
            gpu.apply(DRIVER_DEFAULT)
            assert self._state(gpu) == found

    def test_restore_resets_what_was_found(self, gpu: Gpu) -> None:
        found = self._state(gpu)
        for setting in self.settings(gpu):
            gpu.apply(setting)
            gpu.restore()
            assert self._state(gpu) == found
            gpu.restore()
            assert self._state(gpu) == found

    # refusals

    def test_a_setting_it_does_not_have_is_refused_and_changes_nothing(self, gpu: Gpu) -> None:
        for before in (DRIVER_DEFAULT, *self.settings(gpu)[:1]):
            gpu.apply(before)
            state = self._state(gpu)
            for impossible in self._impossible(gpu):
                with pytest.raises((SettingRefused, NotSupported)) as refusal:
                    gpu.apply(impossible)
                assert refusal.value.hint
                assert self._state(gpu) == state

    def _power_w(self, gpu: Gpu, setting: Setting) -> float:
        """Return the mean power at a setting, after warm-up work at the same setting."""
        gpu.apply(setting)
        self.work(gpu)
        before = gpu.count()
        self.work(gpu)
        return Measurement.between(before, gpu.count()).power_w

    def _impossible(self, gpu: Gpu) -> tuple[Setting, ...]:
        spec = gpu.spec
        settings = [Setting(sm_mhz=999_983), Setting(sm_mhz=1), Setting(mem_mhz=999_983), Setting(power_limit_w=1e6)]
        settings += [replace(good, power_limit_w=0.5) for good in self.settings(gpu)[:1]]
        if spec.sm_clocks_mhz:
            settings.append(Setting(sm_mhz=spec.sm_clocks_mhz[-1] + 1))
        if spec.power_limits:
            settings.append(Setting(power_limit_w=spec.power_limits.min_w - 1))
            settings.append(Setting(power_limit_w=spec.power_limits.max_w + 1))
        return tuple(settings)

    def _state(self, gpu: Gpu) -> tuple[object, ...]:
        """Return what a GPU reports of its setting while it works."""
        if not self.settings(gpu):
            return ()
        self.work(gpu)
        reading: Reading = gpu.read()
        return (reading.sm_mhz, reading.mem_mhz, reading.power_limit_w)
