import numpy as np
import pytest

from wattune.physics.fit.overlap_curve import OverlapSettings, fit_overlap

WINDOWS = [(-1, -1), (0, 1), (0, 3), (1, 2), (2, 3), (3, 3)]
SHARES = np.array([0.1, 0.3, 0.2, 0.4])


def settings():
    grid = [(a, z, s, b) for a, z in WINDOWS for s in range(1, 21) for b in (512, 1024)]
    return OverlapSettings(*np.array(grid, dtype=np.float64).T)


def truth(chosen):
    alone = ((5.0 / chosen.comm_sms * (1024 / chosen.comm_block) ** 0.8) ** 3 + 0.5**3) ** (1 / 3)
    hidden = 2.5 * chosen.inside(4) @ SHARES
    beside = 2.5 - hidden + np.maximum(hidden * (1 + chosen.comm_sms / 108), alone + 0.4 * np.minimum(hidden, alone))
    time_s = np.where(chosen.sequential, 2.5 + alone, beside) * 1e-3
    return time_s, 1.4 + 165.0 * time_s


def test_thirty_settings_predict_the_others():
    every = settings()
    time_s, energy_j = truth(every)
    used = np.random.default_rng(3).permutation(len(every))[:30]
    curve = fit_overlap(every.taken(used), time_s[used], energy_j[used], scale=every)
    predicted_s, predicted_j = curve.predict(every)
    assert np.mean(np.abs(predicted_s / time_s - 1)) < 0.02
    assert np.mean(np.abs(predicted_j / energy_j - 1)) < 0.01
    assert curve.energy == pytest.approx([1.4, 165.0], rel=0.02)


def test_a_window_holds_its_operations_and_a_sequence_none():
    every = settings()
    inside = every.inside(4)
    assert np.all(inside[every.sequential] == 0)
    whole = (every.start == 0) & (every.end == 3)
    assert np.all(inside[whole] == 1)


def test_features_are_of_order_one():
    every = settings()
    assert np.abs(every.features(every)).max() <= 1.5
    assert every.operations == 4
