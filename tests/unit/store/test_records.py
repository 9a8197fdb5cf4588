from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from wattune.core.gpu_spec import labelled
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.fallback import new_run
from wattune.store.records import Run, RunGpu, TrialRecord

START = datetime(2025, 3, 1, 12, tzinfo=UTC)


def gpu(
    *, energy_j: float | None = 100.0, error_j: float | None = None, name: str = "A100", time_s: float = 2.0
) -> RunGpu:
    return RunGpu(uuid="GPU-0", name=name, simulated=True, time_s=time_s, energy_j=energy_j, energy_error_j=error_j)


def run(*gpus: RunGpu) -> Run:
    return new_run("measure", "python train.py", started_at=START, gpus=gpus)


def test_a_new_run_sums_what_its_gpus_spent() -> None:
    both = run(gpu(energy_j=100.0, error_j=3.0), gpu(energy_j=50.0, error_j=4.0, time_s=3.0))
    assert (both.energy_j, both.energy_error_j, both.time_s) == (150.0, 5.0, 3.0)
    assert both.power_w == 50.0
    assert both.simulated


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    part = run(gpu(error_j=1.0), gpu(energy_j=None))
    assert part.energy_j is None
    assert part.energy_error_j is None
    assert part.power_w is None


def test_a_run_without_gpus_has_no_energy() -> None:
    bare = new_run("run", "x", started_at=START, gpus=(), time_s=7.0)
    assert (bare.energy_j, bare.time_s, bare.device, bare.simulated) == (None, 7.0, None, False)


def test_run_ids_are_unique() -> None:
    assert run().id != run().id


def test_equal_gpus_are_counted_and_marked_simulated() -> None:
    assert run(gpu(), gpu(), gpu(name="V100")).device == "2 × A100 (simulated), V100 (simulated)"


def test_a_label_has_the_word_simulated_once() -> None:
    assert labelled("A100 (simulated)", True) == labelled("A100", True)
    assert labelled("A100", False) == "A100"


def test_a_start_needs_a_time_zone_and_is_converted_to_utc() -> None:
    east = datetime(2025, 3, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    assert new_run("run", "x", started_at=east, gpus=()).started_at.isoformat() == START.isoformat()
    with pytest.raises(ValueError, match="time zone"):
        new_run("run", "x", started_at=datetime(2025, 3, 1), gpus=())


@pytest.mark.parametrize("energy_j", [-1.0, float("nan"), float("inf")])
def test_unknown_energy_is_none_and_not_nan_or_negative(energy_j: float) -> None:
    with pytest.raises(ValueError, match="unknown is None"):
        gpu(energy_j=energy_j)


def test_too_little_time_gives_no_power() -> None:
    assert gpu(time_s=0.0).power_w is None
    assert gpu(time_s=5e-324).power_w is None


def test_a_plan_is_not_a_setting() -> None:
    record = TrialRecord(
        workload="w",
        gpu="A100",
        simulated=True,
        choice_kind="plan",
        choice={"ranks": ()},
        setting=Setting(),
        cost=Measurement(1.0, 2.0),
    )
    assert record.setting is None
    assert record.choice == {"ranks": []}
    with pytest.raises(ValueError, match="not a setting"):
        _ = record.trial
