"""Ratios are of like things: one GPU model, one number of GPUs, both sides measured."""

from dataclasses import replace

import pytest

from synthetic_job import GPU, JOB, finished, profile
from wattune.core.job import JobMemory
from wattune.levels.job.policy import WattuneJobPolicy
from wattune.levels.job.posterior import job_posterior
from wattune.levels.job.view.view_model import JobView

OTHERS = (
    replace(GPU, name="p100"),
    replace(GPU, count=4, max_power_w=1000.0),
    replace(GPU, simulated=False),
)


@pytest.mark.parametrize("gpu", OTHERS)
def test_what_other_gpus_taught_is_no_share_of_the_defaults_cost_here(gpu):
    memory = JobMemory((finished(0, 512, 40), finished(1, 256, 24)), (profile(512), profile(256)))
    assert job_posterior(JOB, memory, gpu).share_of_default(256) is None
    assert "%" not in WattuneJobPolicy().propose(JOB, memory, gpu).why
    view = JobView.of(JOB, memory, gpu, searcher=WattuneJobPolicy())
    assert view.default_run is None
    assert view.energy_share is None
    assert view.break_even is None


def test_on_the_same_gpu_the_share_is_that_of_the_runs():
    runs = tuple(finished(order, (512, 256)[order % 2], (40, 24)[order % 2]) for order in range(6))
    share = job_posterior(JOB, JobMemory(runs, (profile(512), profile(256))), GPU).share_of_default(256)
    assert share == pytest.approx(0.6 * 1.1, rel=0.15)


def test_without_a_measured_default_nothing_is_a_share_of_it():
    runs = tuple(finished(order, (512, 256)[order % 2], (40, 24)[order % 2]) for order in range(6))
    assert job_posterior(JOB, JobMemory(runs), GPU).share_of_default(256) is None
    assert "default's cost" not in WattuneJobPolicy().propose(JOB, JobMemory(runs), GPU).why
