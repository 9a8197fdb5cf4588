"""The values of a recurring job."""

import math

import pytest

from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobMemory, Profile
from wattune.core.measurement import Measurement
from wattune.core.objective import LeastCost
from wattune.core.setting import Setting

GPU = JobGpu(name="NVIDIA A40", simulated=True, max_power_w=300)


def make(**changes):
    fields = {"name": "j", "batch_sizes": (64, 16, 64), "default_batch_size": 16, "target": 0.5, "max_epochs": 9}
    return Job(**fields | changes)


def test_batch_sizes_are_sorted_and_counted_once():
    assert make().batch_sizes == (16, 64)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": " "},
        {"batch_sizes": ()},
        {"batch_sizes": (0, 16)},
        {"default_batch_size": 32},
        {"target": math.nan},
        {"max_epochs": 0},
        {"objective": "speed"},
    ],
)
def test_an_invalid_job_is_refused_with_a_hint(changes):
    with pytest.raises(InputError) as caught:
        make(**changes)
    assert caught.value.hint


def test_the_target_has_a_direction_and_nan_never_reaches_it():
    assert make().reaches(0.5)
    assert not make().reaches(0.49)
    assert make(higher_is_better=False).reaches(0.4)
    assert not make(higher_is_better=False).reaches(0.6)
    assert not make().reaches(None)
    assert not make().reaches(math.inf * 0)


def test_zeus_cost_weighs_time_with_the_power_of_all_gpus():
    assert make().objective_on(600) == LeastCost(0.5, 600)


def test_profiles_are_found_by_gpu_and_batch_size():
    trials = (
        Trial(Setting(power_limit_w=300), Measurement(10, 2500)),
        Trial(Setting(power_limit_w=200), Measurement(10.5, 2000)),
    )
    memory = JobMemory(profiles=(Profile(gpu=GPU, batch_size=16, trials=trials),))
    found = memory.profile(GPU, 16)
    assert found is not None
    assert found.best(LeastCost(0.5, 300)).choice.power_limit_w == 200
    assert memory.profile(GPU, 64) is None
    assert memory.profile(JobGpu(name="NVIDIA A40", simulated=False, max_power_w=300), 16) is None
