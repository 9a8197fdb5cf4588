"""Boosted models from counters to clocks, on tables made of plain numbers."""

from dataclasses import replace

import numpy as np
import pytest

from plain_program import PlainProgram
from wattune.core.errors import NotSupported
from wattune.core.gpu_spec import ClockTable, GpuSpec
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.levels.run.gpoeo.models import FEATURES, PredictionTable, band_columns, reference_setting, train
from wattune.physics.catalog import load_model
from wattune.response import boosted_trees
from wattune.response.boosted_trees import Growth

WHOLE = load_model("3080ti").spec()
SPEC = replace(WHOLE, clocks=tuple(replace(table, sm_mhz=table.sm_mhz[::5]) for table in WHOLE.clocks[:4]))
QUICK = Growth(trees=60, rate=0.15, least_rows=5)


def table_of(spec, programs):
    reference = reference_setting(spec)
    cores = [Setting(mhz, reference.mem_mhz) for mhz in spec.sm_clocks_mhz]
    memories = tuple(sorted(mhz for mhz in spec.mem_clocks_mhz if mhz > 500)) if reference.mem_mhz else ()
    beside = [Setting(reference.sm_mhz, mhz) for mhz in memories]

    def over(cost, program, settings):
        return [cost(program, setting) / cost(program, reference) for setting in settings]

    return PredictionTable(
        reference=reference,
        names=tuple(str(place) for place, _ in enumerate(programs)),
        features=np.array([[program.counters(reference)[name] for name in FEATURES] for program in programs]),
        sm_mhz=spec.sm_clocks_mhz,
        time=np.array([over(PlainProgram.step_s, program, cores) for program in programs]),
        energy=np.array([over(PlainProgram.energy_j, program, cores) for program in programs]),
        mem_mhz=memories,
        mem_time=np.array([over(PlainProgram.step_s, program, beside) for program in programs]),
        mem_energy=np.array([over(PlainProgram.energy_j, program, beside) for program in programs]),
    )


def some_programs(spec, count):
    random = np.random.default_rng(1)
    return [PlainProgram(spec, *shares) for shares in random.uniform(0.02, 1.0, (count, 3))]


@pytest.fixture(scope="module")
def models():
    pytest.importorskip("lightgbm")
    return train(table_of(SPEC, some_programs(SPEC, 80)), growth=QUICK)


def test_the_reference_is_that_of_the_released_program():
    assert reference_setting(WHOLE) == Setting(1800, 9251)
    assert reference_setting(load_model("a100").spec()) == Setting(1230)


def test_a_new_program_is_predicted_within_a_few_percent(models):
    program = PlainProgram(SPEC, 0.15, 0.5, 0.35)
    settings = [Setting(mhz, 9251) for mhz in SPEC.sm_clocks_mhz if mhz > 900]
    found = models.predict(program.counters(models.reference), settings)
    true = np.array([program.step_s(setting) for setting in settings]) / program.step_s(models.reference)
    assert np.max(np.abs(found.time / true - 1)) < 0.04
    true = np.array([program.energy_j(setting) for setting in settings]) / program.energy_j(models.reference)
    assert np.max(np.abs(found.energy / true - 1)) < 0.08


def test_the_driver_default_counts_as_the_highest_clocks(models):
    features = PlainProgram(SPEC).counters(models.reference)
    both = models.predict(features, [DRIVER_DEFAULT, Setting(SPEC.sm_clocks_mhz[-1], 9501)])
    assert both.time[0] == both.time[1]


def test_a_lower_memory_clock_is_slower(models):
    program = PlainProgram(SPEC, 0.1, 0.2, 0.7)
    found = models.predict(program.counters(models.reference), [Setting(None, mhz) for mhz in (9501, 5001, 810)])
    assert found.time[0] < 1.05 < found.time[1] < found.time[2]


def test_power_limits_are_not_predicted(models):
    with pytest.raises(ValueError, match="not power limits"):
        models.predict(PlainProgram(SPEC).counters(models.reference), [Setting(power_limit_w=200.0)])


def test_a_gpu_without_memory_clocks_has_six_models():
    pytest.importorskip("lightgbm")
    spec = load_model("a100").spec()
    found = train(table_of(spec, some_programs(spec, 12)), growth=Growth(trees=5))
    assert found.memory is None
    assert len(found.core) == 3


def test_bands_without_clocks_use_the_nearest_clock():
    spec = GpuSpec(name="Few", uuid="GPU-few", clocks=(ClockTable(None, (1200, 1410)),), power_limits=None)
    assert [inside.tolist() for inside, _ in band_columns(table_of(spec, some_programs(spec, 2)))] == [[0], [0], [0, 1]]


def test_without_the_library_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setattr(boosted_trees, "installed", lambda: False)
    with pytest.raises(NotSupported) as refused:
        boosted_trees.grow(np.zeros((4, 1)), np.zeros(4))
    assert "wattune[boost]" in refused.value.hint
