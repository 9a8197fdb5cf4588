"""What is read equals what was written: through the database, and through the JSON of the fallback file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattune.cli.export import csv_bytes, flat_table, json_bytes
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.records import FullRun, Run, RunGpu, TraceSummary, TrialRecord, full_run_from_json, full_run_to_json
from wattune.store.sql_store import Store, open_store

texts = st.text(st.characters(exclude_categories=()), max_size=12)  # with NUL and lone surrogates
amounts = st.floats(0, 1e6, allow_nan=False)
maybe_amounts = st.none() | amounts
documents = st.dictionaries(
    texts,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
        lambda parts: st.lists(parts, max_size=3) | st.dictionaries(texts, parts, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)
zones = st.builds(timezone, st.timedeltas(timedelta(hours=-12), timedelta(hours=12)))
instants = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC) | zones)
clocks_mhz = st.none() | st.integers(1, 20_000)
settings_of_gpu = st.builds(Setting, clocks_mhz, clocks_mhz, maybe_amounts)
costs = st.builds(Measurement, amounts, amounts, maybe_amounts, maybe_amounts)
gpus = st.builds(
    RunGpu,
    uuid=texts,
    name=texts,
    simulated=st.booleans(),
    time_s=amounts,
    energy_j=maybe_amounts,
    energy_error_j=maybe_amounts,
)
runs = st.builds(
    Run,
    id=st.uuids().map(str),
    kind=texts,
    name=texts,
    started_at=instants,
    time_s=amounts,
    energy_j=maybe_amounts,
    energy_error_j=maybe_amounts,
    simulated=st.booleans(),
    host=texts,
    version=texts,
    gpus=st.lists(gpus, max_size=3).map(tuple),
    note=st.none() | texts,
    details=documents,
)
setting_trials = st.builds(
    TrialRecord.of, st.builds(Trial, settings_of_gpu, costs), workload=texts, gpu=texts, simulated=st.booleans()
)
other_trials = st.builds(
    TrialRecord,
    workload=texts,
    gpu=texts,
    simulated=st.booleans(),
    choice_kind=st.sampled_from(["job", "plan"]),
    choice=documents,
    setting=st.none() | settings_of_gpu,
    cost=costs,
)
traces = st.builds(
    TraceSummary,
    gpu=texts,
    simulated=st.booleans(),
    samples=st.integers(0, 2**62),
    duration_s=amounts,
    mean_power_w=maybe_amounts,
    min_power_w=maybe_amounts,
    max_power_w=maybe_amounts,
    p95_power_w=maybe_amounts,
    mean_sm_mhz=maybe_amounts,
    mean_mem_mhz=maybe_amounts,
    refresh_s=maybe_amounts,
)
full_runs = st.builds(
    FullRun,
    runs,
    st.lists(setting_trials | other_trials, max_size=3).map(tuple),
    st.lists(traces, max_size=2).map(tuple),
)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        yield open_store(str(Path(folder) / "history.db"))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(full=full_runs)
def test_json_round_trip(full: FullRun) -> None:
    line = json.dumps(full_run_to_json(full), allow_nan=False)
    assert full_run_from_json(json.loads(line)) == full


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(full=full_runs)
def test_store_round_trip(store: Store, full: FullRun) -> None:
    store.add_run(full)
    try:
        assert store.run(full.run.id) == full
        assert store.runs() == (full.run,)
        for what in ("runs", "gpus", "trials", "traces"):
            json.loads(json_bytes(flat_table(store, what)))
            csv_bytes(flat_table(store, what)).decode()
    finally:
        store.forget(full.run.id)


@given(trial=st.builds(Trial, settings_of_gpu, costs))
def test_trial_record_round_trip(trial: Trial[Setting]) -> None:
    assert TrialRecord.of(trial, workload="w", gpu="g", simulated=True).trial == trial


@settings(max_examples=40, deadline=None)
@given(prefix=texts)
def test_no_prefix_breaks_the_lookup(store: Store, prefix: str) -> None:
    from wattune.core.errors import StoreError

    with pytest.raises(StoreError):
        store.run(prefix)
