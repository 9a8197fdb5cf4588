"""Change detection: what is detected, how soon, and what is no change."""

from dataclasses import replace
from math import exp, expm1

import numpy as np
import pytest

from wattune.signals.change import ChangeDetector, ProgramSample
from wattune.signals.change_channel import threshold
from wattune_bench.change import Kind, Warmth, stream

USUAL = Kind("usual", 0.015)
NOISY = Kind("noisy", 0.02)


def play(samples, detector=None):
    """Return the detector after some samples, and the changes it detected with their places."""
    detector, changes = detector or ChangeDetector(), []
    for place, sample in enumerate(samples):
        detector = detector.add(sample)
        if detector.change is not None:
            changes.append((place, detector.change))
    return detector, changes


def samples_of(played):
    columns = (played.time_s, played.period_s, played.power_w, played.util)
    return [
        ProgramSample(time_s=time_s, period_s=period_s, power_w=power_w, util=util)
        for time_s, period_s, power_w, util in zip(*(column.tolist() for column in columns), strict=True)
    ]


def steady(count, *, start_s=0.0, period_s=1.0, power_w=300.0, util=0.9):
    return [
        ProgramSample(time_s=start_s + period_s * n, period_s=period_s, power_w=power_w, util=util)
        for n in range(1, count + 1)
    ]


# what is found


@pytest.mark.parametrize("kind", [USUAL, NOISY], ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("quantity", "share"), [("period", 0.05), ("period", -0.05), ("power", 0.05), ("power", -0.05)]
)
def test_a_shift_of_five_percent_is_found_in_ten_periods(kind, quantity, share):
    found = []
    for seed in range(20):
        played = stream(kind, 120, np.random.default_rng(seed)).shifted(60, quantity, share)
        _, changes = play(samples_of(played))
        found.append(changes[0][0] - 59 if changes else 1000)
    # At 2 % some take longer: `wattune bench change` counts how many.
    assert sum(one <= 10 for one in found) >= 18
    assert np.median(found) <= 6


def test_what_changed_is_named_with_its_size():
    played = stream(USUAL, 120, np.random.default_rng(1)).shifted(60, "power", 0.2)
    _, ((place, change), *_) = play(samples_of(played))
    assert change.what == ("power",)
    shift = change.shifts["power"]
    assert abs(shift.change - 0.2) < shift.error < 0.05
    assert not change.shifts["period"].certain
    assert change.words.startswith("power +")
    assert change.since_s == pytest.approx(played.time_s[60], abs=2.0)
    assert change.samples <= place


def test_two_quantities_may_change_at_once():
    _, ((_, change), *_) = play([*steady(30), *steady(10, start_s=30, period_s=1.3, power_w=200.0)])
    assert change.what == ("period", "power")
    assert change.shifts["period"].change == pytest.approx(0.3)
    assert change.shifts["power"].change == pytest.approx(-1 / 3)


def test_utilisation_changes_by_points():
    _, ((_, change), *_) = play([*steady(30), *steady(10, start_s=30, util=0.2)])
    assert change.what == ("util",)
    assert change.words.startswith("util -70.0 points since 31.0 s")


def test_it_learns_again_after_a_change_and_recognises_an_earlier_phase():
    training, evaluation = {"power_w": 300.0}, {"power_w": 180.0}
    samples = [
        *steady(60, **training),
        *steady(60, start_s=60, **evaluation),
        *steady(60, start_s=120, **training),
        *steady(60, start_s=180, power_w=240.0),
    ]
    detector, changes = play(samples)
    assert [place for place, _ in changes] == [64, 124, 184]
    assert [change.back_to_s for _, change in changes] == [None, 1.0, None]
    assert "as it was from 1.0 s on" in changes[1][1].words
    assert detector.levels["power"] == pytest.approx(240.0)


def test_a_change_while_it_learns_is_not_averaged_in():
    detector, _ = play([*steady(8), *steady(40, start_s=8, power_w=200.0)])
    assert detector.levels["power"] == pytest.approx(200.0)


# what is no change


def test_false_alarms_are_rarer_than_one_in_ten_thousand_periods():
    alarms = 0
    for seed, kind in enumerate((USUAL, NOISY, Kind("tails", 0.015, heavy=True), Kind("stalls", 0.01, stalls=0.01))):
        _, changes = play(samples_of(stream(kind, 5_000, np.random.default_rng(seed))))
        alarms += len(changes)
    assert alarms <= 1  # of 20,000 periods


def test_correlated_noise_is_no_change():
    _, changes = play(samples_of(stream(Kind("alike", 0.02, alike=0.6), 5_000, np.random.default_rng(3))))
    assert len(changes) <= 1


@pytest.mark.parametrize("period_s", [0.25, 1.0])
def test_a_gpu_that_warms_up_drifts_and_does_not_change(period_s):
    kind = Kind("warm", 0.01, warmth=Warmth(reported=False), period_s=period_s)
    played = stream(kind, 1_000, np.random.default_rng(5))
    early, _ = play(samples_of(played)[:20])
    late, changes = play(samples_of(played))
    assert changes == []
    assert abs(late.levels["power"] / early.levels["power"] - 1) > 0.01
    assert abs(late.levels["period"] / early.levels["period"] - 1) < 0.01


def test_the_temperature_explains_a_fast_warm_up():
    played = stream(Kind("warm", 0.005, warmth=Warmth(0.1, 20.0)), 200, np.random.default_rng(6))
    samples = zip(samples_of(played), played.temperature_c.tolist(), strict=True)
    detector, changes = play([replace(sample, temperature_c=degrees) for sample, degrees in samples])
    assert changes == []
    assert detector.reference_c == played.temperature_c[0]


def test_an_impossible_temperature_is_ignored():
    impossible = [replace(sample, temperature_c=place % 2 * 1e9) for place, sample in enumerate(steady(60))]
    assert play(impossible)[1] == []


@pytest.mark.parametrize("util", [0.0, 0.3, None])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_stall_of_three_periods_is_no_change(count, util):
    stall = [ProgramSample(time_s=50.0 + n, period_s=5.0, power_w=90.0, util=util) for n in range(count)]
    _, changes = play([*steady(50), *stall, *steady(50, start_s=60)])
    assert changes == []


def test_heavy_tails_are_no_change_and_hide_none():
    tails = Kind("tails", 0.02, heavy=True)
    alarms = [play(samples_of(stream(tails, 10_000, np.random.default_rng(seed))))[1] for seed in range(20, 23)]
    assert sum(map(len, alarms)) <= 1  # of 30,000 periods
    found = []
    for seed in range(40):
        played = stream(tails, 110, np.random.default_rng(seed)).shifted(90, "power", -0.05)
        _, changes = play(samples_of(played))
        found.append(bool(changes) and changes[0][0] < 100)
    assert sum(found) >= 38


def bursts(*, work=20, pause=10, count=20, edge=0.45):
    """Return samples of a second of a program that works and pauses in turn; work starts and ends within a second."""
    samples = []
    for n in range(count * (work + pause)):
        place = n % (work + pause)
        share = 1.0 if place < work - 1 else edge if place in (work - 1, work + pause - 1) else 0.0
        samples.append(ProgramSample(time_s=float(n), power_w=80 + 220 * share, util=0.9 * share))
    return samples


@pytest.mark.parametrize(("work", "pause"), [(20, 3), (20, 10), (60, 30), (30, 120)])
def test_a_pause_is_no_change_nor_is_work_after_it(work, pause):
    detector, changes = play(bursts(work=work, pause=pause))
    assert changes == []
    assert detector.levels["power"] == pytest.approx(300.0, rel=0.02)


def test_a_change_is_found_through_pauses():
    slower = [replace(sample, time_s=600.0 + sample.time_s, power_w=0.8 * sample.power_w) for sample in bursts(count=2)]
    _, ((_, change), *_) = play([*bursts(), *slower])
    # The last sample before the pause, in which work ended, counts with it.
    assert 589.0 <= change.since_s <= 601.0
    assert change.shifts["power"].change == pytest.approx(-0.2, abs=0.02)
    assert change.samples <= 10


def test_training_is_recognised_after_an_evaluation():
    rng = np.random.default_rng(12)

    def block(count, period_s, power_w):
        return [
            (period_s * exp(0.015 * rng.standard_normal()), power_w * exp(0.015 * rng.standard_normal()))
            for _ in range(count)
        ]

    values = [pair for _ in range(5) for pair in (*block(150, 1.0, 300.0), *block(30, 0.4, 210.0))]
    times_s = np.cumsum([period_s for period_s, _ in values])
    samples = [
        ProgramSample(time_s=float(time_s), period_s=period_s, power_w=power_w)
        for time_s, (period_s, power_w) in zip(times_s, values, strict=True)
    ]
    _, changes = play(samples)
    assert len(changes) == 9
    assert all(change.what == ("period", "power") for _, change in changes)
    assert sum(change.back_to_s is not None for _, change in changes[2:]) >= 6


def test_a_resumed_detector_forgets_the_evidence():
    detector, _ = play([*steady(30), *steady(2, start_s=30, power_w=400.0)])
    detector, changes = play(steady(2, start_s=40, power_w=400.0), detector.resumed())
    assert changes == []
    assert detector.levels["power"] == pytest.approx(300.0)


# impossible input


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), 0.0, -3.0])
def test_impossible_values_are_ignored(value):
    samples = [ProgramSample(time_s=float(n), period_s=value, power_w=value) for n in range(30)]
    detector, changes = play([*steady(30), *samples, *steady(30, start_s=60)])
    assert changes == []
    assert detector.levels["period"] == pytest.approx(1.0)


def least_shifts(detector):
    """Return the least shift of each learned quantity that is detected in ten samples on average."""
    learned = {name: channel.reference for name, channel in detector.channels.items() if channel.reference}
    return {name: reference.threshold.shift for name, reference in learned.items()}


def test_twenty_samples_are_learned_from():
    detector, _ = play(steady(19))
    assert detector.levels == least_shifts(detector) == {}
    detector = detector.add(ProgramSample(time_s=20.0, power_w=300.0))
    assert detector.levels == pytest.approx({"power": 300.0})
    assert least_shifts(detector) == {"power": 0.05}


def test_with_more_noise_only_larger_shifts_are_detected():
    detector, _ = play(samples_of(stream(Kind("wide", 0.08), 400, np.random.default_rng(7))))
    assert 0.1 < least_shifts(detector)["period"] < 0.2


# thresholds


def values_per_alarm(slack, alarm, *, noise):
    """Return the mean number of values until one sum alarms by chance (Siegmund's approximation)."""
    kappa = slack / noise
    exponent = 2 * kappa * (alarm / noise + 1.166)
    return 1e12 if exponent > 40 else (expm1(exponent) - exponent) / (2 * kappa**2)


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.02, 0.03, 0.06, 0.2])
def test_thresholds_alarm_as_rarely_and_detect_as_soon_as_designed(noise):
    limit = threshold(noise)
    assert (limit.alarm + 1.166 * noise) / limit.slack <= 10.1
    assert values_per_alarm(limit.slack, limit.alarm, noise=noise) >= 60_000
    assert limit.shift == pytest.approx(max(0.05, 1.6 * noise))


def test_a_sum_of_few_values_is_no_change_however_large():
    limit = threshold(0.02)
    assert not limit.passed(100 * limit.alarm, 4)
    assert limit.passed(1.01 * limit.alarm, 5)
    assert not limit.passed(0.99 * limit.alarm, 50)


@pytest.mark.parametrize(("slack", "alarm"), [(0.5, 3.0), (0.5, 4.0), (1.0, 2.0)])
def test_the_formula_agrees_with_simulated_sums(slack, alarm):
    rng = np.random.default_rng(11)
    runs = []
    sums = np.zeros(2_000)
    ages = np.zeros(2_000)
    for _ in range(1_500):
        sums = np.maximum(sums + rng.standard_normal(2_000) - slack, 0.0)
        ages += 1
        over = sums > alarm
        runs.extend(ages[over])
        sums[over] = ages[over] = 0.0
    assert values_per_alarm(slack, alarm, noise=1.0) == pytest.approx(2_000 * 1_500 / len(runs), rel=0.15)
