from __future__ import annotations

import pytest

from pipelines import HEADER, planned_pipeline, profile_csv, profile_rows, small_profile
from wattune.core.errors import InputError, PlanError
from wattune.core.measurement import energy_percent, time_percent
from wattune.levels.pipeline.planned import verify
from wattune.plans.stage_profile import parse_stage_profile


@pytest.fixture(scope="module")
def planned():
    return planned_pipeline()


def test_by_its_own_profile_a_plan_costs_as_much_as_predicted(planned):
    for trial, real in zip(planned.frontier, verify(planned, small_profile()), strict=True):
        assert real.time_s == pytest.approx(trial.cost.time_s, rel=1e-12)
        assert real.energy_j == pytest.approx(trial.cost.energy_j, rel=1e-12)


def test_a_slower_profile_shows_the_difference(planned):
    rows = []
    for row in profile_rows(3):
        *head, time_s, energy_j = row.split(",")
        rows.append(",".join((*head, repr(1.1 * float(time_s)), repr(1.2 * float(energy_j)))))
    slower = parse_stage_profile("\n".join((HEADER, *rows)), file="slow.csv")
    for trial, real in zip(planned.frontier, verify(planned, slower), strict=True):
        assert time_percent(real, trial.cost) == pytest.approx(10.0)
        assert 10 < energy_percent(real, trial.cost) < 20


def test_a_profile_of_another_shape_is_refused(planned):
    with pytest.raises(PlanError, match=r"for 3 stages and p.csv has 2"):
        verify(planned, small_profile(stages=2))


def test_a_setting_that_was_not_measured_is_named(planned):
    profile = parse_stage_profile(profile_csv(3, clocks=(1400, 1300)), file="few.csv")
    with pytest.raises(InputError, match=r"few.csv: stage \d, (forward|backward) has no row at \d+ MHz"):
        verify(planned, profile)


def test_an_instruction_that_was_not_measured_is_named(planned):
    profile = parse_stage_profile(profile_csv(3, instructions=("forward",)), file="few.csv")
    with pytest.raises(InputError, match=r"few.csv: stage \d has no row for 'backward'"):
        verify(planned, profile)
