"""Sessions in virtual time: `tuned` with one GPU, with several ranks, and with our own policy."""

import threading

import pytest
from run_fakes import OddGpu, Script

from processes import PATIENCE_S
from wattune import tuned
from wattune.core.errors import InputError, SettingRefused
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.run.session import RunSession
from wattune.physics.catalog import load_model
from wattune.workloads.catalog import make_workload


def test_tuned_on_a_simulated_gpu_saves_energy_within_the_slowdown_limit():
    gpu = SimulatedGpu(load_model("a100"))
    workload = make_workload("resnet50")
    with tuned(gpu, slowdown=0.05) as tuning:
        for _ in range(900):
            gpu.run(workload)
            tuning.step()
        assert tuning.setting == gpu.setting
    assert gpu.setting == DRIVER_DEFAULT
    assert tuning.held is not None
    assert tuning.figures.held_saving.value > 0.05
    assert tuning.figures.slowdown.value < 0.05
    assert [one.purpose for one in tuning.windows].count(Purpose.TRIAL) <= 5


def test_where_nothing_was_set_nothing_was_saved_or_lost_in_the_end():
    gpu = OddGpu()
    with tuned(gpu, slowdown=0.05) as tuning:
        gpu.wait(0.1)
        tuning.step()
        assert tuning.figures.saving is None
    assert (tuning.figures.saving.value, tuning.figures.slowdown.value) == (0.0, 0.0)
    assert "unknown, slowdown unknown" not in repr(tuning.figures).splitlines()[0]


def test_tuned_reports_missing_arguments():
    gpu = OddGpu()
    with pytest.raises(InputError, match="slowdown limit"), tuned(gpu):
        pass
    with pytest.raises(InputError, match="no GPU"), tuned(slowdown=0.05):
        pass
    with pytest.raises(InputError, match="one kind"), tuned(gpu, OddGpu("v100"), slowdown=0.05):
        pass
    with pytest.raises(InputError, match="no objective"), tuned(gpu, objective="best"):
        pass


def test_an_error_in_the_program_is_raised_and_the_gpu_is_restored():
    gpu = OddGpu()

    def train():
        with tuned(gpu, slowdown=0.05) as tuning:
            for _ in range(120):
                gpu.wait(0.1)
                tuning.step()
            assert gpu.real.setting != DRIVER_DEFAULT
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        train()
    assert gpu.real.setting == DRIVER_DEFAULT


class Threads:
    """Ranks that are threads of this process."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size)
        self.slots = [None] * size

    def rank_of(self, rank):
        return ThreadRank(self, rank)

    def gather(self, rank, value):
        self.slots[rank] = value
        self.barrier.wait(timeout=PATIENCE_S)
        found = list(self.slots)
        self.barrier.wait(timeout=PATIENCE_S)
        return found


class ThreadRank:
    def __init__(self, group, rank):
        self.group, self.rank, self.size = group, rank, group.size

    def broadcast(self, text):
        return self.group.gather(self.rank, text)[0]

    def sum_and_max(self, values):
        columns = list(zip(*self.group.gather(self.rank, tuple(values)), strict=True))
        return tuple(map(sum, columns)), tuple(map(max, columns))


def run_ranks(gpus, policy, *, steps=400, step_s=0.05):
    group = Threads(len(gpus))
    seen = [[] for _ in gpus]
    sessions = [None] * len(gpus)

    def work(rank):
        session = RunSession([gpus[rank]], objective=LeastEnergy(0.05), policy=policy, ranks=group.rank_of(rank))
        sessions[rank] = session
        with session:
            for _ in range(steps):
                gpus[rank].wait(step_s)
                session.step()
                seen[rank].append(gpus[rank].real.setting)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(gpus))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE_S)
        assert not thread.is_alive()
    return sessions, seen


def test_ranks_are_set_alike_at_the_same_steps():
    gpus = [OddGpu(time=VirtualTime(), index=place) for place in range(3)]
    sessions, seen = run_ranks(gpus, Script((Setting(1200), Setting(1005))))
    assert seen[0] == seen[1] == seen[2]
    assert Setting(1200) in seen[0]
    assert seen[0][-1] == Setting(1005)
    windows = sessions[0].progress.windows
    assert windows[1].step_time_s == pytest.approx(0.05, rel=0.01)
    assert [gpu.real.setting for gpu in gpus] == [DRIVER_DEFAULT] * 3


def test_a_setting_refused_by_one_rank_is_kept_by_none():
    gpus = [OddGpu(time=VirtualTime(), index=place) for place in range(2)]
    gpus[1].on_apply = lambda setting: SettingRefused("not here") if setting == Setting(1200) else None
    sessions, seen = run_ranks(gpus, Script((Setting(1200), Setting(1005))))
    assert seen[0][-1] == seen[1][-1] == Setting(1005)
    assert Setting(1200) not in [one.setting for one in sessions[0].progress.windows]
    assert "a rank could not set 1200 MHz" in " ".join(event.text for event in sessions[0].progress.events)
