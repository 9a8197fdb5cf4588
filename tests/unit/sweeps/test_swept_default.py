"""A held setting is compared with the default of an earlier sweep, and with nothing else."""

from datetime import UTC, datetime, timedelta

import pytest

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.store.records import FullRun, Run, RunGpu, TrialRecord
from wattune.store.sql_store import open_store
from wattune.sweeps.result import ComparedCost, load_default

COMMAND = "python train.py --epochs 3"
STARTED = datetime(2026, 3, 1, tzinfo=UTC)


def swept(
    number, *, name=COMMAND, host="here", uuid="GPU-1", per="step", counted_by="optimizer", doubt=None, time_s=0.1
):
    gpu = RunGpu(uuid=uuid, name="Part", simulated=False, time_s=9.0, energy_j=900.0)
    run = Run(
        id=f"run-{number}",
        kind="sweep",
        name=name,
        started_at=STARTED + timedelta(hours=number),
        time_s=9.0,
        energy_j=900.0,
        simulated=False,
        host=host,
        version="1",
        gpus=(gpu,),
        details={"per": per, "counted_by": counted_by, "doubt": doubt},
    )
    costs = ((DRIVER_DEFAULT, Measurement(time_s, 30.0, 0.001, 0.1)), (Setting(sm_mhz=900), Measurement(0.2, 20.0)))
    trials = [Trial(setting, cost) for setting, cost in costs]
    return FullRun(run, tuple(TrialRecord.of(one, workload=name, gpu="Part", simulated=False) for one in trials))


def found(tmp_path, *runs, counted_by="optimizer"):
    store = open_store(str(tmp_path / "history.db"))
    for run in runs:
        store.add_run(run)
    return load_default(store, COMMAND, uuid="GPU-1", host="here", counted_by=counted_by)


def test_the_latest_sweep_of_the_command_counts(tmp_path):
    default = found(tmp_path, swept(1, time_s=0.3), swept(2), swept(3, name=COMMAND + " --more", time_s=0.4))
    assert (default.run_id, default.per, default.cost.time_s) == ("run-2", "step", 0.1)


@pytest.mark.parametrize(
    "other",
    [
        {"host": "there"},
        {"uuid": "GPU-2"},
        {"per": "run", "counted_by": None},
        {"counted_by": "progress bar"},
        {"doubt": "it does not follow the clock"},
    ],
)
def test_what_was_measured_otherwise_is_no_default(tmp_path, other):
    assert found(tmp_path, swept(1, **other)) is None


def test_whole_runs_are_compared_with_whole_runs(tmp_path):
    default = found(tmp_path, swept(1), swept(2, per="run", counted_by=None, time_s=9.0), counted_by=None)
    assert (default.per, default.cost.time_s) == ("run", 9.0)


def test_a_comparison_has_the_errors_of_both():
    compared = ComparedCost.of(Measurement(104.0, 88.0, 1.04, 0.88), Measurement(100.0, 100.0, 1.0, 1.0))
    assert compared.time_percent == pytest.approx(4.0)
    assert compared.energy_percent == pytest.approx(-12.0)
    assert compared.time_error_percent == pytest.approx(104 * 0.01 * 2**0.5)
    assert compared.energy_error_percent == pytest.approx(88 * 0.01 * 2**0.5)
    assert ComparedCost.of(Measurement(1.0, 1.0), Measurement(1.0, 1.0, 0.1, 0.1)).time_error_percent is None
