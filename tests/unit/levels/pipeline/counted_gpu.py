"""A GPU on simulated time whose counter moves every 100 ms, for tests of what reads it between instructions."""

from math import floor

import numpy as np

from fakes import FakeGpu
from wattune.control.stamps import HostStamp
from wattune.core.reading import Count

PERIOD_S = 0.1
PHASE_S = 0.037


class CountedStamp(HostStamp):
    """A stamp whose GPU counts how often it is waited for."""

    __slots__ = ("gpu",)

    def __init__(self, gpu):
        super().__init__(gpu.now_s)
        self.gpu = gpu

    def wait(self):
        self.gpu.waits += 1


class CountedGpu(FakeGpu):
    """Spends what a test sets; shows what it had spent when its counter last moved."""

    def __init__(self, *, moves=True):
        super().__init__()
        self._times_s, self._energies_j = [self.now_s], [0.0]
        self._moves = moves
        self.failure = self.disabled = None
        self.counts = self.stamps = self.waits = 0

    def run(self, seconds, power_w):
        self.now_s += seconds
        self._times_s.append(self.now_s)
        self._energies_j.append(self._energies_j[-1] + seconds * power_w)

    def wait(self, seconds):
        self.run(seconds, 60.0)

    def count(self):
        self.counts += 1
        moved_s = PHASE_S + PERIOD_S * floor((self.now_s - PHASE_S) / PERIOD_S)
        energy_j = float(np.interp(moved_s, self._times_s, self._energies_j)) if self._moves else 0.0
        return Count(self.now_s, energy_j)

    # as its own stamps

    def stamp(self):
        self.stamps += 1
        return CountedStamp(self)

    # as its own actuator

    def put(self, setting, *, reached=None):
        assert reached is None or reached()
        self.apply(setting)

    def take_failure(self):
        failure, self.failure = self.failure, None
        return failure

    def disable(self, why):
        self.disabled = why
