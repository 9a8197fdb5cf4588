"""Data-parallel jobs: ranks agree on everything, rank 0 alone writes, and each restores its own GPU."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

import pytest

from job_runs import JOB, Jobs, gpu_of, train
from processes import PATIENCE_S
from wattune.control.ranks import Alone
from wattune.core.errors import SettingRefused
from wattune.core.job import Outcome
from wattune.core.setting import DRIVER_DEFAULT
from wattune.levels.job.store_access import JobStoreAccess
from wattune.response.setting_search import SettingSearch
from wattune.workloads.catalog import make_workload


class Meeting:
    """Where threads that stand for ranks exchange what they have."""

    def __init__(self, size):
        self.size = size
        self.barrier, self.lock = Barrier(size, timeout=PATIENCE_S), Lock()
        self.brought = {}

    def exchange(self, rank, value):
        with self.lock:
            self.brought[rank] = value
        self.barrier.wait()
        found = dict(self.brought)
        self.barrier.wait()
        return [found[rank] for rank in range(self.size)]


class ThreadRanks:
    """One rank, as a thread."""

    def __init__(self, meeting, rank):
        self.meeting, self.rank, self.size = meeting, rank, meeting.size

    def broadcast(self, text):
        return self.meeting.exchange(self.rank, text)[0]

    def sum_and_max(self, values):
        columns = list(zip(*self.meeting.exchange(self.rank, tuple(values)), strict=True))
        return tuple(map(sum, columns)), tuple(map(max, columns))


class Refusing(type(gpu_of())):
    """A simulated GPU that does not take its highest limit."""

    def apply(self, setting):
        if setting.power_limit_w == 400.0:
            raise SettingRefused("no limit of 400 W here")
        super().apply(setting)


@pytest.fixture
def jobs(tmp_path):
    return Jobs(tmp_path)


def ranks_of(jobs, *gpus, metrics, steps=150):
    """What each rank saw of one run: its session and the settings it had."""
    meeting = Meeting(len(gpus))

    def one(rank):
        session = jobs.session(gpus[rank], ranks=ThreadRanks(meeting, rank))
        session.start()
        settings = []
        for metric in metrics:
            train(session, steps=steps, workload=make_workload(f"resnet50:{session.local_batch_size}"))
            settings.append(gpus[rank].setting)
            # Only rank 0 knows the metric, as where it alone validates.
            if not session.report(metric if rank == 0 else None):
                break
        session.end()
        return session, settings

    with ThreadPoolExecutor(len(gpus)) as pool:
        return list(pool.map(one, range(len(gpus))))


def test_ranks_have_one_run_one_setting_and_one_verdict(jobs):
    gpus = gpu_of(), gpu_of()
    (first, settings), (second, other_settings) = ranks_of(jobs, *gpus, metrics=[0.1] * 5 + [0.9])
    assert first.run.id == second.run.id
    assert first.run.gpu.count == second.run.gpu.count == 2
    assert settings == other_settings
    assert first.verdict == second.verdict
    assert first.reached
    assert first.local_batch_size == 32
    (recorded,) = jobs.job_store.job_runs(JOB.name)
    assert recorded.run.outcome is Outcome.REACHED
    assert recorded.run.metrics[-1] == 0.9
    assert recorded.run.cost.energy_j == pytest.approx(sum(gpu.truth_j for gpu in gpus), rel=0.02)
    assert [gpu.setting for gpu in gpus] == [DRIVER_DEFAULT] * 2


def test_what_one_rank_cannot_set_no_rank_sets(jobs):
    gpus = gpu_of(), Refusing(gpu_of().model)
    results = ranks_of(jobs, *gpus, metrics=[0.1, 0.1, 0.1, 0.9], steps=300)
    assert results[0][1] == results[1][1]
    assert all(setting.power_limit_w < 400.0 for setting in results[0][1])
    assert results[0][0].reached


def test_a_profile_that_rank_0_knows_spares_all_ranks_the_search(jobs):
    ranks_of(jobs, gpu_of(), gpu_of(), metrics=[0.1] * 8 + [0.9], steps=300)
    (session, settings), _ = ranks_of(jobs, gpu_of(), gpu_of(), metrics=[0.9], steps=300)
    first, second = jobs.job_store.job_runs(JOB.name)[::-1]
    assert second.run.profiling.time_s < first.run.profiling.time_s / 2
    assert settings == [first.run.setting]
    assert session.run.setting == first.run.setting


@pytest.mark.parametrize("rank", range(2))
@pytest.mark.parametrize("method", ["count", "apply"])
def test_a_gpu_that_breaks_on_one_rank_ends_profiling_on_all_and_no_training(jobs, rank, method, monkeypatch):
    gpus = gpu_of(), gpu_of()
    calls = []

    def breaking(*arguments):
        calls.append(1)
        if len(calls) == 5 or (method == "count" and len(calls) > 5):
            raise OSError("the driver is gone")
        return working(*arguments)

    working = getattr(gpus[rank], method)
    monkeypatch.setattr(gpus[rank], method, breaking)
    results = ranks_of(jobs, *gpus, metrics=[0.1, 0.1, 0.1, 0.9], steps=300)
    assert [settings[-1] for _, settings in results] == [DRIVER_DEFAULT] * 2
    assert all(session.reached for session, _ in results)
    assert [session.setting for session, _ in results] == [None] * 2
    assert [gpu.setting for gpu in gpus] == [DRIVER_DEFAULT] * 2


def test_a_policy_that_raises_on_rank_0_ends_profiling_on_all_ranks_and_no_training(jobs, monkeypatch):
    calls = []

    def failing(*arguments):
        calls.append(1)
        if len(calls) > 1:
            raise ZeroDivisionError("mine")
        return working(*arguments)

    working = SettingSearch.propose
    monkeypatch.setattr(SettingSearch, "propose", failing)
    gpus = gpu_of(), gpu_of()
    results = ranks_of(jobs, *gpus, metrics=[0.1, 0.1, 0.9], steps=300)
    assert len(calls) == 2
    assert all(session.reached for session, _ in results)
    assert [session.setting for session, _ in results] == [None] * 2
    assert [gpu.setting for gpu in gpus] == [DRIVER_DEFAULT] * 2


def test_a_store_that_fails_on_rank_0_stops_no_rank(jobs, monkeypatch):
    def failing(*arguments):
        raise ZeroDivisionError("mine")

    monkeypatch.setattr(JobStoreAccess, "report", failing)
    monkeypatch.setattr(JobStoreAccess, "stop", failing)
    results = ranks_of(jobs, gpu_of(), gpu_of(), metrics=[0.1, 0.9])
    assert all(session.reached for session, _ in results)


def test_a_run_that_rank_0_cannot_begin_begins_nowhere(jobs, monkeypatch):
    def failing(*arguments, **options):
        raise ZeroDivisionError("mine")

    monkeypatch.setattr(JobStoreAccess, "submit", failing)
    meeting = Meeting(2)
    with ThreadPoolExecutor(2) as pool:
        sessions = [jobs.session(gpu_of(), ranks=ThreadRanks(meeting, rank)) for rank in range(2)]
        started = [pool.submit(session.start) for session in sessions]
        first, second = (future.exception() for future in started)
    assert isinstance(first, ZeroDivisionError)
    assert "rank 0 could not begin the run: ZeroDivisionError: mine" in str(second)


def test_a_job_of_one_process_agrees_with_itself():
    assert Alone().broadcast("text") == "text"
    assert Alone().sum_and_max((1.0, 2.0)) == ((1.0, 2.0), (1.0, 2.0))
