from __future__ import annotations

import pytest
from scipy.stats import t as student

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.sweeps.repeats import _student, certainty, is_within, merged


def trials(**times: tuple[float, ...]) -> list[Trial[str]]:
    return [Trial(name, Measurement(time_s, 10 * time_s)) for name, each in times.items() for time_s in each]


def test_what_was_measured_once_stays_as_it_is() -> None:
    history = trials(a=(1.0,), b=(2.0,))
    assert merged(history) == tuple(history)


def test_repeats_become_means_whose_scatter_is_the_error_of_all() -> None:
    a, b = merged(trials(a=(0.99, 1.01), b=(2.0,)))
    assert (a.cost.time_s, a.cost.energy_j) == pytest.approx((1.0, 10.0))
    assert a.cost.time_error_s is not None
    assert b.cost.time_error_s == pytest.approx(2 * a.cost.time_error_s * 2**0.5)  # twice the time, half the runs


def test_two_equal_runs_do_not_pass_for_exact_ones() -> None:
    (a,) = merged(trials(a=(1.0, 1.0)))
    assert a.cost.time_error_s is not None
    assert 0.002 < a.cost.time_error_s < 0.02


def test_a_setting_near_the_limit_is_within_it_only_where_that_is_sure() -> None:
    reference, near, far = (trial.cost for trial in merged(trials(a=(0.99, 1.01), b=(1.045,), c=(0.98,))))
    assert not is_within(near, reference, slowdown=0.05)
    assert is_within(far, reference, slowdown=0.05)
    assert (
        0.5 < (certainty(near, reference, slowdown=0.05) or 0) < 0.95 < (certainty(far, reference, slowdown=0.05) or 0)
    )
    assert is_within(reference, reference, slowdown=0.0)


def test_without_errors_the_time_alone_decides() -> None:
    assert is_within(Measurement(1.05, 1.0), Measurement(1.0, 1.0), slowdown=0.05)
    assert certainty(Measurement(1.05, 1.0), Measurement(1.0, 1.0), slowdown=0.05) is None


@pytest.mark.parametrize("degrees", [3, 5, 10])
def test_the_quantile_is_that_of_student(degrees: int) -> None:
    assert _student(1.6449, degrees) == pytest.approx(student.ppf(0.95, degrees), rel=0.02)
