"""The NVML back-end on the emulated library: what it reads, sets, refuses and restores."""

from dataclasses import replace

import pynvml
import pytest

from emulated import plain_gpu
from wattune.core.errors import DeviceLost, DeviceNotFound, NoPermission, NotSupported, SettingRefused
from wattune.core.reading import Throttle
from wattune.core.setting import Setting
from wattune.devices.meter import measured
from wattune.devices.nvml.describe import examine
from wattune.devices.open import Surroundings, expand, nvml_names, open_gpu, open_gpus, restore_abandoned
from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.emulator.node import Privilege
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload


@pytest.fixture
def around(tmp_path):
    return Surroundings(tmp_path / "state")


def resnet50_on(name):
    return tabulate(load_model(name), make_workload("resnet50"))


def test_the_spec_is_what_the_catalogue_says(emulated_node, around):
    emulated_node("a100", "v100")
    with open_gpus(("nvml",), around) as (a100, v100):
        for gpu, name in ((a100, "a100"), (v100, "v100")):
            model = load_model(name)
            assert gpu.spec.simulated
            assert gpu.spec.clocks == model.clocks
            assert gpu.spec.power_limits == model.power_limits
            assert gpu.spec.architecture == model.architecture
            assert gpu.spec.sensors.counter_period_s == model.sensors.counter_period_s
            assert "simulated" in gpu.spec.label


def test_a_reading_of_a_busy_gpu(emulated_node, around):
    node = emulated_node("a100")
    node.play(0, resnet50_on("a100"), memory_bytes=8 << 30)
    node.advance(60)
    with open_gpu("nvml:0", around) as gpu:
        reading = gpu.read()
    assert reading.time_s == pytest.approx(node.now_s())
    assert 100 < reading.power_w <= 410
    assert reading.sm_mhz in gpu.spec.sm_clocks_mhz
    assert reading.mem_mhz == gpu.spec.mem_clocks_mhz[0]
    assert 30 < reading.temperature_c < 95
    assert 0.5 < reading.sm_util <= 1
    assert reading.power_limit_w == 400
    assert reading.memory_used_bytes >= 8 << 30
    assert reading.throttle is not None


def test_a_reading_is_of_the_time_of_its_energy(emulated_node, around, monkeypatch):
    """On a busy machine the other sensors may take longer than the energy counter stands still."""
    node, utilisation = emulated_node("a100"), pynvml.nvmlDeviceGetUtilizationRates

    def slowly(handle):
        node.advance(0.3)
        return utilisation(handle)

    with open_gpu("nvml:0", around) as gpu:
        monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", slowly)
        before = gpu.count()
        reading = gpu.read()
    assert reading.energy_j == before.energy_j
    assert reading.time_s - before.time_s < 0.05


def test_settings_hold_and_are_given_back(emulated_node, around):
    node = emulated_node("a100")
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 350_000)
    node.play(0, resnet50_on("a100"))
    with open_gpu("nvml:0", around) as gpu:
        gpu.apply(Setting(1005, power_limit_w=250))
        node.advance(1)
        assert node.setting(0) == Setting(1005, None, 250)
        assert gpu.read().sm_mhz <= 1005
        assert Throttle.LOCKED in gpu.read().throttle
        gpu.apply(Setting(900))
        assert node.setting(0) == Setting(900, None, 350)
    assert node.setting(0) == Setting(None, None, 350)
    pynvml.nvmlShutdown()


def test_memory_clocks_of_a_gddr_part(emulated_node, around):
    node = emulated_node("3080ti")
    with open_gpu("nvml:0", around) as gpu:
        low = gpu.spec.mem_clocks_mhz[1]
        gpu.apply(Setting(mem_mhz=low))
        assert node.setting(0).mem_mhz == low
        gpu.apply(Setting(sm_mhz=gpu.spec.sm_clocks_mhz[-1]))
        assert node.setting(0).mem_mhz is None
    assert node.setting(0).sm_mhz is None


def test_parts_before_volta_use_application_clocks(emulated_node, around):
    pascal = replace(plain_gpu(), generation=pascal_generation(), has_counter=False)
    node = emulated_node(pascal)
    with open_gpu("nvml:0", around) as gpu:
        assert gpu.spec.architecture == "Pascal"
        gpu.apply(Setting(1000))
        node.advance(0.1)
        assert node.setting(0).sm_mhz == 1000
        first = gpu.count()
        node.advance(5)
        second = gpu.count()
        assert second.energy_j - first.energy_j == pytest.approx(20 * 5, rel=0.3)
    assert node.setting(0).sm_mhz in (None, 1500)


def pascal_generation():
    from wattune.emulator.emulated_gpu import GENERATIONS

    return GENERATIONS["pascal"]


def test_without_permission_reading_works_and_setting_says_why(emulated_node, around):
    node = emulated_node("a100", privilege=Privilege.DENIED)
    with open_gpu("nvml:0", around) as gpu:
        assert gpu.read().power_w > 0
        with pytest.raises(NoPermission) as caught:
            gpu.apply(Setting(1005))
    assert "SYS_ADMIN" in caught.value.hint
    assert node.setting(0) == Setting(None, None, 400)


def test_a_refused_clock_names_its_neighbours(emulated_node, around):
    node = emulated_node("a100")
    with open_gpu("nvml:0", around) as gpu, pytest.raises(SettingRefused, match="1000"):
        gpu.apply(Setting(1000))
    assert node.setter_calls() == 0


def test_a_laptop_that_refuses_limits(emulated_node, around):
    laptop = replace(plain_gpu(), spec=replace(plain_gpu().spec, power_limits=None))
    emulated_node(laptop)
    with open_gpu("nvml:0", around) as gpu:
        assert gpu.spec.power_limits is None
        with pytest.raises(NotSupported, match="power limit"):
            gpu.apply(Setting(power_limit_w=100))
        gpu.apply(Setting(1000))
    assert examine().gpus[0].limit_settable == "not supported"


def test_a_lost_gpu(emulated_node, around):
    node = emulated_node("a100")
    with open_gpu("nvml:0", around) as gpu:
        node.lose(0)
        with pytest.raises(DeviceLost) as caught:
            gpu.read()
        assert "reset" in caught.value.hint
        with pytest.raises(DeviceLost):
            gpu.count()
    assert examine().gpus[0].lost


def test_names_and_visibility(emulated_node, tmp_path):
    emulated_node("a100", "v100", "a40")
    said = []
    hidden = Surroundings(tmp_path, visible="2,0", device_order="PCI_BUS_ID", notify=said.append)
    assert nvml_names(hidden) == ["nvml:0", "nvml:1"]
    with open_gpus(("auto",), hidden) as (first, second):
        assert "A40" in first.spec.name
        assert "A100" in second.spec.name
    with open_gpu(f"nvml:{first.spec.uuid}", hidden) as again:
        assert again.spec == first.spec
    assert expand(("nvml:0", "nvml:0"), hidden) == ("nvml:0",)
    for name in ("nvml:7", f"nvml:{10**400}", "nvml:GPU-nowhere", "nvmll:0", "sim:", "what"):
        with pytest.raises(DeviceNotFound) as caught, open_gpu(name, hidden):
            pass
        assert caught.value.hint
    assert said == []


@pytest.mark.parametrize("name", ["a100", "v100", "3080ti"])
def test_spans_of_five_seconds_are_right_to_half_a_percent(emulated_node, around, name):
    node = emulated_node(name)
    steady = tuple(table.merged((0,)) for table in resnet50_on(name))
    node.play(0, steady)
    with open_gpu("nvml:0", around) as gpu:
        for index in range(30):
            node.advance(0.0137 * index)
            with measured(gpu, wait=node.advance) as span:
                before = node.truth_j(0)
                node.advance(5 + 0.0173 * index)
                after = node.truth_j(0)
            found, truth_j = span.measurement, after - before
            assert found.energy_j == pytest.approx(truth_j, rel=0.005)
            assert abs(found.energy_j - truth_j) <= found.energy_error_j


def test_short_spans_have_honest_bars(emulated_node, around):
    node = emulated_node("a100")
    node.play(0, tuple(table.merged((0,)) for table in resnet50_on("a100")))
    inside = 0
    with open_gpu("nvml:0", around) as gpu:
        for index in range(200):
            node.advance(0.0137 * (index % 11))
            with measured(gpu, wait=node.advance) as span:
                before = node.truth_j(0)
                node.advance(0.003 * (index + 1))
                after = node.truth_j(0)
            found = span.measurement
            inside += abs(found.energy_j - (after - before)) <= found.energy_error_j
    assert inside >= 195


def test_what_a_dead_process_left_is_undone_by_the_next_start(emulated_node, around):
    node = emulated_node("a100", "v100")
    from wattune.devices.guarded import GuardedGpu
    from wattune.devices.journal import Journal
    from wattune.devices.nvml.open import opened_nvml

    with opened_nvml("1") as bare:
        left = GuardedGpu(bare, Journal(around.state_dir), f"nvml:{bare.spec.uuid}")
        left.apply(Setting(945, power_limit_w=150))
        left.disarm()  # its files are closed, as the kernel does for a dead process
    assert node.setting(1) == Setting(945, None, 150)
    with open_gpu("nvml:0", around):
        assert node.setting(1) == Setting(None, None, load_model("v100").power_limits.default_w)
    assert restore_abandoned(around) == ()


def test_what_another_tuner_had_set_meanwhile_is_not_taken_for_found(emulated_node, around):
    node = emulated_node("a100")
    with open_gpu("nvml:0", around) as first:
        first.apply(Setting(power_limit_w=200))
        with open_gpu("nvml:0", around) as second:  # opened while the limit was 200 W
            first.restore()
            second.apply(Setting(power_limit_w=300))
    assert node.setting(0) == Setting(None, None, 400)


def test_a_gpu_that_cannot_be_restored_stays_in_the_journal(emulated_node, around):
    node = emulated_node("a100", "v100")
    from wattune.devices.guarded import GuardedGpu
    from wattune.devices.journal import Journal
    from wattune.devices.nvml.open import opened_nvml

    with opened_nvml("0") as bare:
        left = GuardedGpu(bare, Journal(around.state_dir), f"nvml:{bare.spec.uuid}")
        left.apply(Setting(1005))
        left.disarm()
    node.fail(0, pynvml.NVML_ERROR_GPU_IS_LOST)
    (outcome,) = restore_abandoned(around)
    assert isinstance(outcome.error, DeviceLost)
    node.fail(0, 0)
    (outcome,) = restore_abandoned(around)
    assert outcome.error is None
    assert list(outcome.entry.ours) == ["sm_clock"]
    assert node.setting(0).sm_mhz is None


def test_each_gpu_of_a_model_is_its_own(emulated_node):
    assert EmulatedGpu.of(load_model("a100"), 0).spec.uuid != EmulatedGpu.of(load_model("a100"), 1).spec.uuid
