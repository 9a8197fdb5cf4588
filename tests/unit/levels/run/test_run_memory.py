"""What an earlier run of the same program is worth to the next."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from run_fakes import OddGpu, Script, ticked, window

from wattune.control.recall import Memory, load_memory
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.objective import LeastEnergy
from wattune.core.setting import Setting
from wattune.core.window import Purpose
from wattune.levels.run.policy import CurvePolicy
from wattune.levels.run.report import report_of, stored_run
from wattune.levels.run.session import RunSession
from wattune.store.sql_store import open_store

MEMORY = Memory(Measurement(1.0, 100.0), (Trial(Setting(1200), Measurement(1.03, 85.0)),))


def test_an_earlier_setting_is_relative_to_the_present_baseline():
    base = window(None, Purpose.BASELINE, step_time_s=1.1, power_w=104.0)
    first, recalled, *rest = MEMORY.recalled((base,))
    assert first is base
    assert rest == []
    assert recalled.setting == Setting(1200)
    assert recalled.step_time_s == pytest.approx(1.1 * 1.03)
    assert recalled.power_w == pytest.approx(104.0 * 85.0 / 1.03 / 100.0)
    assert recalled.step_time_error_s > 0.01
    assert recalled.cost.time_s < 0.01


@pytest.mark.parametrize(
    "seen",
    [
        (),
        (window(None, Purpose.BASELINE, step_time_s=1.4),),
        (window(None, Purpose.BASELINE, power_w=120.0),),
        (window(None, Purpose.BASELINE, step_time_s=None, error_s=None),),
        (window(1200, Purpose.HOLD),),
        (window(None, Purpose.BASELINE), window(1200, Purpose.HOLD, changed=True)),
    ],
)
def test_another_program_is_not_taken_for_the_earlier_one(seen):
    assert MEMORY.recalled(seen) == seen


def test_the_policy_searches_less_with_earlier_measurements():
    spec = OddGpu().spec
    policy = CurvePolicy(objective=LeastEnergy(0.05), confidence=0.99)
    base = window(None, Purpose.BASELINE, power_w=300.0, sm_util=1.0, mem_util=0.5)
    base = replace(base, sm_mhz=1410.0)
    memory = Memory(
        Measurement(1.0, 300.0),
        tuple(Trial(Setting(mhz), Measurement(1410 / mhz, 300.0 * (mhz / 1410) ** 1.5)) for mhz in (1200, 1305, 1350)),
    )
    assert policy.step((base,), spec).purpose is Purpose.TRIAL
    assert policy.step(memory.recalled((base,)), spec).purpose is Purpose.HOLD


def test_the_latest_run_in_the_store_is_used(tmp_path):
    store = open_store(f"sqlite:///{tmp_path / 'h.db'}")
    gpu = OddGpu()
    session = RunSession([gpu], objective=LeastEnergy(0.05), policy=Script((Setting(1200), Setting(1005))))
    with session:
        ticked(session.loop, gpu, 15, step_s=0.1, marks=session.watch.marks)
    report = report_of(session, program="python train.py --seed 1", objective="energy:5%", ended=True)
    full = stored_run(session, report, started_at=datetime.now(UTC), exit_code=0)
    store.add_run(full)
    memory = load_memory(store, "python train.py --seed 2", gpu=gpu.spec.name, simulated=True)
    assert {trial.choice for trial in memory.trials} == {Setting(1200), Setting(1005)}
    assert memory.base.time_s == pytest.approx(0.1, rel=0.05)
    assert load_memory(store, "python train.py --seed 2", gpu=gpu.spec.name, simulated=False) is None
    assert load_memory(store, "python other.py", gpu=gpu.spec.name, simulated=True) is None
