"""codecarbon and carbontracker, unmodified: the joules they find against the joules that were spent."""

import pytest
from played import A100, LIMITS, REFRESH_J, SPEC

pytestmark = pytest.mark.peers


def test_codecarbon_in_virtual_time(peers):
    """Nothing but the five seconds passes, so codecarbon is as right as the counter: within one refresh, 2.4 %."""
    done = peers.simulate("--virtual-time", command=peers.client("codecarbon_window", "5"))
    found = done.json()
    assert found["least_j"] == pytest.approx(found["most_j"])
    assert found["energy_j"] == pytest.approx(found["most_j"], abs=REFRESH_J)
    assert found["model"] == f"1 x {SPEC.label}"
    assert done.called_out == ()


def test_codecarbon_in_real_time(peers):
    """It takes a second or two to start and to stop, somewhere in which it reads the counter."""
    done = peers.simulate(command=peers.client("codecarbon_window", "2"))
    found = done.json()
    assert found["least_j"] - REFRESH_J <= found["energy_j"] <= found["most_j"] + REFRESH_J
    assert done.called_out == ()


def test_codecarbon_warns_of_a_gpu_that_is_lost(peers):
    """Its counter and its power both fail; what was spent before is lost with them."""
    done = peers.simulate("--virtual-time", "--fault", "0:lost@2s", command=peers.client("codecarbon_window", "5"))
    assert done.json()["energy_j"] == 0
    assert "Failed to read the energy counter of GPU 0" in done.stderr


def test_carbontracker(peers):
    """It averages power samples; an A100's sensor measures a quarter of the time, so they differ by some per cent."""
    done = peers.simulate(command=peers.client("carbontracker_epoch", "2"))
    found = done.json()
    assert found["devices"] == [SPEC.label]
    assert len(found["power_w"]) >= 5
    assert all(A100.idle_w < watts <= 1.2 * LIMITS.max_w for watts in found["power_w"])
    assert 0.9 * found["least_j"] <= found["energy_j"] <= 1.1 * found["most_j"]
    # It has no offline mode: it asks where it is, is refused, and goes on with the world's mean grid.
    assert len(set(done.called_out)) <= 1
