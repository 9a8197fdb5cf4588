"""Program samples, cut out of power samples along a period."""

import numpy as np
import pytest

from wattune.signals.change import ChangeDetector, CycleCutter
from wattune.signals.samples import PowerSamples


def samples(periods_s, *, every_s=0.02, noise_w=3.0, seed=0):
    """A program that works 70 % of each of its periods, by a sensor that shows means since its last refresh."""
    edges_s = np.concatenate(([0.0], np.cumsum(periods_s)))
    count = int(edges_s[-1] / every_s)
    fine_s = (np.arange(20 * count) + 0.5) * every_s / 20
    place = np.searchsorted(edges_s, fine_s, side="right") - 1
    busy = ((fine_s - edges_s[place]) / np.asarray(periods_s)[place] < 0.7).reshape(count, 20).mean(axis=1)
    noise = noise_w * np.random.default_rng(seed).standard_normal(count)
    return PowerSamples(np.arange(count) * every_s, 120.0 + 180.0 * busy + noise, busy)


@pytest.mark.parametrize("piece_s", [0.3, 1.7, 100.0])
def test_cycles_are_timed_whatever_the_pieces_they_come_in(piece_s):
    played = samples([0.8] * 40)
    cutter, cut = CycleCutter(0.8), []
    for start_s in np.arange(0.0, played.duration_s + piece_s, piece_s):
        inside = (played.time_s >= start_s) & (played.time_s < start_s + piece_s)
        piece = PowerSamples(played.time_s[inside], played.power_w[inside], played.sm_util[inside])
        cutter, more = cutter.add(piece)
        cut += more
    assert 38 <= len(cut) <= 40
    assert [sample.period_s for sample in cut[1:]] == pytest.approx([0.8] * (len(cut) - 1), rel=0.03)
    assert cut[0].period_s is None


@pytest.mark.parametrize("every_s", [0.02, 0.1])
def test_a_longer_period_is_detected_by_the_phase_of_its_cycles(every_s):
    _, cut = CycleCutter(1.0).add(samples([1.0] * 60 + [1.05] * 20, every_s=every_s))
    detector, found = ChangeDetector(), []
    for place, sample in enumerate(cut):
        detector = detector.add(sample)
        if detector.change is not None:
            found.append((place, detector.change.what))
    assert len(found) == 1
    place, what = found[0]
    assert 60 <= place <= 70
    assert "period" in what


def test_a_flat_signal_has_no_period():
    rng = np.random.default_rng(2)
    time_s = np.arange(0, 30, 0.02)
    _, cut = CycleCutter(1.0).add(PowerSamples(time_s, 200 + rng.standard_normal(len(time_s))))
    assert sum(sample.period_s is not None for sample in cut) <= 2
    assert all(sample.util is None for sample in cut)


def test_short_periods_are_sampled_several_at_a_time():
    _, cut = CycleCutter(0.25).add(samples([0.25] * 80, every_s=0.1))
    assert len(cut) in (19, 20)


def test_missing_powers_are_skipped():
    played = samples([1.0] * 6)
    power_w = played.power_w.copy()
    power_w[100:150] = np.nan
    _, cut = CycleCutter(1.0).add(PowerSamples(played.time_s, power_w))
    assert cut[2].power_w is None
    assert cut[4].power_w == pytest.approx(246.0, abs=3.0)
    assert CycleCutter(1.0).add(PowerSamples(np.array([0.0]), np.array([1.0])))[1] == ()
