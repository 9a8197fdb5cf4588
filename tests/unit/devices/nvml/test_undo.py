"""Knobs are given back where they still have our value, each by itself, and never from a forked child."""

import logging
import os
from dataclasses import replace

import pynvml
import pytest

from emulated import plain_gpu
from wattune.core.errors import DeviceError, NotSupported
from wattune.core.setting import Setting
from wattune.devices.entry import Entry
from wattune.devices.guarded import GuardedGpu
from wattune.devices.journal import Journal, boot_id
from wattune.devices.nvml.open import opened_nvml
from wattune.devices.open import Surroundings, open_gpu, restore_abandoned
from wattune.emulator.emulated_gpu import GENERATIONS


@pytest.fixture
def around(tmp_path):
    return Surroundings(tmp_path / "state")


def limit(handle, watts):
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, watts * 1000)


def killed(around, *settings):
    """Leave what a process leaves that applied these settings and was killed."""
    with opened_nvml("0") as bare:
        gpu = GuardedGpu(bare, Journal(around.state_dir), f"nvml:{bare.spec.uuid}")
        for setting in settings:
            gpu.apply(setting)
        gpu.disarm()


def test_a_limit_that_the_administrator_set_after_a_crash_is_left(emulated_node, around, caplog):
    node = emulated_node("a100")
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    limit(handle, 300)
    killed(around, Setting(1005, power_limit_w=150))
    limit(handle, 120)
    with caplog.at_level(logging.WARNING), open_gpu("nvml:0", around):
        pass
    assert node.setting(0) == Setting(None, None, 120)  # the lock was ours still
    assert "power limit is 120 W, set by somebody else after our 150 W; it is left as it is" in caplog.text
    assert restore_abandoned(around) == ()
    pynvml.nvmlShutdown()


def test_either_value_of_an_interrupted_change_is_ours(emulated_node, around):
    node = emulated_node("a100")
    for held_w in (150, 200):
        with opened_nvml("0") as bare:
            claim = Journal(around.state_dir).claim(bare.spec.uuid, label="x")
            ours, found = {"power_limit": (150_000, 200_000)}, {"power_limit": 380_000}
            device = f"nvml:{bare.spec.uuid}"
            claim.write(Entry(bare.spec.uuid, device, pid=1, boot_id=boot_id(), found=found, ours=ours))
            bare.apply(Setting(power_limit_w=held_w))
            claim.close()
        (outcome,) = restore_abandoned(around)
        assert (outcome.error, outcome.left) == (None, ())
        assert node.setting(0).power_limit_w == 380


def test_at_a_normal_end_a_limit_of_somebody_else_is_left(emulated_node, around, caplog):
    node = emulated_node("a100")
    with caplog.at_level(logging.WARNING), open_gpu("nvml:0", around) as gpu:
        gpu.apply(Setting(1005, power_limit_w=150))
        limit(pynvml.nvmlDeviceGetHandleByIndex(0), 120)
    assert node.setting(0) == Setting(None, None, 120)
    assert "120 W" in caplog.text


def test_a_limit_that_somebody_sets_while_we_tune_is_the_one_to_give_back(emulated_node, around, caplog):
    node = emulated_node("a100")
    with caplog.at_level(logging.WARNING), open_gpu("nvml:0", around) as gpu:
        gpu.apply(Setting(power_limit_w=150))
        limit(pynvml.nvmlDeviceGetHandleByIndex(0), 120)
        gpu.apply(Setting(power_limit_w=200))
        assert node.setting(0).power_limit_w == 200
    assert node.setting(0).power_limit_w == 120
    assert "somebody else has set its power limit to 120 W" in caplog.text


def test_a_limit_that_somebody_sets_while_the_driver_has_it_back_is_the_one_to_give_back(emulated_node, around):
    node = emulated_node("a100")
    with open_gpu("nvml:0", around) as gpu:
        gpu.apply(Setting(power_limit_w=150))
        gpu.apply(Setting(1005))
        limit(pynvml.nvmlDeviceGetHandleByIndex(0), 120)
        gpu.apply(Setting(power_limit_w=200))
    assert node.setting(0) == Setting(None, None, 120)


def test_a_knob_that_the_driver_has_back_is_not_reported_at_the_end(emulated_node, around, caplog):
    node = emulated_node(plain_gpu(), clock="wall")
    with caplog.at_level(logging.WARNING), open_gpu("nvml:0", around) as gpu:
        gpu.apply(Setting(500))
        gpu.apply(Setting(power_limit_w=150))
        pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 1000, 1000)
    assert node.setting(0) == Setting(1000, None, 300)
    assert caplog.text == ""


def test_a_lock_above_ours_is_somebody_elses(emulated_node, around):
    node = emulated_node(plain_gpu(), clock="wall")
    killed(around, Setting(500))
    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 1000, 1000)
    (outcome,) = restore_abandoned(around)
    assert node.setting(0).sm_mhz == 1000
    assert outcome.left == ("its core clock is 1000 MHz, above our lock of 500 MHz",)
    assert restore_abandoned(around) == ()
    pynvml.nvmlShutdown()


def test_applications_clocks_of_somebody_else_are_left(emulated_node, around):
    node = emulated_node(replace(plain_gpu(), generation=GENERATIONS["pascal"]))
    killed(around, Setting(1000))
    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetApplicationsClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 1000, 500)
    (outcome,) = restore_abandoned(around)
    assert node.setting(0).sm_mhz == 500
    assert "500 MHz" in outcome.left[0]
    pynvml.nvmlShutdown()


def test_a_limit_outside_the_range_of_the_gpu_is_not_believed(emulated_node, around):
    node = emulated_node("a100")
    with opened_nvml("0") as bare:
        uuid = bare.spec.uuid
        bare.apply(Setting(1005, power_limit_w=200))
    claim = Journal(around.state_dir).claim(uuid, label="x")
    ours, found = {"power_limit": (200_000,), "sm_clock": (1005,)}, {"power_limit": 9_000_000}
    claim.write(Entry(uuid, f"nvml:{uuid}", pid=1, boot_id=boot_id(), found=found, ours=ours))
    claim.close()
    (outcome,) = restore_abandoned(around)
    assert "9000 W is none of that GPU; that was not restored" in outcome.error.message
    assert node.setting(0) == Setting(power_limit_w=200)  # the clock was
    assert Journal(around.state_dir).left() == ()
    assert len(list(around.state_dir.glob("*.damaged-*"))) == 1


def test_a_limit_that_is_not_believed_does_not_hide_a_knob_that_failed(emulated_node, around, monkeypatch):
    from wattune.devices.nvml import undo

    node = emulated_node("a100")
    with opened_nvml("0") as bare:
        uuid = bare.spec.uuid
        bare.apply(Setting(1005, power_limit_w=200))
    claim = Journal(around.state_dir).claim(uuid, label="x")
    ours, found = {"power_limit": (200_000,), "sm_clock": (1005,)}, {"power_limit": 9_000_000}
    claim.write(Entry(uuid, f"nvml:{uuid}", pid=1, boot_id=boot_id(), found=found, ours=ours))
    claim.close()
    plain = undo._call

    def failing(library, name, *arguments):
        return 999 if name == "nvmlDeviceResetGpuLockedClocks" else plain(library, name, *arguments)

    monkeypatch.setattr(undo, "_call", failing)
    (outcome,) = restore_abandoned(around)
    assert isinstance(outcome.error, DeviceError)
    assert Journal(around.state_dir).left() == (uuid,)  # it is tried again
    monkeypatch.undo()
    restore_abandoned(around)
    assert node.setting(0) == Setting(power_limit_w=200)


def test_applications_clocks_that_the_gpu_does_not_list_are_not_believed(emulated_node, around):
    node = emulated_node(replace(plain_gpu(), generation=GENERATIONS["pascal"]))
    with opened_nvml("0") as bare:
        uuid = bare.spec.uuid
        bare.apply(Setting(500))
    for found in ({"app_sm_clock": 501, "app_mem_clock": 1000}, {"app_sm_clock": 1000, "app_mem_clock": 7}):
        claim = Journal(around.state_dir).claim(uuid, label="x")
        ours = {"app_sm_clock": (500,), "app_mem_clock": (1000,)}
        claim.write(Entry(uuid, f"nvml:{uuid}", pid=1, boot_id=boot_id(), found=found, ours=ours))
        claim.close()
        (outcome,) = restore_abandoned(around)
        assert "none of that GPU" in outcome.error.message
        assert node.setting(0).sm_mhz == 500


def test_a_refused_limit_takes_the_lock_back(emulated_node, around, monkeypatch):
    node = emulated_node("a100")

    def refused(handle, milliwatts):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    with open_gpu("nvml:0", around) as gpu:
        gpu.apply(Setting(1410))
        monkeypatch.setattr(pynvml, "nvmlDeviceSetPowerManagementLimit", refused)
        with pytest.raises(NotSupported):
            gpu.apply(Setting(1005, power_limit_w=150))
        assert node.setting(0) == Setting(1410, None, 400)
        gpu.restore()
        with pytest.raises(NotSupported):
            gpu.apply(Setting(1005, power_limit_w=150))
        assert node.setting(0) == Setting(None, None, 400)


def test_a_knob_that_fails_does_not_keep_the_others_from_being_undone(emulated_node, around, monkeypatch):
    from wattune.devices.nvml import undo

    node = emulated_node("a100")
    killed(around, Setting(1005, power_limit_w=150))
    plain = undo._call

    def failing(library, name, *arguments):
        return 999 if name == "nvmlDeviceSetPowerManagementLimit" else plain(library, name, *arguments)

    monkeypatch.setattr(undo, "_call", failing)
    (outcome,) = restore_abandoned(around)
    assert isinstance(outcome.error, DeviceError)
    assert node.setting(0) == Setting(None, None, 150)
    monkeypatch.undo()
    (outcome,) = restore_abandoned(around)
    assert outcome.error is None
    assert node.setting(0) == Setting(None, None, 400)


def test_one_damaged_entry_blocks_no_other(emulated_node, around):
    node = emulated_node("a100")
    killed(around, Setting(power_limit_w=150))
    (around.state_dir / "GPU-0.journal").write_text("{")
    damaged, good = restore_abandoned(around)
    assert "GPU-0 is damaged" in damaged.error.message
    assert good.error is None
    assert node.setting(0).power_limit_w == 400


def forked(work):
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_makes_no_call_on_the_nvml_of_its_parent(emulated_node, around):
    node = emulated_node("a100")
    with open_gpu("nvml:0", around) as gpu:
        gpu.apply(Setting(1005))
        count = gpu.count

        def child():
            calls = node.getter_calls() + node.setter_calls()
            for use in (gpu.read, gpu.count, count, lambda: gpu.apply(Setting(900))):
                try:
                    use()
                except DeviceError as error:
                    if "forked child" not in error.message:
                        return 1
                else:
                    return 2
            return 0 if node.getter_calls() + node.setter_calls() == calls else 3

        assert forked(child) == 0
        assert gpu.count().energy_j >= 0
        assert node.setting(0).sm_mhz == 1005
    assert node.setting(0).sm_mhz is None


def test_a_forked_child_opens_the_gpu_with_an_nvml_of_its_own(emulated_node, around, tmp_path):
    node = emulated_node("a100", "a100")
    with open_gpu("nvml:0", around) as gpu:
        gpu.apply(Setting(1005))

        def child():
            with open_gpu("nvml:1", around) as other:
                other.apply(Setting(900))
                if node.setting(1).sm_mhz != 900:
                    return 1
            return 0

        assert forked(child) == 0
        assert (node.setting(0).sm_mhz, node.setting(1).sm_mhz) == (1005, None)


def test_a_child_that_leaves_the_block_of_its_parent_changes_nothing(emulated_node, around):
    node = emulated_node("a100")
    pid = -1
    with open_gpu("nvml:0", around) as gpu:
        gpu.apply(Setting(1005))
        pid = os.fork()
        if pid:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert node.setting(0).sm_mhz == 1005
            assert len(Journal(around.state_dir).left()) == 1
    if not pid:
        os._exit(0)
    assert node.setting(0).sm_mhz is None
