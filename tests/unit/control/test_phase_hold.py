"""Settings per phase in wall time: requests from the program's thread, set by another."""

import pytest

from processes import wait_until
from wattune.control.phase_hold import PhaseHold
from wattune.core.errors import PlanError, SettingRefused
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import PhaseSetting
from wattune.devices.passing_time import VirtualTime, WallTime
from wattune.devices.simulated import SimulatedGpu
from wattune.physics.catalog import load_model

BY_PHASE = (PhaseSetting("forward", Setting(1635), 2.0), PhaseSetting("optimizer", Setting(1020), 1.0))


class AtOnce:
    """A player that requests the setting of each phase when it begins, `after_s` later."""

    def __init__(self, by_phase, now_s, *, after_s=0.0):
        self.settings = {one.name: one.setting for one in by_phase}
        self.now_s, self.after_s = now_s, after_s

    def begin(self, name, stamp):
        if name not in self.settings:
            raise PlanError(f"no phase {name}", hint="")
        due_s = stamp.time_s + self.after_s
        return [(self.settings[name], lambda: self.now_s() >= due_s)]


@pytest.fixture
def gpu():
    return SimulatedGpu(load_model("rtx-a4000"), time=WallTime())


def test_a_thread_sets_what_the_program_requests_and_restores_at_the_end(gpu):
    hold = PhaseHold([gpu], BY_PHASE, AtOnce)
    for name in ("forward", "optimizer"):
        hold.begin(name, None)
    wait_until(lambda: gpu.setting == Setting(1020))
    assert hold.take_failure() is None
    hold.close()
    assert gpu.setting == DRIVER_DEFAULT
    hold.begin("forward", None)  # a program that has not noticed yet
    assert gpu.setting == DRIVER_DEFAULT


def test_what_the_driver_refuses_is_kept_for_the_loop(gpu):
    def refuse(setting):
        if setting != DRIVER_DEFAULT:
            raise SettingRefused("not now")

    gpu.apply = refuse
    hold = PhaseHold([gpu], BY_PHASE, AtOnce)
    hold.begin("forward", None)
    found = []
    wait_until(lambda: found.append(hold.take_failure()) or found[-1] is not None)
    hold.close()
    assert str(found[-1]) == "not now"
    assert hold.stuck == ()


def test_an_unknown_phase_is_a_failure_and_no_error_of_the_program(gpu):
    hold = PhaseHold([gpu], BY_PHASE, AtOnce)
    hold.begin("evaluation", None)
    assert isinstance(hold.take_failure(), PlanError)
    assert hold.take_failure() is None
    hold.close()


def test_in_virtual_time_requests_wait_until_they_are_due():
    gpu = SimulatedGpu(load_model("rtx-a4000"), time=VirtualTime())
    hold = PhaseHold([gpu], BY_PHASE, lambda *given: AtOnce(*given, after_s=1.0))
    hold.begin("forward", None)
    assert gpu.setting == DRIVER_DEFAULT
    gpu.wait(1.5)
    hold.poll()
    assert gpu.setting == Setting(1635)
    hold.close()
    assert gpu.setting == DRIVER_DEFAULT
