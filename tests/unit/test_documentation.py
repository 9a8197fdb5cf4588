"""What the documentation says is so, and what there is has a line in the documentation.

`python tests/unit/test_documentation.py` writes again what follows from the code: the lists of GPUs and workloads, and
what the demo prints.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import fields
from functools import cache
from pathlib import Path

import click
import pytest

from wattune.cli.main import COMMANDS, run
from wattune.cli.main import wattune as program
from wattune.config import OPTIONS
from wattune.core.errors import WattuneError
from wattune.core.trust import Trust
from wattune.physics.catalog import catalog_names, load_model
from wattune.store.records import RunExists
from wattune.workloads.catalog import workload_names

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


@cache
def page(path):
    return (DOCS / path).read_text(encoding="utf-8")


def names_of(paths):
    return [str(path.relative_to(ROOT)) for path in paths]


def in_code(text):
    """Everything that a text puts between backticks, fenced blocks included."""
    return " ".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))


# commands


@cache
def commands():
    """Every command and sub-command, by the words that call it."""
    context = click.Context(program)
    found = {}
    for name in COMMANDS:
        command = program.get_command(context, name)
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {child}": command.commands[child] for child in command.commands}
    return found


def section(name):
    """The section of the reference page about a command, without those of its sub-commands."""
    found = re.search(rf"^## wattune {name}\n(.*?)(?=^## |\Z)", page("reference/commands.md"), re.DOTALL | re.MULTILINE)
    assert found, f"docs/reference/commands.md has no section '## wattune {name}'"
    return found[1]


def test_the_sections_are_the_commands():
    assert re.findall(r"^## wattune (.*)$", page("reference/commands.md"), re.MULTILINE) == list(commands())


@pytest.mark.parametrize("name", [*COMMANDS, "bench meter"])
def test_every_option_of_a_command_has_a_line(name):
    rows = [line for line in section(name).splitlines() if line.startswith("| `--")]
    documented = {re.match(r"\| `(--[a-z-]+)", row)[1] for row in rows}
    there = {
        max(parameter.opts, key=len) for parameter in commands()[name].params if isinstance(parameter, click.Option)
    }
    assert documented == there - {"--json", "--help"}


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_is_in_the_table_of_the_readme(name):
    assert f"`wattune {name}" in (ROOT / "README.md").read_text(encoding="utf-8")


def keys(document):
    """Every field of a JSON document, but for objects that differ from run to run, and `trust`, which has a table."""
    if isinstance(document, dict):
        parts = [part for name, part in document.items() if name not in ("details", "trust")]
        return set(document) | {key for part in parts for key in keys(part)}
    return {key for part in document for key in keys(part)} if isinstance(document, list) else set()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("sweep", ("--device", "sim:a100", "--points", "1")),
        ("devices", ("--device", "sim:a100")),
        ("doctor", ()),
        ("measure", ("--device", "sim:a100", "--", "true")),
        ("hold", ("1200MHz", "--device", "sim:a100", "--", "true")),
        ("monitor", ("--device", "sim:a100")),
        ("history", ()),
        ("history", ("--recover",)),
        ("history", ("--forget", "RUN")),
        ("export", ()),
        ("export", ("--out", "runs.csv")),
        ("restore", ()),
        ("config", ()),
    ],
)
def test_every_field_of_a_json_document_has_a_word(name, arguments, tmp_path, monkeypatch, capfd):
    for variable, place in (("STORE", "h.db"), ("STATE", "state"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    monkeypatch.chdir(tmp_path)
    if name in ("history", "export"):
        assert run(["measure", "--json", "--device", "sim:a100", "--", "true"]) == 0
        capfd.readouterr()
        assert run(["history", "--json"]) == 0
        run_id = json.loads(capfd.readouterr().out)["runs"][0]["id"]
        arguments = tuple(run_id if argument == "RUN" else argument for argument in arguments)
    assert run([name, "--json", *arguments]) == 0
    document = json.loads(capfd.readouterr().out)
    if name == "export" and "columns" in document:
        document["rows"] = []  # its fields are the columns of the store, which has a page
    words = in_code(section(name))
    assert [key for key in sorted(keys(document)) if not re.search(rf"\b{key}\b", words)] == []


def test_every_field_of_trust_has_a_word():
    words = in_code((DOCS / "reference" / "commands.md").read_text(encoding="utf-8").partition("## wattune demo")[0])
    assert [field.name for field in fields(Trust) if not re.search(rf"\b{field.name}\b", words)] == []


DEMO = re.compile(r"```\n(resnet50.*?\n)```", re.DOTALL)


def demo_lines():
    """What the demo prints, without the frontier's points that have no name."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "wattune", "demo", "--out", f"{folder}/report.html"]
        environment = {**os.environ, "COLUMNS": "100", "WATTUNE_CONFIG": f"{folder}/none.toml"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    table = done.stdout.partition("\n\n")[0].splitlines()
    shown = (*table[:3], *(line for line in table[3:] if not line.startswith(" ")))
    return "".join(f"{line.rstrip()}\n" for line in shown)


def test_the_readme_shows_what_the_demo_prints():
    assert DEMO.search((ROOT / "README.md").read_text(encoding="utf-8"))[1] == demo_lines()


# settings, variables, errors, devices, files


def test_every_setting_has_a_row_with_its_variable():
    for option in OPTIONS:
        row = rf"^\| `{option.name}` \| `{option.variable}` \| .+ \| .+ \|$"
        assert re.search(row, page("reference/settings.md"), re.MULTILINE), option.name


def test_every_variable_that_the_code_names_is_documented():
    variables = {"CUDA_VISIBLE_DEVICES"}
    for file in (ROOT / "src").rglob("*.py"):
        variables |= set(re.findall(r"\bWATTUNE_[A-Z_]+\b", file.read_text(encoding="utf-8")))
    assert [name for name in sorted(variables) if f"`{name}`" not in page("reference/settings.md")] == []


def kinds_of(error):
    return {error} | {kind for child in error.__subclasses__() for kind in kinds_of(child)}


def test_the_table_of_errors_is_the_tree_of_errors():
    assert RunExists in kinds_of(WattuneError)
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| .+ \| .+ \|$", page("reference/errors.md"), re.MULTILINE)
    there = {(kind.__name__, kind.__bases__[0].__name__) for kind in kinds_of(WattuneError)}
    assert set(rows) == {(name, parent) for name, parent in there if not name.startswith("_")}
    assert len(rows) == len(set(rows))


def catalogue():
    """The lists on the page of devices, made from the catalogues; run this file to write them again."""
    lines = ["## Simulated GPUs", "", "| device | GPU model | power limit |", "|---|---|---|"]
    for name in catalog_names():
        limits = load_model(name).spec(0).power_limits
        limit = f"{limits.min_w:g} to {limits.max_w:g} W" if limits else "the driver's"
        lines.append(f"| `sim:{name}` | {load_model(name).name} | {limit} |")
    lines += ["", "## Workloads", "", *(f"* `{name}`" for name in workload_names()), ""]
    return "\n".join(lines)


def test_the_lists_of_gpus_and_workloads_are_those_of_the_catalogues():
    assert page("reference/devices.md").endswith("\n" + catalogue())


# links


def anchors(text):
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=names_of(PAGES))
def test_every_link_leads_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            there = (path.parent / file).resolve() if file else path
            assert there.exists(), f"{path.name}: {target}"
            assert there.is_relative_to(ROOT)
            if anchor:
                assert anchor in anchors(there.read_text(encoding="utf-8")), f"{path.name}: {target}"


def test_every_page_is_in_the_index():
    linked = set(re.findall(r"\]\(([^)#]+)\)", page("README.md")))
    there = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {"README.md"}
    assert there == linked


# Python

BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}")
    for path in PAGES
    for number, block in enumerate(re.findall(r"```python run\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL))
]


def test_the_readme_has_a_program_that_runs():
    assert any("README.md-0" in str(block.id) for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_marked_as_running_runs(block, tmp_path):
    places = {"WATTUNE_STATE": "state", "WATTUNE_STORE": "h.db", "WATTUNE_CONFIG": "none.toml"}
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("WATTUNE_")},
        **{name: str(tmp_path / place) for name, place in places.items()},
        "PYTHONWARNINGS": "error",
        "PYTHONIOENCODING": "utf-8",
    }
    command = [sys.executable, "-c", block]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_policy_of_the_guide_can_be_imported_without_a_simulation(capsys):
    (block,) = re.findall(r"```python run\n(.*?)```", page("how-to/write-your-own-policy.md"), re.DOTALL)
    found = {"__name__": "own_policy"}
    exec(block, found)
    assert "StepDown" in found
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("path", PAGES, ids=names_of(PAGES))
def test_every_python_block_can_be_parsed(path):
    for block in re.findall(r"```python[^\n]*\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
        ast.parse(block)


if __name__ == "__main__":
    written = page("reference/devices.md").partition("## Simulated GPUs\n")[0] + catalogue()
    (DOCS / "reference/devices.md").write_text(written, encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (ROOT / "README.md").write_text(DEMO.sub(f"```\n{demo_lines()}```", readme), encoding="utf-8")
