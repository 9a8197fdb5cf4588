"""Counters of a GPU through NVML's GPM metrics: on a library that has them, and on one that has not."""

from types import SimpleNamespace

import pynvml
import pytest

from emulated import plain_gpu
from wattune.core.errors import DeviceLost, DeviceNotFound
from wattune.devices.nvml import open as nvml_open
from wattune.devices.open import Surroundings, open_gpu
from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload


class FakeGpm:
    """NVML's calls around GPM, with counters that are set by hand."""

    def __init__(self, monkeypatch, *, supported=True):
        self.now_s = 0.0
        self.values = dict.fromkeys(nvml_open.METRICS.values(), 50.0)
        self.lacking = set()
        self.allocated = self.freed = 0
        self.error = None
        monkeypatch.setattr(nvml_open.library, "load", lambda: SimpleNamespace(clock=lambda: self.now_s))
        monkeypatch.setattr(nvml_open.library, "close", lambda: None)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
        support = SimpleNamespace(isSupportedDevice=supported)
        monkeypatch.setattr(pynvml, "nvmlGpmQueryDeviceSupport", lambda _: support)
        monkeypatch.setattr(pynvml, "nvmlGpmSampleAlloc", self.alloc)
        monkeypatch.setattr(pynvml, "nvmlGpmSampleFree", self.free)
        monkeypatch.setattr(pynvml, "nvmlGpmSampleGet", self.sample)
        monkeypatch.setattr(pynvml, "nvmlGpmMetricsGet", self.metrics)

    def alloc(self):
        self.allocated += 1
        return pynvml.c_nvmlGpmSample_t()

    def free(self, sample):
        self.freed += 1

    def sample(self, handle, sample):
        if self.error is not None:
            raise pynvml.NVMLError(self.error)
        return sample

    def metrics(self, asked):
        for place in range(asked.numMetrics):
            metric = asked.metrics[place]
            lacks = metric.metricId in self.lacking
            metric.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if lacks else pynvml.NVML_SUCCESS
            metric.value = self.values[metric.metricId]
        return asked


def test_counters_are_shares_by_name(monkeypatch):
    fake = FakeGpm(monkeypatch)
    fake.values[pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL] = 37.5
    with nvml_open.opened_counters("GPU-1") as reader:
        fake.now_s = 1.0
        found = reader.read()
    assert set(found) == set(nvml_open.METRICS)
    assert found["tensor"] == 0.375
    assert found["dram"] == 0.5
    assert fake.allocated == fake.freed == 2


def test_two_samples_are_a_tenth_of_a_second_apart(monkeypatch):
    fake = FakeGpm(monkeypatch)
    with nvml_open.opened_counters("GPU-1") as reader:
        fake.now_s = 0.05
        assert reader.read() is None
        fake.now_s = 0.15
        assert reader.read() is not None
        assert reader.read() is None


def test_metrics_that_the_part_lacks_or_that_make_no_sense_are_left_out(monkeypatch):
    fake = FakeGpm(monkeypatch)
    fake.lacking.add(pynvml.NVML_GPM_METRIC_FP64_UTIL)
    fake.values[pynvml.NVML_GPM_METRIC_FP16_UTIL] = float("nan")
    fake.values[pynvml.NVML_GPM_METRIC_INTEGER_UTIL] = 250.0
    with nvml_open.opened_counters("GPU-1") as reader:
        fake.now_s = 1.0
        assert set(reader.read()) == set(nvml_open.METRICS) - {"fp64", "fp16", "integer"}


def test_a_part_without_counters_has_no_reader(monkeypatch):
    FakeGpm(monkeypatch, supported=False)
    with nvml_open.opened_counters("GPU-1") as reader:
        assert reader is None


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION])
def test_counters_that_may_not_be_read_are_none(monkeypatch, error):
    fake = FakeGpm(monkeypatch)
    fake.error = error
    with nvml_open.opened_counters("GPU-1") as reader:
        assert reader is None
    assert fake.allocated == fake.freed == 2


def test_a_gpu_that_is_lost_midway_is_an_error_of_ours(monkeypatch):
    fake = FakeGpm(monkeypatch)
    with nvml_open.opened_counters("GPU-1") as reader:
        fake.now_s, fake.error = 1.0, pynvml.NVML_ERROR_GPU_IS_LOST
        with pytest.raises(DeviceLost, match="cannot read the counters"):
            reader.read()
    assert fake.freed == 2


def test_an_emulated_part_before_hopper_has_none(emulated_node):
    gpu = plain_gpu()
    emulated_node(gpu)
    with nvml_open.opened_counters(gpu.spec.uuid) as reader:
        assert reader is None
    with pytest.raises(DeviceNotFound), nvml_open.opened_counters("GPU-unknown"):
        pass


def test_an_emulated_hopper_shows_its_load(emulated_node):
    model, workload = load_model("h100"), make_workload("bert-base")
    node = emulated_node("h100")
    tables = tabulate(model, workload)
    node.play(0, tables)
    with nvml_open.opened_counters(EmulatedGpu.of(model, 0).spec.uuid) as reader:
        assert reader.read() is None
        node.advance(20.0)
        found = reader.read()
    table, seconds = tables[0], tables[0].duration_s
    clock = table.sm_mhz.index(node_clock(node))
    share = seconds[:, clock] / seconds[:, clock].sum()
    assert set(found) == {"sm", "tensor", "dram", "fp32"}
    assert found["tensor"] == pytest.approx(share @ table.tensor_util[:, clock], abs=0.01)
    assert found["fp32"] == pytest.approx(share @ table.fp32_util[:, clock], abs=0.01)
    assert found["dram"] == pytest.approx(share @ table.mem_util[:, clock], abs=0.01)
    assert found["tensor"] > found["fp32"] > 0


def node_clock(node):
    """The core clock that holds on the only GPU of a node."""
    with open_gpu("nvml:0", Surroundings(node.path.parent, None)) as gpu:
        return gpu.read().sm_mhz
