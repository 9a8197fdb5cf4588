"""Layers at pairs of clocks that were not measured: made from the physics, so that the truth is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.errors import InputError
from wattune.core.voltage import voltage_squared
from wattune.response.layer_curves import LayerMeasurements, next_layer, pairs_to_measure, predict_layers

CORES, MEMORIES = (1200, 1400, 1600, 1800, 2000), (3500, 4000, 4500, 5000)
PAIRS = [(core, memory) for core in CORES for memory in MEMORIES]
SM_MHZ, MEM_MHZ = np.array(PAIRS, dtype=np.float64).T
X, Y = SM_MHZ / 2000, MEM_MHZ / 5000
THREE = [PAIRS.index(pair) for pair in pairs_to_measure(CORES, MEMORIES, 3)]
ONE = PAIRS.index(pairs_to_measure(CORES, MEMORIES, 1)[0])


def time_of(compute_s, memory_s, fixed_s=0.0, *, p=4.0, exponent=1.0):
    return fixed_s + ((compute_s / X) ** p + (memory_s / Y**exponent) ** p) ** (1 / p)


def power_of(time_s, compute_s, memory_s):
    v2 = voltage_squared(X, knee=0.68, rise=0.4)
    return 20 + 10 * Y + 40 * X * v2 + 90 * v2 * compute_s / time_s + 30 * memory_s / time_s


def measurements(time_s, places, *, classes=None, energy_j=None, demand=None):
    """Tables of which each layer shows only the pairs at its places."""
    seen = np.zeros_like(time_s, dtype=bool)
    for layer, own in enumerate(places):
        seen[layer, own] = True
    energy_j = np.full_like(time_s, np.nan) if energy_j is None else energy_j
    return LayerMeasurements(
        names=tuple(f"layer{place}" for place in range(len(time_s))),
        classes=classes or ("",) * len(time_s),
        sm_mhz=SM_MHZ,
        mem_mhz=MEM_MHZ,
        time_s=np.where(seen, time_s, np.nan),
        energy_j=np.where(seen, energy_j, np.nan),
        demand=demand,
    )


def worst(found, true):
    return np.abs(found / true - 1).max()


LAYERS = np.array([(9e-3, 1e-3), (8e-3, 3e-3), (5e-3, 5e-3), (2e-3, 6e-3), (1e-4, 4e-3), (3e-3, 1e-4)])
TIMES = np.stack([time_of(*layer) for layer in LAYERS])
ENERGIES = np.stack([time_s * power_of(time_s, *layer) for time_s, layer in zip(TIMES, LAYERS, strict=True)])


def test_three_pairs_predict_all_others():
    found = predict_layers(measurements(TIMES, [THREE] * len(TIMES)))
    assert np.abs(found.time_s / TIMES - 1).mean() < 0.006
    assert worst(found.time_s, TIMES) < 0.03
    assert np.all(found.time_error > 0)
    assert np.isnan(found.energy_j).all()
    assert np.isnan(found.energy_error).all()


def test_three_pairs_predict_energy():
    found = predict_layers(measurements(TIMES, [THREE] * len(TIMES), energy_j=ENERGIES))
    assert np.abs(found.energy_j / ENERGIES - 1).mean() < 0.02


def test_what_was_measured_is_kept():
    found = predict_layers(measurements(TIMES, [THREE] * len(TIMES), energy_j=ENERGIES))
    assert np.array_equal(found.time_s[:, THREE], TIMES[:, THREE])
    assert np.array_equal(found.energy_j[:, THREE], ENERGIES[:, THREE])


def test_layers_of_the_class_place_a_layer_measured_once():
    times = np.stack([time_of(9e-3, 1e-3), time_of(4.5e-3, 5e-4), time_of(1e-4, 5e-3), time_of(5e-5, 2.5e-3)])
    places = [THREE, [ONE], THREE, [ONE]]
    found = predict_layers(measurements(times, places, classes=("conv", "conv", "relu", "relu")))
    assert worst(found.time_s, times) < 0.05


def test_demand_places_a_layer_without_any_class():
    demand = LAYERS.copy()
    places = [[ONE]] * len(TIMES)
    with_demand = predict_layers(measurements(TIMES, places, demand=demand))
    without = predict_layers(measurements(TIMES, places))
    errors = [np.abs(found.time_s / TIMES - 1).mean() for found in (with_demand, without)]
    assert errors[0] < 0.5 * errors[1]
    assert with_demand.time_error.mean() < without.time_error.mean()


def test_no_demand_at_all_means_that_no_clock_matters():
    copy_s = np.full((1, len(PAIRS)), 2e-3)
    found = predict_layers(measurements(copy_s, [[ONE]], demand=np.zeros((1, 2))))
    assert worst(found.time_s, copy_s) < 0.02


def test_a_layer_never_measured_is_scaled_by_its_demand():
    times = np.stack([time_of(9e-3, 1e-3), time_of(4e-3, 8e-4), time_of(6e-3, 1e-3)]) / 0.6
    demand = np.array([(9e-3, 1e-3), (4e-3, 8e-4), (6e-3, 1e-3)])
    found = predict_layers(measurements(times, [THREE, THREE, []], demand=demand))
    assert worst(found.time_s[2], times[2]) < 0.06
    assert np.all(found.time_error[2] > found.time_error[1])


def test_a_layer_of_which_nothing_is_known_is_named():
    with pytest.raises(InputError, match="layer1 was not measured"):
        predict_layers(measurements(TIMES[:2], [THREE, []]))
    with pytest.raises(InputError, match="no layer was measured"):
        predict_layers(measurements(TIMES[:2], [[], []]))


def test_all_layers_teach_how_the_memory_of_the_gpu_answers():
    """Bandwidth that rises faster than its clock is learned at two memory clocks of other layers."""
    times = np.stack([time_of(1e-4, memory_s, exponent=1.2) for memory_s in (1e-3, 2e-3, 4e-3, 8e-3)])
    demand = np.tile([1e-4, 3e-3], (4, 1))
    shared = predict_layers(measurements(times, [THREE, THREE, THREE, [ONE]], demand=demand))
    alone = predict_layers(measurements(times[3:], [[ONE]], demand=demand[3:]))
    assert worst(shared.time_s[3], times[3]) < 0.5 * worst(alone.time_s[0], times[3])


def test_chosen_pairs_differ_in_both_clocks():
    chosen = pairs_to_measure(CORES, MEMORIES, 3)
    assert len({core for core, _ in chosen}) > 1
    assert len({memory for _, memory in chosen}) > 1
    assert set(chosen) <= set(PAIRS)


def test_pairs_of_a_gpu_with_one_memory_clock():
    chosen = pairs_to_measure(range(210, 1411, 15), (1215,), 2)
    assert len(chosen) == 2
    assert chosen[0][0] - chosen[1][0] > 400


def test_more_pairs_than_there_are():
    with pytest.raises(InputError, match="cannot choose 3 of 2 pairs"):
        pairs_to_measure((1000, 2000), (5000,), 3)


def test_the_next_layer_is_the_one_with_the_largest_error_in_seconds():
    times = np.stack([time_of(9e-3, 1e-3), time_of(8e-3, 1e-3), time_of(7e-3, 1e-3), time_of(1e-3, 7e-3)])
    calls = np.array([10.0, 9.0, 8.0, 7.5])
    once = measurements(times, [[ONE]] * 4)
    assert next_layer(once, predict_layers(once), calls) == 0
    # Two layers show how the third answers, which has the same class; nothing is known about the last one.
    then = measurements(times, [THREE, THREE, [ONE], [ONE]], classes=("conv", "conv", "conv", "relu"))
    assert next_layer(then, predict_layers(then), calls) == 3
    done = measurements(times, [THREE] * 4)
    assert next_layer(done, predict_layers(done), calls) is None


kernels = st.tuples(st.floats(1e-4, 1e-2), st.floats(1e-4, 1e-2), st.floats(0, 1e-3), st.floats(1.5, 6.0))


@settings(max_examples=40, deadline=None)
@given(st.lists(kernels, min_size=1, max_size=4))
def test_predictions_are_positive_near_and_fall_with_both_clocks(drawn):
    times = np.stack([time_of(compute_s, memory_s, fixed_s, p=p) for compute_s, memory_s, fixed_s, p in drawn])
    found = predict_layers(measurements(times, [THREE] * len(times)))
    assert np.all(found.time_s > 0)
    assert np.abs(found.time_s / times - 1).mean() < 0.03
    # Three pairs do not show where a hard corner between both limits is.
    assert worst(found.time_s, times) < 0.1
    grid = found.time_s.reshape(len(times), len(CORES), len(MEMORIES))
    slack = 0.015 * grid.max(axis=(1, 2))[:, np.newaxis, np.newaxis]
    assert np.all(np.diff(grid, axis=1) <= slack)
    assert np.all(np.diff(grid, axis=2) <= slack)
