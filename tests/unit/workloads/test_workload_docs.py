"""The page about workloads agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wattune.core.workload import Workload
from wattune.workloads.catalog import network_named, workload_names
from wattune_bench.family import family

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "workloads.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = {
    cells[0].strip("`"): cells[1:]
    for line in TEXT.splitlines()
    if line.startswith("| `")
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
    if len(cells) == 7
}


def test_the_page_lists_every_name_and_no_other() -> None:
    assert tuple(ROWS) == workload_names()


@pytest.mark.parametrize("name", workload_names())
def test_the_figures_of_the_page_are_those_of_the_code(name: str) -> None:
    _, parameters, gflop, batch, precision, optimizer = ROWS[name]
    network = network_named(name)
    operations = network.operations()
    number, unit = parameters.split()
    counted = sum(operation.parameters for operation in operations)
    assert float(number) * {"M": 1e6, "B": 1e9}[unit] == pytest.approx(counted, rel=1e-3)
    multiplied = sum(
        operation.flops for operation in operations if operation.multiplies or operation.name.endswith("depthwise")
    )
    assert float(gflop) == pytest.approx(multiplied / 1e9, rel=1e-3)
    assert (int(batch), precision, optimizer) == (network.batch_size, network.pipe.value, network.optimizer.name)


def test_the_examples_of_the_page_run() -> None:
    names: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(example, names)
    assert isinstance(names["load"], Workload)
    assert isinstance(names["stage"], Workload)
    assert {"aibench/object-detection", "gnn/zinc-gat"} <= {member.name for member in family()}
