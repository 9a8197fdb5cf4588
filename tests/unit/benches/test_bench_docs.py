"""Every option and row field of the benches is in their sections of the reference."""

import re
from pathlib import Path

import click
import pytest

from wattune.cli.pipeline import command as pipeline
from wattune_bench.command import command as bench

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
BENCHES = ROOT / "benches/wattune_bench"

ROWS = {
    "change": ("change/__init__.py",),
    "job": ("job/figures.py",),
    "kernels": (
        "kernels/configurations.py",
        "kernels/end_to_end.py",
        "kernels/simulated_search.py",
        "kernels/table.py",
    ),
    "layers": (
        "layers/thesis.py",
        "layers/switching.py",
        "layers/transfer.py",
        "layers/hooks.py",
        "layers/kernels.py",
    ),
    "live": ("live/rows.py",),
    "meter": ("meter/__init__.py", "meter/probe.py"),
    "period": ("period/__init__.py",),
    "physics": ("physics/judgement.py", "physics/__init__.py"),
    "pipeline": ("pipeline/bench.py",),
    "predict": ("predict/__init__.py",),
    "reliability": tuple(
        f"reliability/{name}.py" for name in ("signals", "store_outages", "writers", "slow_driver", "inputs")
    ),
    "run": ("run/outcome.py", "run/__init__.py", "run/table.py"),
}
"""The files that make the rows and the summary of each bench."""


def section(name):
    return re.search(rf"^## wattune {name}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)[1]


@pytest.mark.parametrize(
    ("group", "name"),
    [(group, name) for group, commands in (("bench", bench), ("pipeline", pipeline)) for name in commands.commands],
)
def test_every_option_has_a_row(group, name):
    command = {"bench": bench, "pipeline": pipeline}[group].commands[name]
    rows = set(re.findall(r"^\| `(--[a-z-]+)", section(f"{group} {name}"), re.MULTILINE))
    options = {max(parameter.opts, key=len) for parameter in command.params if isinstance(parameter, click.Option)}
    assert rows == options - {"--json", "--help"}


def test_every_bench_is_listed():
    assert set(ROWS) == set(bench.commands)


@pytest.mark.parametrize("name", list(ROWS))
def test_every_field_of_a_row_has_a_word(name):
    text = "".join((BENCHES / file).read_text(encoding="utf-8") for file in ROWS[name])
    fields = set(re.findall(r'^ {8,}"([a-z_0-9]+)": ', text, re.MULTILINE))
    words = " ".join(re.findall(r"`[^`\n]+`", section(f"bench {name}")))
    assert fields
    assert [field for field in sorted(fields) if not re.search(rf"\b{field}\b", words)] == []
