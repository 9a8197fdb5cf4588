"""Sensors that err, freeze and jump at any time: what passes is true, and what was spent is not lost."""

from dataclasses import replace
from math import nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.reading import Reading
from wattune.signals.readings import Sanity

EVERY_S = 0.1
LIMIT_W = 400.0
START_J = 5000.0

watts = st.lists(st.floats(40.0, LIMIT_W), min_size=30, max_size=120)
wrong = st.sampled_from([None, nan, float("inf"), -1.0, 0.0, 1e9])


def readings_of(powers_w):
    """Readings of a part whose sensors are right; power hardly ever stays the very same."""
    readings, energy_j = [], START_J
    for place, power_w in enumerate(powers_w):
        shown_w = power_w + 1e-3 * (place % 7)
        energy_j += shown_w * EVERY_S
        readings.append(
            Reading(
                time_s=EVERY_S * place,
                energy_j=energy_j,
                power_w=shown_w,
                temperature_c=60.0,
                sm_mhz=1400,
                sm_util=0.9,
                power_limit_w=LIMIT_W,
            )
        )
    return readings


def passed(readings):
    sanity, clean = Sanity(LIMIT_W), []
    for reading in readings:
        sanity, one = sanity.add(reading)
        clean.append(one)
    return sanity, clean


def counted_j(clean):
    """What the counter says was spent, from the first reading that has it to the last."""
    energies = [one.energy_j for one in clean if one is not None and one.energy_j is not None]
    assert energies == sorted(energies)
    return energies[-1] - energies[0]


def spent_j(readings):
    return readings[-1].energy_j - readings[0].energy_j


@settings(max_examples=60, deadline=None)
@given(watts)
def test_correct_readings_pass_unchanged(powers_w):
    readings = readings_of(powers_w)
    sanity, clean = passed(readings)
    assert clean == readings
    assert sanity.words == ()


@settings(max_examples=80, deadline=None)
@given(watts, st.dictionaries(st.integers(0, 119), wrong, max_size=30))
def test_errors_of_the_power_sensor_affect_power_only(powers_w, errors):
    readings = readings_of(powers_w)
    shown = [replace(one, power_w=errors[n]) if n in errors else one for n, one in enumerate(readings)]
    _, clean = passed(shown)
    for place, (one, right) in enumerate(zip(clean, readings, strict=True)):
        assert one.power_w == (None if place in errors else right.power_w)
        assert replace(one, power_w=None) == replace(right, power_w=None)


@settings(max_examples=80, deadline=None)
@given(watts, st.dictionaries(st.integers(1, 119), st.sampled_from([None, nan, -5.0]), max_size=30))
def test_short_errors_of_the_counter_lose_no_energy(powers_w, errors):
    readings = readings_of(powers_w)
    shown = [replace(one, energy_j=errors[n]) if n in errors else one for n, one in enumerate(readings)]
    _, clean = passed(shown)
    last = max(place for place in range(len(readings)) if place not in errors)
    assert counted_j(clean) == pytest.approx(spent_j(readings[: last + 1]))


@settings(max_examples=80, deadline=None)
@given(watts, st.sets(st.integers(1, 119), max_size=6), st.sampled_from([-1.0, 1.0]))
def test_a_counter_that_is_reset_or_jumps_loses_one_reading_each_time(powers_w, places, sign):
    readings = readings_of(powers_w)
    shown, moved_j = [], 0.0
    times = sum(place < len(readings) for place in places)
    for place, one in enumerate(readings):
        if place in places:
            # Back to nothing, as when a driver is loaded again; or far beyond what can be spent between two readings.
            moved_j = -one.energy_j if sign < 0 else moved_j + 1e6
        shown.append(replace(one, energy_j=one.energy_j + moved_j))
    sanity, clean = passed(shown)
    lost_j = spent_j(readings) - counted_j(clean)
    assert -1e-3 <= lost_j <= times * LIMIT_W * EVERY_S * 1.01 + 1e-3
    # Set back twice in a row, a counter seems to stand still the second time.
    assert bool(times) <= sum(sanity.wrong.values()) <= times


@settings(max_examples=80, deadline=None)
@given(watts, st.integers(1, 100), st.integers(1, 110))
def test_a_counter_that_freezes_catches_up(powers_w, start, length):
    readings = readings_of([*powers_w, 100.0])
    start = min(start, len(readings) - 2)
    end = min(start + length, len(readings) - 1)
    held_j = readings[start - 1].energy_j
    shown = [replace(one, energy_j=held_j) if start <= n < end else one for n, one in enumerate(readings)]
    sanity, clean = passed(shown)
    assert counted_j(clean) == pytest.approx(spent_j(readings))
    frozen = [place for place, one in enumerate(clean) if one.energy_j is None]
    assert all(start <= place < end for place in frozen)
    assert frozen or end - start < 32  # three seconds and a little
    assert [one.power_w for one in clean] == [one.power_w for one in shown]
    assert not any("jumped" in text for text in sanity.words)


@settings(max_examples=60, deadline=None)
@given(st.floats(60.0, 390.0), st.floats(60.0, 390.0), st.integers(35, 90))
def test_a_frozen_power_sensor_is_detected_and_used_again_later(before_w, after_w, length):
    readings = readings_of([before_w] * 20 + [after_w] * length + [after_w] * 20)
    held_w = readings[19].power_w
    shown = [replace(one, power_w=held_w) if 20 <= n < 20 + length else one for n, one in enumerate(readings)]
    _, clean = passed(shown)
    late = clean[20 + 32 : 20 + length]
    far, near = abs(after_w / held_w - 1) > 0.25, abs(after_w / held_w - 1) < 0.15
    if far:
        assert all(one.power_w is None for one in late)
    if near:
        assert all(one.power_w == held_w for one in late)
    assert clean[20 + length :] == readings[20 + length :]
    assert counted_j(clean) == pytest.approx(spent_j(readings))


@settings(max_examples=60, deadline=None)
@given(st.floats(60.0, 390.0), st.integers(30, 120))
def test_constant_power_of_a_constant_load_is_kept(power_w, count):
    readings = [
        replace(one, power_w=power_w, energy_j=START_J + power_w * EVERY_S * n)
        for n, one in enumerate(readings_of([power_w] * count))
    ]
    sanity, clean = passed(readings)
    assert clean == readings
    assert sanity.words == ()


@settings(max_examples=60, deadline=None)
@given(watts, st.randoms(use_true_random=False))
def test_readings_in_any_order_come_out_in_order(powers_w, random):
    readings = readings_of(powers_w)
    random.shuffle(readings)
    _, clean = passed(readings)
    times_s = [one.time_s for one in clean if one is not None]
    assert times_s == sorted(times_s)
    assert len(times_s) >= 1


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["power_w", "energy_j", "sm_util", "sm_mhz"]), st.integers(1, 30))
def test_a_sensor_that_stops_is_reported_missing_once_after_ten_seconds(name, last):
    readings = [replace(one, time_s=float(n)) for n, one in enumerate(readings_of([200.0] * 60))]
    shown = [replace(one, **{name: None}) if n > last else one for n, one in enumerate(readings)]
    sanity, places = Sanity(LIMIT_W), []
    for place, reading in enumerate(shown):
        sanity, _ = sanity.add(reading)
        places += [place for text in sanity.news if "has been missing" in text]
    assert places == [last + 11]
