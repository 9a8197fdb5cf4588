"""Constants of two streams recovered from what they themselves made."""

from __future__ import annotations

import numpy as np
import pytest

from wattune.physics.fit.overlap_curve import OverlapSettings
from wattune.physics.fit.overlap_streams import fit_streams
from wattune.physics.streams import StreamPhases, two_streams
from wattune.physics.timing import smooth_maximum

OPERATIONS_S = np.array([0.2, 0.5, 0.1, 0.6, 1.0]) * 1e-3
LOST, PROGRESS, GAP_S = 0.9, 0.6, 1e-4


def sweep() -> tuple[OverlapSettings, np.ndarray, np.ndarray]:
    windows = [(-1, -1), *((start, end) for start in range(5) for end in range(start, 5))]
    rows = [(start, end, sms, block) for start, end in windows for sms in (1, 2, 4, 8, 14, 20) for block in (512, 1024)]
    start, end, sms, block = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    settings = OverlapSettings(start, end, sms, block)
    gap_s = GAP_S * settings.sequential
    comm_s = smooth_maximum(5e-3 / (sms * (block / 1024) ** 0.85), np.full(len(rows), 0.35e-3), 3.0) + gap_s
    alone_s = np.repeat(OPERATIONS_S[:, None], len(rows), axis=1)
    ones = np.ones_like(alone_s)
    begun_s = np.concatenate([[0.0], np.cumsum(OPERATIONS_S)])
    before_s = np.where(start < 0, np.inf, begun_s[np.maximum(start, 0).astype(int)])
    phases = StreamPhases(alone_s, ones, alone_s * (1 + LOST * sms / 108), ones, PROGRESS * ones)
    cost = two_streams(phases, comm_s, before_s, np.where(start < 0, 4.0, end))
    return settings, cost.time_s, 0.5 + 80 * cost.time_s + 0.9 * sms * cost.comm_s


def test_constants_are_recovered() -> None:
    settings, time_s, energy_j = sweep()
    fitted = fit_streams(settings, time_s, energy_j, scale=settings)
    assert fitted.progress == pytest.approx(PROGRESS, rel=0.03)
    assert fitted.sms_lost == pytest.approx(LOST, rel=0.1)
    assert fitted.gap_s == pytest.approx(GAP_S, rel=0.1)
    assert fitted.operations_s == pytest.approx(OPERATIONS_S, rel=0.05)
    assert fitted.energy[1] == pytest.approx(80, rel=0.02)


def test_settings_left_out_are_predicted() -> None:
    settings, time_s, energy_j = sweep()
    order = np.random.default_rng(0).permutation(len(time_s))
    used, left = order[:30], order[30:]
    fitted = fit_streams(settings.taken(used), time_s[used], energy_j[used], scale=settings)
    predicted_s, predicted_j = fitted.predict(settings.taken(left))
    assert np.mean(np.abs(predicted_s / time_s[left] - 1)) < 0.02
    assert np.mean(np.abs(predicted_j / energy_j[left] - 1)) < 0.02
