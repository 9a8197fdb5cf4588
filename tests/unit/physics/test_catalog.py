from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import wattune.physics.catalog as catalog
from wattune.core.errors import DeviceNotFound, InputError
from wattune.core.trust import TrustLevel
from wattune.core.workload import Pipe
from wattune.physics.catalog import catalog_names, load_model, load_sheet, read_model, sources, trust_of
from wattune.physics.catalog.sheet import Sheet

FOLDER = Path(catalog.__file__).parent


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a100", "a100"),
        ("A100", "a100"),
        ("a100-sxm4-40gb", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("rtx 3080 ti", "3080ti"),
        ("GeForce RTX 3080 Ti", "3080ti"),
        ("RTX A4000", "a4000"),
        ("Tesla_V100", "v100"),
        ("H100 SXM", "h100"),
        ("AMD Instinct MI300X", "mi300x"),
        ("RTX 2000 Mobile", "rtx2000ada-laptop"),
    ],
)
def test_names_are_forgiving(name: str, key: str) -> None:
    assert load_model(name).key == key


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(DeviceNotFound, match="no simulated GPU 'a1000'") as error:
        load_model("a1000")
    assert error.value.hint == "did you mean a100 or a4000?"


def test_a_name_like_no_other_lists_all() -> None:
    with pytest.raises(DeviceNotFound) as error:
        load_model("zzzzzzzz")
    assert error.value.hint == f"there are {', '.join(catalog_names())}"


@pytest.mark.parametrize("name", catalog_names())
def test_every_gpu_is_credible(name: str) -> None:
    model = load_model(name)
    idle_w = model.context_idle_w(np.array(model.clocks[0].sm_mhz, dtype=float), None)
    assert 0 < model.idle_w < idle_w.min()
    assert idle_w.max() < model.default_limit_w / 2
    assert model.max_mhz * 0.45 <= model.core.voltage_knee_mhz <= model.max_mhz * 0.8
    assert model.cores % model.sms == 0
    assert 60 < model.thermal.steady_c(model.default_limit_w) < model.thermal.slowdown_c
    assert model.link is not None
    assert {unit.pipe for unit in model.units} >= {Pipe.FP32, Pipe.FP16}
    peaks = [unit.peak_flops / unit.reference_mhz for unit in model.units]
    assert peaks == sorted(peaks)


@pytest.mark.parametrize("name", catalog_names())
def test_leakage_is_a_credible_share_of_all_power(name: str) -> None:
    """Measured on A100 and RTX 3090: 0.2 to 0.35 % of all power per kelvin under load."""
    model = load_model(name)
    hot_c = model.thermal.steady_c(model.default_limit_w)
    w_per_k = model.core.leak_per_k * model.leak_w(np.array([float(model.max_mhz)]), hot_c)[0]
    assert 0.0005 < w_per_k / model.default_limit_w < 0.0035
    # Far from running away: a degree more must not make a degree more.
    assert model.thermal.resistance_k_per_w * w_per_k < 0.3


def test_gpus_differ_in_what_can_be_set() -> None:
    laptop = load_model("rtx2000ada-laptop")
    assert (laptop.power_limits, laptop.default_limit_w) == (None, 95.0)
    assert laptop.spec().power_limits is None
    p100 = load_model("p100")
    assert not p100.has_counter
    assert p100.sensors.counter_period_s is None
    hbm = ("p100", "v100", "v100-sxm2", "a100", "a100-80gb", "h100", "h100-pcie", "b200", "mi250x", "mi300x")
    assert all(len(load_model(name).clocks) == 1 for name in hbm)
    assert load_model("h100-nvl").mem_clocks_mhz == (2619, 1593)
    assert all(len(load_model(name).clocks) == 5 for name in ("a4000", "3080ti", "3090", "4090"))


def test_the_catalogue_is_complete() -> None:
    assert len(catalog_names()) == 22


@pytest.mark.parametrize("name", catalog_names())
def test_every_value_has_a_mark_and_a_source(name: str) -> None:
    values = sources(name)
    assert len(values) > 35
    assert {value.mark for value in values} <= {"measured", "published", "estimated"}
    assert all(value.source for value in values)


def test_gpus_of_one_model_differ_only_in_their_uuid() -> None:
    first, second = load_model("a100").spec(0), load_model("a100").spec(1)
    assert first.uuid.startswith("GPU-")
    assert first.uuid != second.uuid != load_model("v100").spec(0).uuid
    assert first == load_model("A100").spec(0)
    assert first.simulated
    assert "simulated" in first.label


def test_clocks_are_those_of_the_gpu() -> None:
    assert load_model("a100").clocks[0].sm_mhz == tuple(range(210, 1411, 15))
    v100 = load_model("v100").clocks[0].sm_mhz
    assert (len(v100), v100[-5:]) == (167, (1350, 1357, 1365, 1372, 1380))
    assert load_model("3080ti").mem_clocks_mhz == (9501, 9251, 5001, 810, 405)


def test_a_gpu_without_a_pipe_uses_fp32() -> None:
    assert load_model("v100").unit(Pipe.TF32).pipe is Pipe.FP32


def read_all(file: Path) -> None:
    """Everything that the catalogue reads from a file."""
    read_model(file)
    sheet = Sheet.read(file)
    sheet.texts("aliases")
    sheet.all_sourced()


@pytest.mark.parametrize(
    ("pattern", "replacement", "complaint"),
    [
        (r"idle_w = \{ value = 50", "idle_w = { value = -50", "board.idle_w is more than 0, not -50"),
        (r"sms = \{ value = 108", "sms = { value = 10.5", "board.sms is a whole number, not 10.5"),
        (r"sms = \{ value = 108", 'sms = { value = "many"', "board.sms is a number, not 'many'"),
        (r"idle_w = \{ value = 50", "idle_w = { value = nan", "board.idle_w is a number, not nan"),
        (
            r"efficiency = \{ value = 0.88",
            "efficiency = { value = 1.2",
            "memory.efficiency is more than 0 and at most 1",
        ),
        (
            r"value = 994",
            "value = 1500",
            "core.voltage_knee_mhz lies below the highest clock of 1410 MHz, not at 1500",
        ),
        (
            r"default_w = \{ value = 400",
            "default_w = { value = 500",
            "power_limit_default_w lies outside of 100 to 400",
        ),
        (r"value = 1.3725", "value = 0.9", "core.voltage_ratio is at least 1, not 0.9"),
        (
            r'value = 1.3725, mark = "measured"',
            'value = 1.3, mark = "measured", source = "x" }\nvoltage_bend = { value = 0.5, mark = "estimated"',
            "core.voltage_bend is at least 1 and at most 3, not 0.5",
        ),
        (r"count = 81", "count = 8100", r"clocks\[0\].sm_mhz cannot hold 8100 clocks from 210 to 1410"),
        (r"count = 81", 'count = "x"', r"clocks\[0\].sm_mhz.count is a whole number above 0, not 'x'"),
        (r"sm_mhz = \{ lowest.*", "", r"clocks\[0\] needs sm_mhz = \{ lowest, highest, count \}"),
        (r"\[\[clocks\]\]", "[[other]]", "clocks is not a list of tables"),
        (
            r'idle_w = \{ value = 50, mark = "estimated"',
            'idle_w = { value = 50, mark = "guess"',
            "has the mark 'guess'",
        ),
        (r"idle_w = \{ value = 50, .*", "idle_w = 50", "board.idle_w is missing or lacks the form"),
        (r"value = true", "value = 1", "board.can_lock_mem is true or false, not 1"),
        (r'name = "NVIDIA.*', "", "name is missing"),
        (r"aliases = .*", "aliases = [1]", "aliases is not a list of texts"),
        (r"\[board\]", "[board", "cannot read"),
        (
            r"launch_us = \{ value = [0-9.]+",
            "launch_us = { value = 1e30",
            "time.launch_us is of no GPU: 1e\\+30 is not",
        ),
        (r"gb_per_s = \{ value = 1555", "gb_per_s = { value = 1e-30", "memory.gb_per_s is of no GPU: 1e-30 is not"),
        (
            r"board_w = \{ value = 23.0",
            "board_w = { value = 1e9",
            "core.board_w of 1e\\+09 W leaves nothing of the power",
        ),
        (
            r"per_w = \{ value = 0.1",
            "per_w = { value = 5",
            "thermal.resistance_k_per_w heats the GPU to 370 °C without",
        ),
        (r'source = "A100 data sheet, 40 GiB"', 'source = ""', "board.memory_bytes does not name its source"),
    ],
)
def test_impossible_values_name_file_and_key(tmp_path: Path, pattern: str, replacement: str, complaint: str) -> None:
    text, changes = re.subn(pattern, replacement, (FOLDER / "a100.toml").read_text(), count=1)
    assert changes == 1
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=complaint) as error:
        read_all(file)
    assert "mine.toml" in error.value.message
    assert "\n" not in error.value.message


def test_memory_clocks_come_highest_first(tmp_path: Path) -> None:
    text = (FOLDER / "a40.toml").read_text().replace("mem_mhz = 405", "mem_mhz = 8000")
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InputError, match="not in the order of their memory clocks"):
        read_model(tmp_path / "mine.toml")


def test_the_reference_page_names_every_gpu_and_every_value() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "catalogue.md").read_text(encoding="utf-8")
    for name in catalog_names():
        assert f"| `{name}` |" in page
        assert f"| {name} | {load_sheet(name).trust.text} |" in page
        for value in sources(name):
            assert f"`{value.key.rpartition('.')[2]}" in page or value.key == "clocks", value.key


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        ("rtx4090", "4090"),
        ("RTX 4090", "4090"),
        ("GeForce_RTX-4090", "4090"),
        ("NVIDIA GeForce RTX 4090 (simulated)", "4090"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("nvidia_a100_sxm4_80gb", "a100-80gb"),
        ("sim:a100", "a100"),
        ("rtxA4000", "a4000"),
        ("RTX 2000 Ada", "rtx2000ada"),
        ("rtx2000ada", "rtx2000ada"),
        ("QuadroRTX6000", "rtx6000"),
        ("teslaT4", "t4"),
        (" AMD Instinct MI300X ", "mi300x"),
    ],
)
def test_a_gpu_is_known_by_what_people_type(typed, key):
    assert load_model(typed).key == key


def test_every_gpu_says_how_far_it_can_be_trusted() -> None:
    for name in catalog_names():
        trust = trust_of(True, load_model(name).spec().label)
        assert trust is not None
        assert trust.gpu == load_model(name).name
        assert trust.level in (TrustLevel.JUDGED, TrustLevel.FITTED, TrustLevel.NOT_JUDGED)
        assert (trust.basis is None) is (trust.level is TrustLevel.NOT_JUDGED)
        assert trust.words.startswith("simulated; ")
        assert "None" not in trust.words
        assert ("not judged on any measurement" in trust.words) == (
            "Not judged on any measurement" in (trust.text or "")
        )


def test_trust_is_that_of_the_gpu_that_was_judged_least() -> None:
    assert trust_of(False, "NVIDIA A100-SXM4-40GB") is None
    levels = [trust_of(True, *gpus) for gpus in (("a100", "a40"), ("a100", "4090", "a40"), ("a100", "mine"), ())]
    assert [trust and trust.level.value for trust in levels] == ["fitted", "not judged", "unknown", "unknown"]


def test_a_file_of_ones_own_has_not_the_trust_of_the_gpu_that_it_was_copied_from(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "a100.toml", tmp_path / "mine.toml")
    model = load_model(str(tmp_path / "mine.toml"))
    assert model.name == "NVIDIA A100-SXM4-40GB (mine)"
    trust = trust_of(True, model.spec().label)
    assert trust is not None
    assert trust.level is TrustLevel.UNKNOWN
