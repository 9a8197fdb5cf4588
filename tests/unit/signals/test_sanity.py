"""Readings without what cannot be so, and words of what was wrong."""

from dataclasses import replace

import pytest

from wattune.core.reading import Reading
from wattune.signals.readings import Sanity

GOOD = Reading(
    time_s=0.0, energy_j=1000.0, power_w=200.0, temperature_c=60.0, sm_mhz=1500, sm_util=0.9, power_limit_w=300.0
)


def play(readings, sanity=None):
    sanity, clean = sanity or Sanity(), []
    for reading in readings:
        sanity, one = sanity.add(reading)
        clean.append(one)
    return sanity, clean


def good(count, *, start_s=0.0, power_w=200.0, every_s=0.1):
    """Readings of a GPU whose sensors agree with each other."""
    return [
        replace(
            GOOD,
            time_s=start_s + every_s * n,
            energy_j=1000.0 + power_w * (start_s + every_s * n),
            power_w=power_w + 0.01 * (n % 7),
        )
        for n in range(count)
    ]


def test_good_readings_pass_unchanged():
    readings = good(100)
    sanity, clean = play(readings)
    assert clean == readings
    assert sanity.words == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("power_w", float("nan")),
        ("power_w", -5.0),
        ("power_w", float("inf")),
        ("energy_j", -1.0),
        ("sm_util", 1.7),
        ("mem_util", -0.1),
        ("temperature_c", 4000.0),
        ("sm_mhz", -1),
        ("mem_mhz", 10**9),
        ("power_limit_w", float("nan")),
    ],
)
def test_impossible_values_become_unknown(name, value):
    sanity, (clean,) = play([replace(GOOD, **{name: value})])
    assert getattr(clean, name) is None
    assert len(sanity.words) == 1
    assert sanity.words[0].endswith("(once)")


def test_a_jump_of_power_is_ignored_and_the_other_values_remain():
    readings = good(10)
    readings[5] = replace(readings[5], power_w=5000.0)
    sanity, clean = play(readings)
    assert clean[5].power_w is None
    assert clean[5].energy_j == readings[5].energy_j
    assert clean[6] == readings[6]
    assert sanity.words == ("a power of more than twice the limit is ignored (once)",)


def test_the_highest_limit_of_the_gpu_is_used_where_none_is_read():
    sanity, (clean,) = play([Reading(time_s=0.0, power_w=900.0)], Sanity(highest_w=400.0))
    assert clean.power_w is None
    assert len(sanity.news) == 1


def test_a_reset_counter_continues():
    readings = good(20)
    readings[10:] = [replace(reading, energy_j=reading.energy_j - 1150.0) for reading in readings[10:]]
    sanity, clean = play(readings)
    energies = [reading.energy_j for reading in clean]
    assert energies == sorted(energies)
    assert energies[-1] - energies[0] == pytest.approx(200.0 * 1.8, abs=1.0)
    assert "reset" in sanity.words[0]


def test_a_jump_of_the_counter_is_ignored():
    readings = good(20)
    readings[10:] = [replace(reading, energy_j=reading.energy_j + 1e6) for reading in readings[10:]]
    sanity, clean = play(readings)
    assert clean[-1].energy_j - clean[0].energy_j == pytest.approx(200.0 * 1.8, abs=1.0)
    assert sanity.words == ("the energy counter jumped; the jump is ignored (once)",)


def test_constant_power_that_the_counter_contradicts_is_frozen():
    readings = [replace(reading, power_w=120.0) for reading in good(60)]
    sanity, clean = play(readings)
    assert clean[20].power_w == 120.0
    assert clean[40].power_w is None
    assert "frozen" in sanity.words[0]


def test_constant_power_of_a_constant_load_is_not_frozen():
    readings = [replace(reading, power_w=200.0) for reading in good(600)]
    sanity, clean = play(readings)
    assert clean == readings
    assert sanity.words == ()


@pytest.mark.parametrize("other", [{"sm_util": 0.1}, {"sm_mhz": 800}])
def test_without_a_counter_utilisation_and_clock_show_a_frozen_sensor(other):
    readings = [Reading(time_s=0.1 * n, power_w=150.0, sm_util=0.9, sm_mhz=1500) for n in range(60)]
    readings[40:] = [replace(reading, **other) for reading in readings[40:]]
    _, clean = play(readings)
    assert clean[39].power_w == 150.0
    assert clean[41].power_w is None


def test_a_constant_counter_while_power_is_drawn_is_frozen():
    readings = [replace(reading, energy_j=1000.0) for reading in good(60)]
    sanity, clean = play(readings)
    assert clean[20].energy_j == 1000.0
    assert clean[40].energy_j is None
    assert clean[40].power_w is not None
    assert sanity.words == ("the energy counter is frozen while power is drawn (30 times)",)


def test_a_sensor_that_stops_reporting_is_missing_after_ten_seconds():
    readings = good(20, every_s=1.0)
    readings[2:] = [replace(reading, power_w=None) for reading in readings[2:]]
    sanity, _ = play(readings)
    assert sanity.words[0].startswith("a power has been missing for more than 10 s")
    sanity, _ = play([Reading(time_s=float(n), energy_j=float(n)) for n in range(30)])
    assert sanity.words == ()


def test_older_readings_are_dropped():
    sanity, clean = play([*good(5), replace(GOOD, time_s=-1.0), replace(GOOD, time_s=float("nan"))])
    assert clean[-2:] == [None, None]
    assert "ignored (2 times)" in sanity.words[0]


def test_a_problem_is_reported_once():
    bad = [replace(reading, power_w=-1.0) for reading in good(3)]
    sanity, _ = play(bad[:1])
    assert len(sanity.news) == 1
    sanity, _ = play(bad[1:], sanity)
    assert sanity.news == ()
    assert sanity.words == ("a power was impossible and is ignored (3 times)",)
