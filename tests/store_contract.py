"""The tests that every store must pass. Subclass `StoreContract` and give it a fixture `store_url` for a new store:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store_url(self, tmp_path):
            return f"sqlite:///{tmp_path}/history.db"

A store that is opened in another way overrides `open` too.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from job_store_contract import JobStoreContract
from wattune.core.errors import StoreError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.records import FullRun, Run, RunExists, RunGpu, TraceSummary, TrialRecord
from wattune.store.sql_store import Store

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


def a_run(
    run_id: str, *, kind: str = "measure", name: str = "python train.py", minutes: int = 0, simulated: bool = True
) -> FullRun:
    """Return a run with two GPUs, two trials and a trace, started some minutes after noon."""
    gpus = tuple(
        RunGpu(uuid=f"GPU-{place}", name="A100", simulated=simulated, time_s=2.5, energy_j=500.25, energy_error_j=0.5)
        for place in range(2)
    )
    run = Run(
        id=run_id,
        kind=kind,
        name=name,
        started_at=NOON + timedelta(minutes=minutes, microseconds=123456),
        time_s=2.5,
        energy_j=1000.5,
        energy_error_j=0.7,
        simulated=simulated,
        host="node1",
        version="0.1.0",
        gpus=gpus,
        note="a note",
        details={"exit_code": 0, "clocks": [1410, None], "text": "naïve \u0000 日本"},
    )
    tried = (
        Trial(Setting(1410, None, 250.0), Measurement(1.0, 200.0, 0.01, 2.0)),
        Trial(Setting(), Measurement(0.9, 230.0)),
    )
    trials = tuple(TrialRecord.of(trial, workload="resnet50", gpu="A100", simulated=simulated) for trial in tried)
    trace = TraceSummary(
        gpu="GPU-0",
        simulated=simulated,
        samples=25,
        duration_s=2.5,
        mean_power_w=200.1,
        min_power_w=60.0,
        max_power_w=260.0,
        p95_power_w=255.0,
        mean_sm_mhz=1400.5,
        refresh_s=0.1,
    )
    return FullRun(run, trials, (trace,))


class StoreContract(JobStoreContract):
    """The tests, those of recurring jobs included."""

    def test_a_fresh_store_is_empty(self, store: Store) -> None:
        assert (store.runs(), store.trial_records(), store.traces()) == ((), (), ())

    def test_read_runs_equal_written_runs(self, store_url: str, store: Store) -> None:
        full = a_run("5f0c")
        store.add_run(full)
        assert store.run("5f0c") == full
        assert self.open(store_url).run("5f0c") == full

    def test_missing_stays_missing(self, store: Store) -> None:
        gpu = RunGpu(uuid="GPU-0", name="T4", simulated=False, time_s=0.0, energy_j=None)
        full = a_run("5f0c")
        empty = replace(full.run, id="00", name="", time_s=0.0, simulated=False, note=None, details={})
        bare = replace(empty, energy_j=None, energy_error_j=None, gpus=(gpu,))
        store.add_run(full)
        store.add_run(FullRun(bare))
        assert store.run("00") == FullRun(bare)

    def test_runs_come_newest_first(self, store: Store) -> None:
        for run_id, minutes in (("b", 1), ("c", 2), ("a", 0)):
            store.add_run(a_run(run_id, minutes=minutes))
        assert [run.id for run in store.runs()] == ["c", "b", "a"]
        assert [run.id for run in store.runs(limit=2)] == ["c", "b"]
        assert store.runs()[0] == a_run("c", minutes=2).run

    def test_runs_can_be_filtered(self, store: Store) -> None:
        store.add_run(a_run("a", kind="sweep", name="100% Resnet_50", minutes=0))
        store.add_run(a_run("b", kind="measure", name="python train.py", minutes=5))
        assert [run.id for run in store.runs(kind="sweep")] == ["a"]
        assert [run.id for run in store.runs(since=NOON + timedelta(minutes=5))] == ["b"]
        assert [run.id for run in store.runs(name="resnet")] == ["a"]
        assert [run.id for run in store.runs(name="0%")] == ["a"]
        assert store.runs(name="n%n") == store.runs(name="t_n") == ()

    def test_a_run_is_found_by_the_start_of_its_id(self, store: Store) -> None:
        for run_id in ("3f01", "3f02", "4a00"):
            store.add_run(a_run(run_id))
        assert store.run("4").run.id == "4a00"
        with pytest.raises(StoreError, match="3f01, 3f02"):
            store.run("3f")
        for unknown in ("9", "%", "_", "3F01"):
            with pytest.raises(StoreError, match="there is no run"):
                store.run(unknown)

    def test_many_candidates_are_cut_short(self, store: Store) -> None:
        for number in range(9):
            store.add_run(a_run(f"3f0{number}"))
        with pytest.raises(StoreError, match=r"3f04, \.\.\.$"):
            store.run("")

    def test_a_run_is_written_once(self, store: Store) -> None:
        store.add_run(a_run("a"))
        with pytest.raises(RunExists, match="already"):
            store.add_run(a_run("a", name="another"))
        assert store.run("a") == a_run("a")
        assert len(store.trial_records()) == 2

    def test_trials_form_a_history(self, store: Store) -> None:
        store.add_run(a_run("b", minutes=1))
        store.add_run(a_run("a", minutes=0))
        store.add_run(a_run("r", minutes=0, simulated=False))
        once = tuple(record.trial for record in a_run("a").trials)
        assert store.trials(workload="resnet50", gpu="A100", simulated=True) == once + once
        assert store.trials(workload="resnet50", gpu="A100", simulated=False) == once
        assert store.trials(workload="bert", gpu="A100", simulated=True) == ()
        assert store.trials(workload="resnet50", gpu="V100", simulated=True) == ()

    def test_choices_of_other_kinds_are_stored(self, store: Store) -> None:
        cost = Measurement(10.0, 2000.0)
        job = TrialRecord(
            workload="bert",
            gpu="A100",
            simulated=True,
            choice_kind="job",
            choice={"batch_size": 32},
            setting=Setting(power_limit_w=200.0),
            cost=cost,
        )
        plan = replace(job, choice_kind="plan", choice={"ranks": []}, setting=None)
        store.add_run(FullRun(a_run("a").run, (job, plan)))
        assert store.run("a").trials == (job, plan)
        assert store.trials(workload="bert", gpu="A100", simulated=True) == ()
        assert [record for _, record in store.trial_records(choice_kind="job")] == [job]

    def test_traces_come_with_their_run(self, store: Store) -> None:
        full = a_run("a")
        store.add_run(full)
        assert store.traces() == ((full.run, full.traces[0]),)

    def test_forgetting_a_run_deletes_everything_of_it(self, store: Store) -> None:
        store.add_run(a_run("a"))
        store.add_run(a_run("b"))
        assert store.forget("a") == a_run("a").run
        assert [run.id for run in store.runs()] == ["b"]
        assert {run.id for run, _ in store.trial_records()} == {"b"}
        assert {run.id for run, _ in store.traces()} == {"b"}
        with pytest.raises(StoreError, match="there is no run"):
            store.forget("a")
        store.add_run(a_run("a"))
        assert store.run("a") == a_run("a")

    def test_special_characters_are_stored(self, store: Store) -> None:
        name = "sh -c 'x=\"1\"; DROP TABLE runs' --\n\t日本 😀 %s :name"
        store.add_run(a_run("a", name=name))
        assert store.runs()[0].name == name

    def test_the_place_has_no_password(self, store: Store) -> None:
        assert store.place
        assert "secret" not in store.place
