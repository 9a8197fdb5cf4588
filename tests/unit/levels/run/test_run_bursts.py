"""A bursty program under the live loop, end to end in virtual time: its pauses cost it nothing."""

import pytest
from bursty_program import default_bursts, locked_low_bursts, tuned_bursts


@pytest.mark.parametrize(
    ("work_s", "pause_s", "bursts"), [(3.0, 4.0, 50), (10.0, 2.0, 30), (30.0, 15.0, 8), (60.0, 30.0, 4)]
)
def test_pauses_are_neither_changes_nor_slowdowns(work_s, pause_s, bursts):
    plain = default_bursts(work_s=work_s, pause_s=pause_s, bursts=bursts)
    tuned = tuned_bursts(work_s=work_s, pause_s=pause_s, bursts=bursts)
    assert tuned.time_s <= 1.05 * plain.time_s
    # Its step shows seldom: then nothing is held, and nothing is spent beyond what the driver spends.
    assert tuned.energy_j <= 1.002 * plain.energy_j
    assert tuned.changed <= 1
    # A first long pause may be taken for rest, once.
    assert sum("idle" in text for text in tuned.events) <= 1
    assert len(tuned.applied) <= 30


@pytest.mark.parametrize(("work_s", "pause_s", "bursts"), [(30.0, 15.0, 8), (20.0, 60.0, 6)])
def test_steps_that_pause_are_tuned_as_steps(work_s, pause_s, bursts):
    plain = default_bursts(work_s=work_s, pause_s=pause_s, bursts=bursts)
    tuned = tuned_bursts(work_s=work_s, pause_s=pause_s, bursts=bursts, steps=True)
    assert tuned.time_s <= 1.05 * plain.time_s
    assert tuned.energy_j < 0.97 * plain.energy_j
    assert tuned.changed == 0


def test_low_clocks_in_pauses_cost_more_than_ours():
    spans = {"work_s": 3.0, "pause_s": 4.0, "bursts": 20}
    plain, locked, ours = default_bursts(**spans), locked_low_bursts(**spans), tuned_bursts(**spans)
    assert locked.time_s > 1.15 * plain.time_s
    assert ours.time_s < 1.05 * plain.time_s
