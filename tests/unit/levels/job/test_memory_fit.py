"""Running out of memory bars a batch size where it cannot fit, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emulated import MakeNode
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Proposal
from wattune.devices.open import Surroundings, open_gpu
from wattune.levels.job.gpus import job_gpu_of
from wattune.levels.job.policies import searcher_named
from wattune.levels.job.posterior import unusable
from wattune.levels.job.view.view_model import JobView
from wattune.physics.catalog import load_model
from wattune.store.sql_store import open_store

GB = 10**9
JOB = Job(name="nightly", batch_sizes=(32, 64, 128), default_batch_size=64, target=0.75, max_epochs=20)
SMALL = JobGpu(name="A100-40GB", simulated=False, max_power_w=400.0, memory_bytes=40 * GB)
LARGE = replace(SMALL, name="A100-80GB", memory_bytes=80 * GB)
SMALLER = replace(SMALL, name="V100-16GB", memory_bytes=16 * GB)
UPGRADED = replace(SMALL, memory_bytes=80 * GB)
OLD = replace(SMALL, memory_bytes=None)
"""As runs of earlier versions have it."""


def failed(gpu: JobGpu, batch_size: int = 64) -> JobRun:
    outcome = Outcome.OUT_OF_MEMORY
    return JobRun(id="a", order=0, recurrence=0, batch_size=batch_size, gpu=gpu, outcome=outcome, ended=1)


@pytest.mark.parametrize(
    ("on", "barred"),
    [
        (SMALL, {64, 128}),
        (SMALLER, {64, 128}),
        (LARGE, set()),
        (UPGRADED, set()),
        (OLD, {64, 128}),
        (replace(OLD, name="V100-16GB"), set()),
        (replace(SMALL, simulated=True), set()),
        (replace(SMALL, count=2), {128}),
        (replace(LARGE, count=2), set()),
    ],
)
def test_a_size_is_barred_on_gpus_with_no_more_memory(on: JobGpu, barred: set[int]) -> None:
    memory = JobMemory((failed(SMALL),))
    assert unusable(JOB, memory.runs, on) == barred
    view = JobView.of(JOB, memory, on, searcher=searcher_named("wattune"))
    assert {size for size, why in view.barred.items() if why == "out of memory"} == barred
    if not barred:
        assert searcher_named("wattune").propose(JOB, memory, on).batch_size == 64


def test_of_a_gpu_whose_memory_is_not_known_the_model_counts() -> None:
    assert unusable(JOB, (failed(OLD),), OLD) == unusable(JOB, (failed(OLD),), SMALL) == {64, 128}
    assert unusable(JOB, (failed(OLD),), SMALLER) == unusable(JOB, (failed(OLD),), LARGE) == set()


def test_a_later_run_on_a_gpu_with_no_more_memory_lifts_the_bar() -> None:
    went_well = replace(failed(SMALL, 128), id="b", order=1, outcome=Outcome.REACHED, metrics=(0.8,), ended=2)
    assert unusable(JOB, (failed(SMALL), went_well), SMALL) == set()
    assert unusable(JOB, (failed(SMALL), replace(went_well, gpu=LARGE)), SMALL) == {64, 128}
    assert unusable(JOB, (failed(SMALL), replace(went_well, batch_size=32)), SMALL) == {64, 128}


def test_a_job_records_the_memory_of_its_gpus(emulated_node: MakeNode, tmp_path: Path) -> None:
    emulated_node("a100")
    jobs = open_store(str(tmp_path / "history.db")).jobs
    jobs.define_job(JOB)
    with open_gpu("nvml:0", Surroundings(tmp_path / "state")) as gpu:
        found = job_gpu_of([gpu])
    run = jobs.submit(JOB.name, found, lambda *_: Proposal(64, False, ""), lease_s=60.0)
    assert found.memory_bytes == load_model("a100").memory_bytes
    assert jobs.job_run(run.id).run.gpu == found
