"""Whether what a run says it saved is true, within the error that it states."""

from statistics import fmean

import pytest
from claimed_run import claimed


@pytest.mark.parametrize(
    ("gpu", "workload", "seconds"), [("a100", "resnet50:64", 40.0), ("rtx-3080-ti", "resnet50:64", 35.0)]
)
def test_the_stated_interval_holds_the_truth(gpu, workload, seconds):
    claims = [claimed(gpu, workload, seconds, seed=seed) for seed in range(30)]
    for which in (0, 1):  # the saving, the slowdown
        assert sum(claim.holds[which] for claim in claims) >= 0.93 * len(claims)
        assert abs(fmean(claim.off[which] for claim in claims)) < 0.001
    errors = [claim.figures.saving.error for claim in claims]
    assert fmean(errors) < 0.004  # and says something
