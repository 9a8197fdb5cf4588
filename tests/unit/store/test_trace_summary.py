from __future__ import annotations

import pytest

from wattune.core.reading import Reading, Trace
from wattune.store.records import summarise


def trace(*points: tuple[float, float | None]) -> Trace:
    return Trace("A100 (simulated)", tuple(Reading(time_s=time_s, power_w=power_w) for time_s, power_w in points))


def test_means_are_over_time_and_not_over_samples() -> None:
    summary = summarise(trace((0.0, 100.0), (0.1, 100.0), (0.2, 100.0), (1.2, 300.0)), uuid="GPU-0", simulated=True)
    assert summary.mean_power_w == pytest.approx((0.2 * 100 + 1.0 * 200) / 1.2)
    assert (summary.min_power_w, summary.max_power_w) == (100.0, 300.0)
    assert summary.refresh_s == pytest.approx(0.1)
    assert (summary.samples, summary.duration_s, summary.simulated) == (4, 1.2, True)


def test_values_that_the_gpu_does_not_report_are_none() -> None:
    summary = summarise(trace((0.0, None), (0.5, None)), uuid="GPU-0", simulated=False)
    assert summary.mean_power_w is None
    assert summary.p95_power_w is None
    assert summary.mean_sm_mhz is None
    assert summary.samples == 2


def test_an_empty_trace_has_a_summary() -> None:
    summary = summarise(trace(), uuid="GPU-0", simulated=True)
    assert (summary.samples, summary.duration_s, summary.mean_power_w, summary.refresh_s) == (0, 0.0, None, None)


def test_one_sample_is_its_own_mean() -> None:
    summary = summarise(trace((3.0, 42.0)), uuid="GPU-0", simulated=True)
    assert (summary.mean_power_w, summary.p95_power_w, summary.refresh_s) == (42.0, 42.0, None)
