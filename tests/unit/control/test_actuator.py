"""The actuator: settings arrive in order, no request waits or raises, and the GPUs are restored at the end."""

import os
import threading

import pytest

from fakes import FakeGpu
from wattune.control.actuator import Actuator, ActuatorThread
from wattune.core.errors import NoPermission
from wattune.core.setting import DRIVER_DEFAULT, Setting

CLOCKS = [Setting(mhz) for mhz in (900, 1005, 1410)] * 4
LIMIT_S = 120


class DriverGpu(FakeGpu):
    """A GPU whose driver answers when the test allows it, and whose calls a test can wait for."""

    def __init__(self, **options):
        super().__init__(**options)
        self.called = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.changed = threading.Condition()

    def apply(self, setting):
        self.called.set()
        assert self.may_answer.wait(LIMIT_S)
        super().apply(setting)
        with self.changed:
            self.changed.notify_all()

    def restore(self):
        self.setting = DRIVER_DEFAULT
        with self.changed:
            self.history.append("restored")
            self.changed.notify_all()

    def wait_for(self, history):
        with self.changed:
            assert self.changed.wait_for(lambda: self.history == history, LIMIT_S), self.history


def test_settings_arrive_in_order_and_the_end_restores():
    gpu = DriverGpu()
    with ActuatorThread([gpu], max_pending=len(CLOCKS)) as clocks:
        for setting in CLOCKS:
            clocks.put(setting)
        gpu.wait_for(CLOCKS)
    assert gpu.history == [*CLOCKS, "restored"]


def test_no_request_waits_for_a_slow_driver_and_the_oldest_are_dropped():
    gpu = DriverGpu()
    gpu.may_answer.clear()
    with ActuatorThread([gpu], max_pending=2) as clocks:
        clocks.put(CLOCKS[0])
        assert gpu.called.wait(LIMIT_S)
        for setting in CLOCKS[1:]:
            clocks.put(setting)  # returns although the driver does not
        assert gpu.history == []
        gpu.may_answer.set()
        gpu.wait_for([CLOCKS[0], *CLOCKS[-2:]])
    assert clocks.skipped == len(CLOCKS) - 3


def test_a_setting_waits_until_the_gpu_reaches_its_instruction():
    gpu, there = DriverGpu(), threading.Event()
    with ActuatorThread([gpu]) as clocks:
        clocks.put(CLOCKS[0], reached=there.is_set)
        clocks.put(CLOCKS[1])
        assert gpu.history == []
        there.set()
        gpu.wait_for(CLOCKS[:2])


def test_the_end_does_not_wait_for_an_instruction_that_is_never_reached():
    gpu = DriverGpu()
    with ActuatorThread([gpu]) as clocks:
        clocks.put(CLOCKS[0], reached=lambda: False)
        clocks.put(CLOCKS[1])
    assert gpu.history == ["restored"]


@pytest.mark.parametrize("error", [NoPermission("not allowed", hint="ask for it"), OSError("broken driver")])
def test_a_refused_setting_raises_nothing_restores_all_gpus_and_is_reported_once(error):
    good, bad = DriverGpu(), DriverGpu(fails=error)
    with ActuatorThread([good, bad]) as clocks:
        clocks.put(CLOCKS[0])
        bad.wait_for(["restored"])
        assert good.history == [CLOCKS[0], "restored"]
        assert clocks.take_failure() is error
        assert clocks.take_failure() is None
        bad.fails = None
        clocks.put(CLOCKS[1])
        bad.wait_for(["restored", CLOCKS[1]])
    assert good.history == [CLOCKS[0], "restored", CLOCKS[1], "restored"]


def test_an_error_while_waiting_for_the_gpu_is_reported_like_a_refusal():
    def reached():
        raise RuntimeError("CUDA error")

    gpu = DriverGpu()
    with ActuatorThread([gpu]) as clocks:
        clocks.put(CLOCKS[0], reached=reached)
        gpu.wait_for(["restored"])
        assert str(clocks.take_failure()) == "CUDA error"


@pytest.mark.parametrize("kind", [Actuator, ActuatorThread])
def test_a_disabled_actuator_restores_at_once_and_sets_nothing_any_more(kind):
    gpu = DriverGpu()
    with kind([gpu]) as clocks:
        clocks.put(CLOCKS[0])
        gpu.wait_for([CLOCKS[0]])
        clocks.disable("enough")
        clocks.disable("again")
        gpu.wait_for([CLOCKS[0], "restored"])
        clocks.put(CLOCKS[1])
    assert clocks.disabled == "enough"
    assert CLOCKS[1] not in gpu.history
    assert gpu.setting == DRIVER_DEFAULT


def test_nothing_is_set_after_the_block_even_if_it_fails():
    gpu = DriverGpu()

    def failing():
        with ActuatorThread([gpu]) as clocks:
            for setting in CLOCKS:
                clocks.put(setting)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert gpu.setting == DRIVER_DEFAULT
    assert not any(thread.name == "wattune clocks" for thread in threading.enumerate())


def test_a_forked_child_sets_nothing_and_does_not_wait_for_the_thread():
    gpu = FakeGpu()
    with ActuatorThread([gpu]) as actuator:
        with actuator._changed:  # as if the thread held it at the fork
            pid = os.fork()
        if pid == 0:
            code = 1
            try:
                actuator.put(Setting(900))
                actuator.__exit__()
                code = 0 if gpu.history == [] else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
