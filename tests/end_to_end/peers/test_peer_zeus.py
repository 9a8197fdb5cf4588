"""zeus, unmodified: windows against the truth, and its power limit optimizer against the exhaustive optimum."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from played import A100, LIMITS, REFRESH_J, TABLE, column_within

pytestmark = pytest.mark.peers

STEPS = 1000
FRAMEWORK = Path(__file__).parent / "standins" / "framework"


def test_a_window_of_zeus_monitor(peers):
    options = ("--gpu", "a100,v100", "--virtual-time")
    found = peers.simulate(*options, command=peers.client("zeus_window", "5")).json()
    assert found["time_s"] == pytest.approx(5, abs=1e-6)
    assert found["energy_j"] == pytest.approx(found["truth_j"], abs=REFRESH_J)
    assert all(found["energy_j"])


def test_reading_needs_no_privilege(peers):
    found = peers.simulate("--virtual-time", "--unprivileged", command=peers.client("zeus_window", "60")).json()
    assert found["energy_j"] == pytest.approx(found["truth_j"], rel=0.002)


@pytest.mark.parametrize("when", ["lost", "lost@3s"])
def test_zeus_says_that_the_gpu_is_lost(peers, when):
    done = peers.simulate("--virtual-time", "--fault", f"0:{when}", command=peers.client("zeus_window", "5"))
    assert done.code == 1
    assert "ZeusGPULostError" in done.stderr


def test_power_monitor(peers):
    """It integrates between the first and the last new sample, so it misses up to two refreshes of the two seconds."""
    found = peers.simulate(command=peers.client("zeus_power", "2")).json()
    assert len(found["power_w"]) >= 5
    assert all(A100.idle_w < watts <= 1.2 * LIMITS.max_w for watts in found["power_w"])
    assert 0.8 * found["least_j"] <= found["energy_j"] <= 1.05 * found["most_j"]


def with_framework(command):
    """The command with the stand-in for torch on its path, and after it a query of the limit that was left."""
    words = f"PYTHONPATH={FRAMEWORK}:$PYTHONPATH {shlex.join(command)}"
    query = "nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits >&2"
    return ("sh", "-c", f"nvidia-smi -pl 300 >&2; {words}; code=$?; {query}; exit $code")


def exhaustive():
    """Time and energy of the profiled iterations at every limit that zeus tries, from the table that the GPU plays."""
    limits_w = np.arange(LIMITS.max_w, LIMITS.min_w - 1, -25)
    columns = [column_within(limit_w) for limit_w in limits_w]
    return limits_w, TABLE.iteration_s[columns] * STEPS, TABLE.iteration_j[columns] * STEPS


def choose(rule, limits_w, time_s, energy_j):
    if rule == "energy":
        return limits_w[np.argmin(energy_j)]
    if rule == "cost":
        return limits_w[np.argmin(energy_j / 2 + LIMITS.max_w * time_s / 2)]
    return limits_w[time_s <= 1.1 * time_s[0]].min()


@pytest.mark.parametrize("rule", ["energy", "cost", "slowdown"])
def test_the_power_limit_optimizer_finds_the_exhaustive_optimum(peers, rule):
    command = with_framework(peers.client("zeus_limits", rule, str(STEPS)))
    done = peers.simulate("--virtual-time", command=command)
    found = done.json()
    limits_w, time_s, energy_j = exhaustive()
    profiled_w, profiled_s, profiled_j = np.array(found["profile"]).T
    assert profiled_w.tolist() == limits_w.tolist()
    assert profiled_s == pytest.approx(time_s, rel=1e-6)
    assert profiled_j == pytest.approx(energy_j, abs=REFRESH_J)
    assert found["chosen_w"] == choose(rule, limits_w, time_s, energy_j)
    # The limits were really set, one after the other and then the chosen one.
    assert found["limits_w"] == [*limits_w, found["chosen_w"]]
    # Zeus leaves the maximum at its exit, not the 300 W that it found.
    assert "\n400.00\n" in done.stderr


def test_without_privilege_the_optimizer_says_what_it_needs(peers):
    done = peers.simulate(
        "--virtual-time",
        "--unprivileged",
        "--no-persistence",
        command=with_framework(peers.client("zeus_limits", "energy", "40")),
    )
    assert done.code == 1
    assert "refused: SYS_ADMIN capability is required" in done.stderr
    assert "\n400.00\n" in done.stderr
