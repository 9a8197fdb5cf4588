"""One GPU of this machine: what its driver answers, whether its sensors agree, and whether settings hold and end."""

import statistics
import time

import pytest

from wattune.core.errors import NoPermission, NotSupported
from wattune.core.setting import Setting
from wattune.devices.meter import measured, watch
from wattune.devices.nvml.open import list_visible
from wattune.devices.nvml.probe import probe
from wattune.devices.nvml.visible import ask_cuda

pytestmark = pytest.mark.hardware

SPAN_S = 3.0


def test_every_reader_answers_as_on_the_emulated_gpu(gpu, emulated_answers, differs):
    index = next(one.index for one in list_visible(None, "PCI_BUS_ID").gpus if one.uuid == gpu.spec.uuid)
    answers = probe(index)
    for answer in answers:
        emulated, _ = emulated_answers[answer.function]
        if answer.outcome != emulated:
            differs.append(f"{answer.function}: {answer.outcome} here, {emulated} on the emulated GPU")
    slowest = max(answers, key=lambda answer: answer.microseconds)
    median_us = statistics.median(answer.microseconds for answer in answers)
    differs.append(f"a call takes {median_us:.0f} µs (median), {slowest.function} {slowest.microseconds:.0f} µs")
    needed = {"nvmlDeviceGetName", "nvmlDeviceGetUUID"}
    assert {answer.function for answer in answers if answer.outcome == "ok"} >= needed


def test_a_reading_is_plausible(gpu, differs):
    reading = gpu.read()
    missing = [name for name in reading.__slots__ if getattr(reading, name) is None]
    if missing:
        differs.append(f"not reported: {', '.join(missing)}")
    limits = gpu.spec.power_limits
    assert reading.power_w is None or 0 < reading.power_w < 2 * (limits.max_w if limits else 1000)
    assert reading.temperature_c is None or 0 < reading.temperature_c < 110
    assert reading.sm_mhz is None or reading.sm_mhz < 5000


def test_the_counter_rises_and_agrees_with_power(gpu, differs):
    powers = []
    with measured(gpu) as span:
        end_s = time.monotonic() + SPAN_S
        while time.monotonic() < end_s:
            powers.append(gpu.read().power_w)
            time.sleep(0.05)
    known = [power_w for power_w in powers if power_w is not None]
    assert span.measurement.energy_j > 0
    if known:
        ratio = span.measurement.power_w / statistics.mean(known)
        differs.append(f"counter / power sensor over {SPAN_S:g} s: {ratio:.3f} (emulated: 1.000)")
        assert 0.5 < ratio < 2.0


def test_the_counter_refreshes_as_expected(gpu, differs):
    expected_s = gpu.spec.sensors.counter_period_s
    if watch(gpu) is None:
        differs.append("the counter did not move within three refreshes")
        return
    found_s = gpu.refresh.period_s
    expected = "unknown" if expected_s is None else f"{1000 * expected_s:.0f} ms"
    differs.append(f"the counter refreshes every {1000 * found_s:.1f} ms (expected: {expected})")
    assert 0 < found_s < 5


def test_cuda_counts_as_wattune_does(gpu, differs):
    asked = ask_cuda()
    if asked is None:
        pytest.skip("CUDA does not answer")
    ours = tuple(one.uuid for one in list_visible(None, None).gpus)
    if ours != asked:
        differs.append(f"CUDA counts {asked}, wattune {ours}")
    assert set(asked) <= set(ours)


def changed(gpu, setting):
    """Apply a setting, or skip where that is not allowed."""
    try:
        gpu.apply(setting)
    except (NoPermission, NotSupported) as error:
        pytest.skip(error.message)


def test_a_locked_clock_holds_and_ends(gpu, differs):
    clocks = gpu.spec.sm_clocks_mhz
    if not clocks:
        pytest.skip("this GPU has no clocks to lock")
    locked_mhz = clocks[len(clocks) // 2]
    changed(gpu, Setting(sm_mhz=locked_mhz))
    begun_s = time.monotonic()
    while (gpu.read().sm_mhz or 0) > locked_mhz and time.monotonic() - begun_s < 5:
        time.sleep(0.01)
    reading = gpu.read()
    differs.append(
        f"locked at {locked_mhz} MHz: reads {reading.sm_mhz} MHz at {reading.power_w} W, "
        f"{time.monotonic() - begun_s:.2f} s later"
    )
    assert reading.sm_mhz is None or reading.sm_mhz <= locked_mhz
    gpu.restore()


def test_a_power_limit_holds_and_ends(gpu, differs):
    limits, before_w = gpu.spec.power_limits, gpu.read().power_limit_w
    if limits is None or before_w is None:
        pytest.skip("this GPU has no power limit")
    wanted_w = round((limits.min_w + limits.max_w) / 2)
    changed(gpu, Setting(power_limit_w=wanted_w))
    held_w = gpu.read().power_limit_w
    gpu.restore()
    after_w = gpu.read().power_limit_w
    if held_w != wanted_w:
        differs.append(f"a limit of {wanted_w} W reads {held_w} W")
    assert abs(held_w - wanted_w) <= 2
    assert after_w == before_w
