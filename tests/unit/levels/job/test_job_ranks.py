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
        seen = []
        for metric in metrics:
            train(session, steps=steps, workload=make_workload(f"resnet50:{session.local_batch_size}"))
            seen.append(gpus[rank].setting)
            # Only rank 0 knows the metric, as where it alone validates.
            if session.report(metric if rank == 0 else None) is not None:
                break
        session.end()
        return session, seen

    with ThreadPoolExecutor(len(gpus)) as pool:
        return list(pool.map(one, range(len(gpus))))


def test_ranks_have_one_run_one_setting_and_one_verdict(jobs):
    gpus = gpu_of(), gpu_of()
    (first, seen), (second, also_seen) = ranks_of(jobs, *gpus, metrics=[0.1] * 5 + [0.9])
    assert first.run.id == second.run.id
    assert first.run.gpu.count == second.run.gpu.count == 2
    assert seen == also_seen
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
    (session, seen), _ = ranks_of(jobs, gpu_of(), gpu_of(), metrics=[0.9], steps=300)
    first, second = jobs.job_store.job_runs(JOB.name)[::-1]
    assert second.run.profiling.time_s < first.run.profiling.time_s / 2
    assert seen == [first.run.setting]
    assert session.run.setting == first.run.setting


def test_who_is_alone_agrees_with_himself():
    assert Alone().broadcast("text") == "text"
    assert Alone().sum_and_max((1.0, 2.0)) == ((1.0, 2.0), (1.0, 2.0))
