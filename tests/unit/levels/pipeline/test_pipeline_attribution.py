"""Power and time of instructions from a counter that is slower than they are."""

from random import Random

import pytest
from counted_gpu import PERIOD_S, PHASE_S, CountedGpu

from wattune.core.refresh import Refresh
from wattune.levels.pipeline.profiling import OUTSIDE, WAITING, Boundary, attribute

WATTS = {"0.forward": 300.0, "0.backward": 350.0, WAITING: 90.0, OUTSIDE: 200.0}
SECONDS = {"0.forward": 0.05, "0.backward": 0.1, WAITING: 0.02, OUTSIDE: 0.06}
KNOWN = Refresh(PERIOD_S, 100 + PHASE_S, 1e-6, 1e-4)
KINDS = ["0.forward"] * 3 + ["0.forward", "0.backward"] * 5 + ["0.backward"] * 3
ITERATION = [part for kind in KINDS for part in (WAITING, kind)]


def boundaries(iterations, *, scale=1.0, waits=True, moves=True):
    """What a rank of a pipeline notes of some iterations that last 3 s · scale each."""
    gpu, random = CountedGpu(moves=moves), Random(5)
    found = [Boundary(*gpu.count(), OUTSIDE)]
    for _ in range(iterations):
        for kind in [*ITERATION, OUTSIDE]:
            if kind != WAITING or waits:
                gpu.run(SECONDS[kind] * scale * random.uniform(0.8, 1.2), WATTS[kind])
                found.append(Boundary(*gpu.count(), kind))
    return found


def powers_w(found):
    return {kind: cost.power_w for kind, cost in found.costs.items()}


@pytest.mark.parametrize("scale", [3.0, 1.0, 0.3, 0.1])
def test_powers_are_estimated_with_known_refresh_times(scale):
    found = attribute(boundaries(round(4 / scale) + 1, scale=scale), refresh=KNOWN, period_s=PERIOD_S)
    assert powers_w(found) == pytest.approx({"0.forward": 300, "0.backward": 350}, rel=0.01)
    assert found.waiting_w == pytest.approx(90, rel=0.05)


@pytest.mark.parametrize("scale", [3.0, 1.0, 0.3])
def test_powers_are_estimated_by_repetition_without_refresh_times(scale):
    found = attribute(boundaries(round(20 / scale), scale=scale), refresh=None, period_s=PERIOD_S)
    assert powers_w(found) == pytest.approx({"0.forward": 300, "0.backward": 350}, rel=0.05)


def test_times_are_means_of_instructions():
    found = attribute(boundaries(20), refresh=KNOWN, period_s=None)
    assert found.costs["0.forward"].time_s == pytest.approx(0.05, rel=0.05)
    assert found.costs["0.backward"].time_s == pytest.approx(0.1, rel=0.05)
    assert set(found.costs) == {"0.forward", "0.backward"}


def test_kinds_that_did_not_run_are_not_reported():
    assert attribute(boundaries(5, waits=False), refresh=KNOWN, period_s=PERIOD_S).waiting_w is None
    assert attribute(boundaries(5, moves=False), refresh=KNOWN, period_s=PERIOD_S) is None
    assert attribute(boundaries(1)[:2], refresh=None, period_s=PERIOD_S) is None


def test_a_longer_measurement_has_more_refreshes():
    few, many = (attribute(boundaries(count), refresh=KNOWN, period_s=PERIOD_S).moves for count in (1, 10))
    assert few < many


def test_estimated_errors_cover_the_real_ones_and_shrink():
    for iterations in (2, 5, 20, 80):
        for refresh in (KNOWN, None):
            found = attribute(boundaries(iterations, scale=0.3), refresh=refresh, period_s=PERIOD_S)
            for kind, cost in found.costs.items():
                assert abs(cost.power_w - WATTS[kind]) * cost.time_s < 1.5 * cost.energy_error_j
    few, many = (attribute(boundaries(count), refresh=None, period_s=PERIOD_S).error for count in (2, 40))
    assert many < few / 2
