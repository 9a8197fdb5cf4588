"""Calls in turn: what takes long holds up nothing else."""

import threading

import pytest

from processes import PATIENCE_S
from wattune.control.actuator import Actuator, restored_if_slow
from wattune.core.errors import DeviceError
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.guarded import GuardedGpu
from wattune.devices.in_turn import in_turn, takes_long
from wattune.devices.journal import Journal
from wattune.devices.nvml.open import opened_nvml


def test_quick_calls_come_one_after_the_other_and_errors_are_returned():
    order = []
    wrong = ValueError("wrong")

    def fail():
        order.append(2)
        raise wrong

    assert in_turn([lambda: order.append(1), fail, lambda: order.append(3) or "done"]) == [None, wrong, "done"]
    assert order == [1, 2, 3]
    assert in_turn([]) == []
    assert not takes_long(fail)


class Stuck:
    """A GPU whose restoring ends once that of another has begun."""

    def __init__(self, begun, other):
        self.begun, self.other = begun, other

    def restore(self):
        self.begun.set()
        assert self.other.wait(PATIENCE_S)


def test_gpus_of_a_slow_driver_are_restored_together():
    one, two = threading.Event(), threading.Event()
    actuator = Actuator([Stuck(one, two), Stuck(two, one)])
    actuator.close()
    assert actuator.stuck == ()


def test_gpus_are_restored_beside_a_last_reading_that_takes_long():
    restored = threading.Event()
    with restored_if_slow([Stuck(restored, restored)]):
        assert restored.wait(PATIENCE_S)


@pytest.fixture
def guarded(emulated_node, tmp_path):
    node = emulated_node("a100")
    with opened_nvml("0") as bare:
        yield node, bare, GuardedGpu(bare, Journal(tmp_path / "state"), f"nvml:{bare.spec.uuid}")


def test_two_threads_may_restore_a_gpu(guarded, monkeypatch):
    node, bare, gpu = guarded
    begun, may_end, undo = threading.Event(), threading.Event(), bare.undo
    gpu.apply(Setting(900, None, 250.0))

    def slow(*arguments, **named):
        begun.set()
        assert may_end.wait(PATIENCE_S)
        return undo(*arguments, **named)

    monkeypatch.setattr(bare, "undo", slow)
    failures = []
    threads = [threading.Thread(target=lambda: failures.extend(in_turn([gpu.close]))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(PATIENCE_S)
    may_end.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert failures == [None, None]
    assert node.setting(0) == Setting(None, None, 400.0)


def test_a_setting_on_its_way_ends_where_the_gpu_is_to_be_restored(guarded, monkeypatch):
    node, bare, gpu = guarded
    restoring = []

    def change(before, after):
        """The clock has been set, and the program ends before the limit is."""
        restoring.append(threading.Thread(target=gpu.restore))
        restoring[0].start()
        while not bare.interrupted:
            pass

    changes = bare._changes()
    monkeypatch.setattr(bare, "_changes", lambda: (*changes[:2], change, *changes[2:]))
    with pytest.raises(DeviceError, match="is restored"):
        gpu.apply(Setting(900, None, 250.0))
    restoring[0].join(PATIENCE_S)
    assert node.setting(0) == Setting(None, None, 400.0)
    assert bare._applied == DRIVER_DEFAULT


def test_a_slow_driver_gives_a_clock_back_by_one_call(guarded):
    node, _, gpu = guarded
    gpu.apply(Setting(900, None, None))
    node.inject("all", code=0, blocking_s=0.4)
    before = node.getter_calls()
    gpu.restore()
    assert node.setting(0) == Setting(None, None, 400.0)
    assert node.getter_calls() - before <= 1  # which showed that the driver is slow
