from __future__ import annotations

from pathlib import Path

import pytest

from wattune.core.errors import InputError, NotSupported, SettingRefused
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.workload import Phase, Workload
from wattune.devices.table import TableGpu, parse_sweep

HEAD = "workload,sm_mhz,mem_mhz,power_limit_w,time_s,energy_j\n"


def a_gpu(rows: str, *, noise: float = 0.0, seed: int = 0) -> TableGpu:
    return TableGpu(parse_sweep(HEAD + rows, file="folder/sweep.csv"), noise=noise, seed=seed)


def cost(gpu: TableGpu, workload: str, iterations: float = 1) -> Measurement:
    before = gpu.count()
    gpu.run(workload, iterations=iterations)
    return Measurement.between(before, gpu.count())


def test_a_run_costs_what_its_row_holds() -> None:
    gpu = a_gpu("net,1410,,,0.1,30\nnet,1005,,,0.12,24\nother,1005,,,1,2\n")
    gpu.apply(Setting(sm_mhz=1005))
    spent = cost(gpu, "net", 10)
    assert (spent.time_s, spent.energy_j) == (pytest.approx(1.2), pytest.approx(240.0))
    gpu.apply(Setting(sm_mhz=1410))
    gpu.run(Workload(name="net", phases=(Phase(name="p"),)), iterations=1)
    assert gpu.read().power_w == pytest.approx(300.0)
    assert gpu.read().sm_mhz is None
    assert gpu.setting == Setting(sm_mhz=1410)


def test_the_label_names_the_file_and_simulated() -> None:
    spec = a_gpu("net,1410,,,0.1,30\n").spec
    assert spec.label == "sweep (played from sweep.csv) (simulated)"
    assert spec.uuid == a_gpu("net,1410,,,0.1,30\n").spec.uuid != a_gpu("net,1410,,,0.1,31\n").spec.uuid


def test_its_spec_is_what_was_measured() -> None:
    spec = a_gpu("n,1410,1215,,1,1\nn,900,1215,,1,1\nn,900,810,,1,1\nn,,,150,1,1\nn,1200,,,1,1\n").spec
    assert [(table.mem_mhz, table.sm_mhz) for table in spec.clocks] == [(1215, (900, 1200, 1410)), (810, (900,))]
    assert spec.can_lock_mem
    assert spec.power_limits is not None
    assert (spec.power_limits.min_w, spec.power_limits.max_w) == (150, 150)


def test_a_table_without_memory_clocks_still_has_core_clocks() -> None:
    spec = a_gpu("n,1410,,,1,1\nn,900,,,1,1\n").spec
    assert spec.sm_clocks_mhz == (900, 1410)
    assert spec.mem_clocks_mhz == ()
    assert spec.power_limits is None


def test_a_table_of_limits_has_no_clocks() -> None:
    gpu = a_gpu("n,,,100,1,1\nn,,,200,1,1\n")
    assert gpu.spec.clocks == ()
    with pytest.raises(NotSupported):
        gpu.apply(Setting(sm_mhz=900))


def test_a_table_of_memory_clocks_and_limits_refuses_core_clocks() -> None:
    gpu = a_gpu("n,,810,,1,1\nn,,1215,,1,1\n")
    gpu.apply(Setting(mem_mhz=810))
    with pytest.raises(NotSupported):
        gpu.apply(Setting(sm_mhz=900))


def test_only_measured_combinations_are_accepted() -> None:
    gpu = a_gpu("n,1410,1215,,1,1\nn,900,1215,,1,1\nn,900,810,,2,1\nn,1410,1215,100,1,1\n")
    gpu.apply(Setting(sm_mhz=900, mem_mhz=810))
    with pytest.raises(SettingRefused, match="no row for 900 MHz, limit 100 W") as error:
        gpu.apply(Setting(sm_mhz=900, power_limit_w=100))
    assert error.value.hint is not None
    assert error.value.hint.startswith("nearest in the table: 900 MHz, memory 810 MHz; 900 MHz, memory 1215 MHz")
    assert gpu.setting == Setting(sm_mhz=900, mem_mhz=810)


def test_knobs_left_to_the_driver_mean_the_highest_measured() -> None:
    gpu = a_gpu("n,900,1215,300,1,10\nn,900,810,300,2,20\nn,900,1215,100,3,30\n")
    gpu.apply(Setting(sm_mhz=900))
    assert cost(gpu, "n").energy_j == 10
    gpu.apply(Setting(sm_mhz=900, mem_mhz=810))
    assert cost(gpu, "n").energy_j == 20
    gpu.apply(Setting(sm_mhz=900, power_limit_w=100))
    assert cost(gpu, "n").energy_j == 30


def test_the_driver_default_means_the_highest_clock_unless_measured() -> None:
    assert cost(a_gpu("n,900,,,1,10\nn,1410,,,1,30\n"), "n").energy_j == 30
    assert cost(a_gpu("n,900,,,1,10\nn,1410,,,1,30\nn,,,,1,20\n"), "n").energy_j == 20


def test_repeated_rows_count_with_their_mean() -> None:
    gpu = a_gpu("n,,,,1,10\nn,,,,3,20\n")
    assert cost(gpu, "n") == Measurement(2.0, 15.0)


def test_noise_is_seeded_and_spreads_around_the_row() -> None:
    def energies(seed: int) -> list[float]:
        gpu = a_gpu("n,,,,1,100\n", noise=0.02, seed=seed)
        return [cost(gpu, "n").energy_j for _ in range(400)]

    first = energies(1)
    assert first == energies(1)
    assert first != energies(2)
    assert sum(first) / 400 == pytest.approx(100, abs=0.5)
    assert min(first) < 98 < 102 < max(first)


def test_errors_name_what_the_table_lacks() -> None:
    gpu = a_gpu("resnet50,1410,,,1,10\nvgg16,900,,,1,10\n")
    with pytest.raises(InputError, match="no workload 'resnet5'") as error:
        gpu.run("resnet5")
    assert error.value.hint == "did you mean resnet50? it has resnet50, vgg16"
    gpu.run("resnet50")
    gpu.apply(Setting(sm_mhz=900))
    with pytest.raises(InputError, match="no row for resnet50 at 900 MHz"):
        gpu.run("resnet50")
    with pytest.raises(InputError, match="above 0"):
        gpu.run("vgg16", iterations=0)
    with pytest.raises(InputError, match="noise is a share"):
        a_gpu("n,,,,1,1\n", noise=2.0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "sweep.csv is empty"),
        ("\n\n", "sweep.csv is empty"),
        (HEAD, "sweep.csv has a header and no rows"),
        ("workload,sm_mhz\n", "line 1: there is no column mem_mhz"),
        (HEAD.replace("time_s", "sm_mhz"), "line 1: there is no column time_s"),
        (HEAD.strip() + ",time_s\nn,1,1,1,1,1,1\n", "line 1: column time_s appears twice"),
        (HEAD + "n,1410,,,0.1\n", "line 2, column energy_j: 5 cells for 6 columns"),
        (HEAD + "n,1410,,,0.1,1,2\n", "line 2, column number 7: 7 cells for 6 columns"),
        (HEAD + "n,1410,,,0.1,30\nn,1410,,,nan,30\n", "line 3, column time_s: nan is not a finite number above 0"),
        (HEAD + "n,1410,,,inf,30\n", "line 2, column time_s: inf is not a finite number"),
        (HEAD + "n,1410,,,0.1,-3\n", "line 2, column energy_j: -3 is not a finite number above 0"),
        (HEAD + "n,1410,,,0,3\n", "line 2, column time_s: 0 is not a finite number above 0"),
        (HEAD + "n,1410,,,fast,3\n", "line 2, column time_s: 'fast' is not a number"),
        (HEAD + "n,1410,,,,3\n", "line 2, column time_s: is empty"),
        (HEAD + ",1410,,,1,3\n", "line 2, column workload: is empty"),
        (HEAD + "n,1410.5,,,1,3\n", "line 2, column sm_mhz: 1410.5 is not a whole number"),
        (HEAD + "n,,,-100,1,3\n", "line 2, column power_limit_w: -100 is not a finite number above 0"),
        (HEAD + 'n,1410,,,1,"3\n', "line 2: "),
    ],
)
def test_bad_files_name_file_line_and_column(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "sweep.csv"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        TableGpu.load(file)
    assert complaint in error.value.message
    assert str(file) in error.value.message
    assert "\n" not in error.value.message
    assert error.value.hint


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        TableGpu.load(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        TableGpu.load(tmp_path / "binary.csv")
    with pytest.raises(InputError, match="Is a directory"):
        TableGpu.load(tmp_path)


def test_blank_lines_a_byte_order_mark_and_other_columns_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "sweep.csv"
    file.write_text("\ufeff" + HEAD.strip() + ",note\r\n\r\nn, 1410 ,,,1,3,hello\r\n", encoding="utf-8")
    assert TableGpu.load(file).settings == (Setting(sm_mhz=1410),)
