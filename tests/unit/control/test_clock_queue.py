"""The thread that sets clocks: in order, never waited for, gone before the GPU is restored."""

import threading

import pytest

from fakes import FakeGpu
from wattune.control.actuator import ClockQueue
from wattune.core.errors import NoPermission
from wattune.core.setting import Setting

CLOCKS = [Setting(mhz) for mhz in (900, 1005, 1410)] * 4


class SlowGpu(FakeGpu):
    """A driver that answers only when told to."""

    def __init__(self):
        super().__init__()
        self.called = threading.Event()
        self.may_answer = threading.Event()

    def apply(self, setting):
        self.called.set()
        assert self.may_answer.wait(30)
        super().apply(setting)


def test_settings_arrive_in_order():
    gpu = FakeGpu()
    with ClockQueue(gpu, most_behind=len(CLOCKS)) as clocks:
        for setting in CLOCKS:
            clocks.put(setting)
        clocks.settle()
    assert gpu.history == CLOCKS


def test_nobody_waits_for_a_slow_driver_and_the_oldest_are_passed_over():
    gpu = SlowGpu()
    with ClockQueue(gpu, most_behind=2) as clocks:
        clocks.put(CLOCKS[0])
        assert gpu.called.wait(30)
        for setting in CLOCKS[1:]:
            clocks.put(setting)  # returns although the driver does not
        assert gpu.history == []
        gpu.may_answer.set()
        clocks.settle()
    assert gpu.history == [CLOCKS[0], *CLOCKS[-2:]]
    assert clocks.passed_over == len(CLOCKS) - 3


def test_a_setting_waits_until_the_gpu_got_there():
    gpu, there = FakeGpu(), threading.Event()
    with ClockQueue(gpu) as clocks:
        clocks.put(CLOCKS[0], reached=there.is_set)
        clocks.put(CLOCKS[1])
        assert gpu.history == []
        there.set()
        clocks.settle()
    assert gpu.history == CLOCKS[:2]


def test_the_end_waits_for_nothing_that_never_comes():
    gpu = FakeGpu()
    with ClockQueue(gpu) as clocks:
        clocks.put(CLOCKS[0], reached=lambda: False)
        clocks.put(CLOCKS[1])
    assert gpu.history == []


def test_what_the_driver_refuses_is_said_at_the_next_put_and_once():
    gpu = FakeGpu(fails=NoPermission("not allowed", hint="ask for it"))
    with ClockQueue(gpu) as clocks:
        clocks.put(CLOCKS[0])
        with pytest.raises(NoPermission):
            clocks.settle()
        gpu.fails = None
        clocks.put(CLOCKS[1])
        clocks.settle()
    assert gpu.history == [CLOCKS[1]]


def test_nothing_is_set_after_the_block_even_if_it_fails():
    gpu = FakeGpu()

    def failing():
        with ClockQueue(gpu) as clocks:
            for setting in CLOCKS:
                clocks.put(setting)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert not any(thread.name == "wattune clocks" for thread in threading.enumerate())
