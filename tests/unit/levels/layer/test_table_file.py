"""Tables of measured layers: read, written, and refused with what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from wattune.core.errors import InputError
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.levels.layer.table_file import LayerCell, LayerTable, cost_table, parse_table, read_table, table_text

CELLS = [
    LayerCell(layer, setting, 0.001 * (number + 1), 0.1 * (number + 1))
    for number, layer in enumerate(("forward/b", "forward/a"))
    for setting in (Setting(900, 5001), DRIVER_DEFAULT, Setting(1410))
]


def test_a_table_comes_back_as_it_was_written(tmp_path):
    file = tmp_path / "layers.csv"
    file.write_text(table_text(CELLS))
    table = read_table(file)
    assert table.names == ("forward/b", "forward/a")
    assert table.settings == (DRIVER_DEFAULT, Setting(1410), Setting(900, 5001))
    assert table.missing == ()
    costs = cost_table(file, gpu="RTX A4000", waiting_w=20.0)
    assert (costs.workload, costs.gpu, costs.simulated) == ("layers", "RTX A4000", False)
    assert costs.names == table.names
    assert np.array_equal(costs.time_s, [[0.001] * 3, [0.002] * 3])


def test_missing_cells_are_named_and_counted():
    cells = [cell for number, cell in enumerate(CELLS) if number in (0, 4)]
    table = LayerTable.of(cells, names=("forward/b", "forward/a", "forward/c"))
    assert len(table.missing) == 4
    assert np.isnan(table.time_s).sum() == 4
    with pytest.raises(
        InputError, match=r"4 of 6 measurements are missing: forward/b at driver default; .* and 1 more"
    ):
        table.costs(workload="x", gpu="y", simulated=False, waiting_w=1.0)


def test_a_table_without_memory_clocks_is_read():
    table = parse_table("layer,sm_mhz,time_s,energy_j\na,900,0.1,2\n", file="t.csv")
    assert table.settings == (Setting(900),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layer,sm_mhz,time_s\na,900,1\n", "no column energy_j"),
        ("layer,sm_mhz,mem_mhz,time_s,energy_j\na,900,,0.1,0\n", "line 2, column energy_j"),
        ("layer,sm_mhz,mem_mhz,time_s,energy_j\n,900,,0.1,1\n", "line 2, column layer: is empty"),
        ("layer,sm_mhz,mem_mhz,time_s,energy_j\na,900,,0.1,1\na,900,,0.2,1\n", "line 3, .* is in line 2 already"),
        ("", "is empty"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(text, message):
    with pytest.raises(InputError, match=message):
        parse_table(text, file="t.csv")
