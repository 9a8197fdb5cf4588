"""Opening GPUs from Python: a simulated one in place of a missing driver is a warning, or an error."""

import pytest

from wattune import DeviceNotFound, measured, open_gpu, open_gpus
from wattune.api import SimulatedGpuWarning, run_session, warn_of_simulated
from wattune.process.step_file import UNFOLLOWED, unfollowing_environment


@pytest.fixture(autouse=True)
def without_a_driver(monkeypatch, tmp_path, emulated_library):
    for name in ("WATTUNE_NODE", "WATTUNE_DEVICE", "WATTUNE_REQUIRE_GPU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    warn_of_simulated.cache_clear()
    yield
    warn_of_simulated.cache_clear()


def test_a_simulated_gpu_in_place_of_a_missing_one_warns_once_where_it_is_opened():
    with pytest.warns(SimulatedGpuWarning, match="every figure is simulated") as caught, open_gpu() as gpu:
        assert gpu.spec.simulated
    assert [warning.filename for warning in caught] == [__file__]
    with open_gpus("auto") as gpus, measured(*gpus):
        assert gpus[0].spec.simulated


def test_a_gpu_that_is_named_simulated_warns_of_nothing():
    with open_gpu("sim:a100") as gpu:
        assert gpu.spec.simulated


def test_a_missing_gpu_is_an_error_where_one_is_required(monkeypatch):
    monkeypatch.setenv("WATTUNE_REQUIRE_GPU", "yes")
    with pytest.raises(DeviceNotFound, match="a GPU is required"), open_gpu():
        pass


def test_tuning_beside_a_simulated_gpu_that_is_not_followed_is_refused(emulated_node, monkeypatch):
    emulated_node("a100")
    with open_gpu("nvml:0") as gpu:
        assert run_session((gpu,), slowdown=0.05).watch.refused is None
        for name, value in unfollowing_environment({}).items():
            monkeypatch.setenv(name, value)
        assert run_session((gpu,), slowdown=0.05).watch.refused == UNFOLLOWED
