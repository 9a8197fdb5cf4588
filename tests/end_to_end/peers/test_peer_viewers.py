"""nvitop and gpustat, unmodified: their output names the simulated GPU and shows its load."""

import json

import pytest

from wattune.physics.catalog import load_model

pytestmark = pytest.mark.peers

A100, V100 = load_model("a100"), load_model("v100")
TWO = ("--gpu", "a100,v100")


def test_gpustat(peers):
    done = peers.simulate(*TWO, command=peers.tool("gpustat", "--json"))
    assert done.code == 0, done.stderr
    first, second = json.loads(done.stdout)["gpus"]
    assert (first["name"], second["name"]) == (A100.spec(0).label, V100.spec(1).label)
    assert first["enforced.power.limit"] == A100.spec(0).power_limits.default_w
    assert 0 < first["power.draw"] <= 1.2 * A100.spec(0).power_limits.max_w  # a phase may draw more than the mean
    assert first["memory.total"] == A100.memory_bytes >> 20
    assert first["memory.used"] == first["memory.total"] // 2
    assert first["fan.speed"] is None
    assert "gpustat" in " ".join(first["processes"][0]["full_command"])
    assert done.called_out == ()


def test_gpustat_names_the_card_that_is_lost_and_shows_the_other(peers):
    done = peers.simulate("--count", "2", "--fault", "1:lost", command=peers.tool("gpustat", "--json"))
    first, second = json.loads(done.stdout)["gpus"]
    assert "simulated" in first["name"]
    assert second == {"index": 1, "name": "((GPU is lost))", "processes": None}


def test_nvitop_once(peers):
    done = peers.simulate(*TWO, command=peers.tool("nvitop", "--once", "--ascii"))
    assert done.code == 0, done.stderr
    assert "(simulated)" in done.stdout  # the name itself is cut to fit its column
    assert "/ 400W" in done.stdout
    assert "/ 250W" in done.stdout
    assert "20.00GiB / 40.00GiB" in done.stdout
    assert done.called_out == ()


def test_nvitop_from_python(peers):
    found = peers.simulate(*TWO, "--virtual-time", command=peers.client("nvitop_devices")).json()
    for gpu, model, index in zip(found["gpus"], (A100, V100), (0, 1), strict=True):
        spec = model.spec(index)
        assert (gpu["name"], gpu["uuid"]) == (spec.label, spec.uuid)
        assert gpu["memory_total"] == model.memory_bytes
        assert gpu["limit_mw"] == spec.power_limits.default_w * 1000
        assert model.idle_w * 1000 < gpu["power_mw"] <= 1.2 * gpu["limit_mw"]
        assert gpu["sm_mhz"] in spec.sm_clocks_mhz
        assert gpu["utilization"] > 90
        assert gpu["pids"] == [found["pid"]]


def test_nvitop_says_that_a_gpu_is_lost(peers):
    done = peers.simulate("--count", "2", "--fault", "0:lost", command=peers.tool("nvitop", "--once", "--ascii"))
    assert "ERROR: GPU is Lost" in done.stdout
    assert "(simulated)" in done.stdout
