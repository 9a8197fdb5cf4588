"""Power limits and what the sensors show of power and energy."""

from dataclasses import replace
from itertools import pairwise

import pynvml
import pytest

from emulated import plain_gpu, plain_load
from wattune.core.gpu_spec import Sensors

AVERAGE, INSTANT, ENERGY = 185, 186, 83


def opened(node_of, gpu):
    node = node_of(gpu)
    pynvml.nvmlInit()
    return node, pynvml.nvmlDeviceGetHandleByIndex(0)


def with_sensors(gpu, counter_s, period_s, window_s):
    return replace(gpu, spec=replace(gpu.spec, sensors=Sensors(counter_s, period_s, window_s)))


def counter_j(handle):
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000


def test_the_counter_starts_where_the_driver_left_it(emulated_node):
    _, handle = opened(emulated_node, plain_gpu())
    assert counter_j(handle) == 1_000_000


def test_the_counter_holds_between_refreshes(emulated_node):
    node, handle = opened(emulated_node, plain_gpu(counter_period_s=0.1))
    start_j = counter_j(handle)
    seen = []
    for _ in range(25):
        node.advance(0.01)
        seen.append(round(counter_j(handle) - start_j, 3))
    assert seen == [0.0] * 9 + [2.0] * 10 + [4.0] * 6


def test_the_counter_is_complete_by_default(emulated_node):
    gpu = plain_gpu(counter_period_s=0.1)
    node, handle = opened(emulated_node, gpu)
    start_j = counter_j(handle)
    node.play(0, plain_load(gpu))
    for _ in range(7):
        node.advance(0.3)
    assert counter_j(handle) - start_j == pytest.approx(7 * 58, abs=0.01)


def test_a_part_time_counter_measures_only_its_window(emulated_node):
    # 25 ms of every 100 ms: a load of 300 W in just those windows and 100 W between looks like 300 W throughout.
    gpu = replace(with_sensors(plain_gpu(), 0.1, 0.1, 0.025), counter_window_s=0.025)
    node, handle = opened(emulated_node, gpu)
    start_j = counter_j(handle)
    node.play(0, plain_load(gpu, duration_s=(0.075, 0.025), power_w=(100.0, 300.0)))
    node.advance(50)
    assert node.truth_j(0) == pytest.approx(50 * 150)
    assert counter_j(handle) - start_j == pytest.approx(50 * 300, abs=0.01)
    node.idle(0)
    node.advance(10)
    assert counter_j(handle) - start_j == pytest.approx(50 * 300 + 10 * 60, abs=0.01)


def test_a_part_time_counter_takes_a_very_long_gap_at_its_true_energy(emulated_node):
    gpu = replace(with_sensors(plain_gpu(), 0.1, 0.1, 0.025), counter_window_s=0.025)
    node, handle = opened(emulated_node, gpu)
    start_j = counter_j(handle)
    node.play(0, plain_load(gpu, duration_s=(0.075, 0.025), power_w=(100.0, 300.0)))
    node.advance(1000)
    assert counter_j(handle) - start_j == pytest.approx(409.6 * 300 + 590.4 * 150, abs=0.01)


def test_a_counter_may_be_missing(emulated_node):
    _, handle = opened(emulated_node, replace(plain_gpu(), has_counter=False))
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    assert pynvml.nvmlDeviceGetFieldValues(handle, [ENERGY])[0].nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_power_is_the_mean_of_the_last_window(emulated_node):
    gpu = with_sensors(plain_gpu(), None, 0.1, 0.1)
    node, handle = opened(emulated_node, gpu)
    node.play(0, plain_load(gpu, duration_s=(0.05, 0.15), power_w=(280.0, 80.0)))
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 20_000
    node.advance(0.1)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 180_000
    node.advance(0.099)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 180_000
    node.advance(0.001)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 80_000


def test_a_one_second_average_where_the_gpu_has_one(emulated_node):
    gpu = replace(with_sensors(plain_gpu(), None, 0.1, 0.1), average_window_s=1.0)
    node, handle = opened(emulated_node, gpu)
    node.idle(0)  # 60 W instead of 20 W
    node.advance(0.5)
    average, instant = pynvml.nvmlDeviceGetFieldValues(handle, [AVERAGE, INSTANT])
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == average.value.uiVal == 40_000
    assert instant.value.uiVal == 60_000
    node.advance(0.5)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 60_000


@pytest.mark.parametrize(("name", "averages"), [("a100", False), ("v100", False), ("a40", True), ("3080ti", True)])
def test_which_gpus_average_over_a_second(emulated_node, name, averages):
    node = emulated_node(name)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    node.idle(0)
    node.advance(0.5)
    average, instant = pynvml.nvmlDeviceGetFieldValues(handle, [AVERAGE, INSTANT])
    usage_mw = pynvml.nvmlDeviceGetPowerUsage(handle)
    assert instant.nvmlReturn == 0
    assert (average.nvmlReturn == 0) == averages
    assert usage_mw == (average.value.uiVal if averages else instant.value.uiVal)


def test_noise_is_small_changes_at_refreshes_and_repeats(emulated_node):
    gpu = replace(with_sensors(plain_gpu(), None, 0.1, 0.1), noise_w=0.5)

    def trace():
        node, handle = opened(emulated_node, gpu)
        seen = []
        for _ in range(400):
            node.advance(0.05)
            seen.append(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000)
        pynvml.nvmlShutdown()
        return seen

    first = trace()
    assert first == trace()
    values = first[1::2]
    assert first[2::2] == values[:-1]
    assert len(set(values)) > 150
    assert max(abs(value - 20) for value in values) <= 0.5 * 3**0.5 + 1e-3
    deviation = (sum((value - 20) ** 2 for value in values) / len(values)) ** 0.5
    assert deviation == pytest.approx(0.5, rel=0.2)


def test_gain_shows_in_power_and_energy_and_not_in_the_truth(emulated_node):
    node, handle = opened(emulated_node, replace(plain_gpu(), gain=1.05))
    start_j = counter_j(handle)
    node.advance(10)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 21_000
    assert counter_j(handle) - start_j == pytest.approx(210, abs=0.01)
    assert node.truth_j(0) == pytest.approx(200)


def test_samples_have_timestamps_and_are_given_once(emulated_node):
    node, handle = opened(emulated_node, with_sensors(plain_gpu(), None, 0.1, 0.1))
    node.idle(0)
    node.advance(1.05)
    kind, samples = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_TOTAL_POWER_SAMPLES, 0)
    assert kind == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    assert [sample.sampleValue.uiVal for sample in samples] == [20_000] + [60_000] * 10
    steps = {after.timeStamp - before.timeStamp for before, after in pairwise(samples)}
    assert steps == {100_000}
    last = samples[-1].timeStamp
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_TOTAL_POWER_SAMPLES, last)
    node.advance(60)
    assert len(pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_TOTAL_POWER_SAMPLES, last)[1]) == 120
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_ENC_UTILIZATION_SAMPLES, 0)


def test_limits(emulated_node):
    node, handle = opened(emulated_node, plain_gpu())
    assert pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle) == [100_000, 300_000]
    assert pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) == 300_000
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 150_500)
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle) == 150_500
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) == 150_500
    for milliwatts in (0, 99_999, 300_001, 4_000_000_000):
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, milliwatts)
    assert node.setting(0).power_limit_w == 150.5
    fields = pynvml.nvmlDeviceGetFieldValues(handle, [187, 188, 189, 190, 192])
    assert [field.value.uiVal for field in fields] == [100_000, 300_000, 300_000, 150_500, 150_500]


def test_limits_by_the_second_version(emulated_node):
    node, handle = opened(emulated_node, plain_gpu())
    pynvml.nvmlDeviceSetPowerManagementLimit_v2(handle, pynvml.NVML_POWER_SCOPE_GPU, 120_000)
    assert node.setting(0).power_limit_w == 120
    pynvml.nvmlDeviceSetPowerManagementLimit_v2(handle, pynvml.NVML_POWER_SCOPE_MODULE, 130_000)
    pynvml.nvmlDeviceSetPowerManagementLimit_v2(handle, pynvml.NVML_POWER_SCOPE_GPU, 140_000, version=1)
    assert node.setting(0).power_limit_w == 120


def test_a_laptop_gpu_refuses_power_limits_and_is_not_capped(emulated_node):
    gpu = plain_gpu()
    gpu = replace(gpu, spec=replace(gpu.spec, power_limits=None))
    node, handle = opened(emulated_node, gpu)
    node.play(0, plain_load(gpu, power_w=(900.0, 900.0)))
    for call in (
        lambda: pynvml.nvmlDeviceSetPowerManagementLimit(handle, 100_000),
        lambda: pynvml.nvmlDeviceGetPowerManagementLimit(handle),
        lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle),
        lambda: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle),
        lambda: pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle),
    ):
        with pytest.raises(pynvml.NVMLError_NotSupported):
            call()
    assert pynvml.nvmlDeviceGetFieldValues(handle, [190])[0].nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 1500
    assert node.setting(0).power_limit_w is None
