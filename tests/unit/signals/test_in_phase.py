"""Other GPUs of a job: steps taken together are real, a beat with the sensors is delayed from GPU to GPU."""

import numpy as np
import pytest

from wattune.signals.grid import even_grid
from wattune.signals.in_phase import PhaseEvidence, phase_evidence
from wattune.signals.period import Verdict, find_period
from wattune.signals.samples import find_updates
from wattune_bench.period.recorded import BEAT_OF_FOUR, FINE_TUNING, RECORDED


def evidence(case, period_s, others):
    grid = even_grid(find_updates(case.samples.time_s, case.samples.power_w))
    return phase_evidence(grid, others, period_s)


@pytest.mark.parametrize("seed", range(4))
def test_gpus_that_step_together_are_evidence_and_alone_there_is_none(seed):
    case = RECORDED[FINE_TUNING](np.random.default_rng(seed))
    step_s = case.periods_s["step"]
    assert evidence(case, step_s, case.others).delayed == 0
    assert evidence(case, step_s, ()) == PhaseEvidence()


@pytest.mark.parametrize("seed", [*range(6), (700, 6, sum(map(ord, BEAT_OF_FOUR)))])
def test_a_beat_on_several_gpus_is_no_period(seed):
    case = RECORDED[BEAT_OF_FOUR](np.random.default_rng(seed))
    assert find_period(case.samples, others=case.others).verdict is Verdict.NOT_OBSERVABLE
