from pathlib import Path

import pytest

from wattune.config import OPTIONS, load_config
from wattune.core.errors import ConfigError


def origins(config):
    return {value.option.name: value.origin for value in config.values}


def test_without_anything_every_setting_has_its_default(tmp_path):
    config = load_config({}, tmp_path / "none.toml")
    assert set(origins(config).values()) == {"default"}
    assert config.device == "auto"
    assert config.store_url.startswith("sqlite:////")
    assert config.store_url.endswith("history.db")
    assert config.data_dir is None
    assert config.visible_gpus is None


def test_the_file_beats_the_default_and_the_environment_beats_the_file(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('device = "sim:v100"\nstate = "/var/lib/wattune"\n')
    config = load_config({"WATTUNE_DEVICE": "sim:a40", "WATTUNE_CONFIG": str(file)})
    assert config.device == "sim:a40"
    assert config.state_dir == Path("/var/lib/wattune")
    assert origins(config)["device"] == "environment variable WATTUNE_DEVICE"
    assert origins(config)["state"] == f"file {file}"
    assert origins(config)["store"] == "default"


def test_an_empty_variable_counts_as_not_set(tmp_path):
    assert load_config({"WATTUNE_DEVICE": ""}, tmp_path / "none.toml").device == "auto"


def test_a_home_folder_may_be_written_with_a_tilde(tmp_path):
    environment = {"WATTUNE_STATE": "~/state", "WATTUNE_STORE": "~/h.db", "WATTUNE_DATA": "~/d", "WATTUNE_CACHE": "~/c"}
    config = load_config(environment, tmp_path / "none.toml")
    home = Path.home()
    assert (config.state_dir, config.data_dir, config.cache_dir) == (home / "state", home / "d", home / "c")
    assert config.store_url == f"sqlite:///{home / 'h.db'}"


def test_a_database_url_is_taken_as_it_is(tmp_path):
    environment = {"WATTUNE_STORE": "postgresql://me@host/db", "CUDA_VISIBLE_DEVICES": "1,0"}
    config = load_config(environment, tmp_path / "none.toml")
    assert config.store_url == "postgresql://me@host/db"
    assert config.visible_gpus == "1,0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('devise = "auto"', "there is no setting 'devise'"),
        ("device = 1", "setting 'device' is not a text"),
        ("device = [", "cannot read the settings file"),
        (b"\xff\xfe", "cannot read the settings file"),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, message):
    file = tmp_path / "config.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=message) as refusal:
        load_config({}, file)
    assert str(file) in refusal.value.message
    assert refusal.value.hint


def test_a_name_that_the_system_refuses_is_repeated_once():
    with pytest.raises(ConfigError) as refusal:
        load_config({}, Path("x" * 5000))
    assert "File name too long" in refusal.value.message
    assert refusal.value.message.count("x") <= 200


def test_numbers_and_truth_values_need_no_quotes(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("grid_intensity = 380\nrequire_gpu = true\n")
    config = load_config({}, file)
    assert config.require_gpu is True
    assert config.tariff.intensity == load_config({"WATTUNE_GRID_INTENSITY": "380"}, file).tariff.intensity


def test_every_option_says_what_it_means():
    assert len({option.variable for option in OPTIONS}) == len(OPTIONS)
    for option in OPTIONS:
        assert option.variable == f"WATTUNE_{option.name.upper()}"
        assert option.meaning


@pytest.mark.parametrize(("text", "required"), [("1", True), ("Yes", True), ("true", True), ("no", False), ("", False)])
def test_whether_a_gpu_is_required(tmp_path, text, required):
    assert load_config({"WATTUNE_REQUIRE_GPU": text}, tmp_path / "none.toml").require_gpu is required


def test_a_requirement_that_is_neither_true_nor_false_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="require_gpu is 'maybe'"):
        _ = load_config({"WATTUNE_REQUIRE_GPU": "maybe"}, tmp_path / "none.toml").require_gpu
