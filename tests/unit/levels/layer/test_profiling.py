"""Measuring layers: in windows that the counter resolves, at a settled temperature, resumed after a stop."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from wattune.control.window_state import Measuring, Settling
from wattune.core.errors import DeviceError, InputError, SettingRefused
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.workload import Phase, Workload
from wattune.devices.nvml.open import opened_nvml
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.layer.profiling import (
    CellChoice,
    EmulatedLayers,
    RepeatedRuns,
    cell_result,
    has_settled,
    jumping,
    measure_cells,
    next_runs,
)
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate

PHASES = (
    Phase(name="forward/a", flops=2e10, dram_bytes=1e8, launches=1),
    Phase(name="forward/b", flops=1e8, dram_bytes=4e8, launches=1),
    Phase(name="optimizer", flops=1e6, dram_bytes=1e6, launches=1),
)
SETTINGS = [DRIVER_DEFAULT, Setting(1200), Setting(900)]
CHOICE = CellChoice("forward/a", Setting(900))


class Runner:
    """Layers on a simulated GPU, in virtual time."""

    def __init__(self, gpu, *, stops_after=None):
        self.gpu, self.names = gpu, tuple(phase.name for phase in PHASES)
        self.work = {phase.name: Workload(name=phase.name, phases=(phase,)) for phase in PHASES}
        self.runs = []
        self.stops_after = stops_after

    def prepare(self, name):
        def run(times):
            self.runs.append((self.gpu.setting, name, times))
            if len(self.runs) == self.stops_after:
                raise KeyboardInterrupt
            self.gpu.run(self.work[name], iterations=times)

        return run

    def wait(self, seconds):
        self.gpu.idle(seconds)


def measure(gpu, runner=None, **options):
    runner = runner or Runner(gpu)
    return measure_cells(gpu, runner, SETTINGS, workload="net:4", **options)


def test_every_layer_is_measured_at_every_setting_as_the_gpu_spends():
    gpu, seen = SimulatedGpu(load_model("a4000")), []
    found = measure(gpu, progress=seen.append)
    assert [(cell.layer, cell.setting) for cell in found.cells] == [
        (phase.name, setting) for phase in PHASES for setting in SETTINGS
    ]
    assert [(one.done, one.total) for one in seen] == [(done, 9) for done in range(1, 10)]
    for phase in PHASES:
        cell = next(cell for cell in found.cells if (cell.layer, cell.setting) == (phase.name, Setting(900)))
        table = tabulate(gpu.model, Workload(name=phase.name, phases=(phase,)))[0]
        column = table.sm_mhz.index(900)
        assert cell.time_s == pytest.approx(float(table.iteration_s[column]), rel=1e-3)
        # The table is for a GPU that has settled at this layer alone.
        assert cell.energy_j == pytest.approx(float(table.iteration_j[column]), rel=0.06)
    assert 0 < found.waiting_w < 60
    assert gpu.setting == DRIVER_DEFAULT


def test_layers_are_measured_on_the_emulated_library(emulated_node):
    node, model = emulated_node("a4000"), load_model("a4000")
    layers = EmulatedLayers(node, model, Workload(name="net:4", phases=PHASES))
    with opened_nvml("0") as gpu:
        found = measure_cells(gpu, layers, [Setting(900)], workload="net:4")
    by_hand = measure_cells(simulated := SimulatedGpu(model), Runner(simulated), [Setting(900)], workload="net:4")
    for one, two in zip(found.cells, by_hand.cells, strict=True):
        assert (one.layer, one.setting) == (two.layer, two.setting)
        assert one.time_s == pytest.approx(two.time_s, rel=1e-3)
        assert one.energy_j == pytest.approx(two.energy_j, rel=0.02)


def test_short_layers_are_repeated_more_often():
    gpu = SimulatedGpu(load_model("a4000"))
    runner = Runner(gpu)
    measure(gpu, runner)
    most = {name: max(times for _, layer, times in runner.runs if layer == name) for name in runner.names}
    assert most["optimizer"] > 10 * most["forward/b"]


def test_a_run_that_was_stopped_continues_where_it_was(tmp_path):
    file = tmp_path / "layers.jsonl"
    gpu = SimulatedGpu(load_model("a4000"))
    whole = Runner(gpu)
    measure(gpu, whole)
    gpu = SimulatedGpu(load_model("a4000"))
    with pytest.raises(KeyboardInterrupt):
        measure(gpu, Runner(gpu, stops_after=len(whole.runs) * 2 // 3), file=file)
    assert gpu.setting == DRIVER_DEFAULT
    lines = file.read_text().splitlines()
    assert json.loads(lines[0])["workload"] == "net:4"
    assert json.loads(lines[0])["simulated"] is True
    done = len(lines) - 1
    assert 0 < done < 9
    with file.open("a") as stream:
        stream.write('{"layer": "forward/a", "se')  # a line that a kill cut off
    again, seen = Runner(gpu), []
    found = measure(gpu, again, file=file, progress=seen.append)
    assert len(seen) == 9 - done
    assert len(again.runs) < len(whole.runs)
    assert len(found.cells) == 9
    assert len(file.read_text().splitlines()) == 10
    once_more = Runner(gpu)
    assert measure(gpu, once_more, file=file).cells == found.cells
    assert once_more.runs == []


def test_a_file_of_another_measurement_is_refused(tmp_path):
    file = tmp_path / "layers.jsonl"
    measure(SimulatedGpu(load_model("a4000")), file=file)
    with pytest.raises(InputError, match="its gpu is NVIDIA RTX A4000, and now NVIDIA A100"):
        measure(SimulatedGpu(load_model("a100")), file=file)
    gpu = SimulatedGpu(load_model("a4000"))
    with pytest.raises(InputError, match="its workload is net:4, and now net:8"):
        measure_cells(gpu, Runner(gpu), SETTINGS, workload="net:8", file=file)
    file.write_text("no\nfile of ours\n")
    with pytest.raises(InputError, match="line 1: is no JSON"):
        measure(gpu, file=file)
    with pytest.raises(InputError, match="cannot write"):
        measure(gpu, file=tmp_path / "nowhere" / "layers.jsonl")


def test_wrong_settings_and_goals_are_refused():
    gpu = SimulatedGpu(load_model("a4000"))
    with pytest.raises(SettingRefused):
        measure_cells(gpu, Runner(gpu), [Setting(7)], workload="net")
    with pytest.raises(InputError, match="no settings"):
        measure_cells(gpu, Runner(gpu), [], workload="net")
    with pytest.raises(InputError, match="an error of 0 is no goal"):
        measure_cells(gpu, Runner(gpu), SETTINGS, workload="net", precision=0)


def test_a_gpu_on_which_no_time_passes_is_refused():
    gpu = SimulatedGpu(load_model("a4000"))
    runner = Runner(gpu)
    runner.prepare = lambda _name: lambda _times: None
    with pytest.raises(DeviceError, match="no time passes"):
        measure(gpu, runner)


def test_settings_alternate_between_high_and_low_ones():
    settings = [Setting(mhz) for mhz in range(100, 2100, 100)]
    order = jumping(settings)
    assert sorted(order) == settings
    places = [settings.index(setting) for setting in order]
    assert min(abs(two - one) for one, two in pairwise(places)) >= 4


def test_power_that_still_drifts_has_not_settled():
    def windows(*powers_w):
        return Settling(Setting(900), tuple(Measurement(4.0, 4.0 * power_w) for power_w in powers_w))

    assert not has_settled(windows())
    assert not has_settled(windows(100.0))
    assert not has_settled(windows(100.0, 101.0))
    assert has_settled(windows(100.0, 101.0, 101.01))
    assert has_settled(windows(*(100.0 + place for place in range(80))))  # not for ever


def test_windows_grow_until_the_counter_resolves_them():
    def windows(*pairs):
        return Measuring(
            CHOICE, tuple(RepeatedRuns(runs, Measurement(1.0, 100.0, None, error)) for runs, error in pairs)
        )

    assert next_runs(windows(), 0.01) == 1
    assert next_runs(windows((1, 100.0)), 0.01) == 8
    assert next_runs(windows((10, 2.0)), 0.01) == 20
    assert cell_result(windows(), 0.01) is None
    assert cell_result(windows((1, 100.0), (8, 1.5)), 0.01) is None
    assert cell_result(windows((1, 100.0), (8, 1.5), (16, 0.5)), 0.01).runs == 24
    assert cell_result(windows(*[(1, 100.0)] * 12), 0.01) is not None
