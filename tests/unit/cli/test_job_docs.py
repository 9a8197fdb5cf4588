"""Every option and JSON field of the commands of `wattune job` is in their sections of the reference."""

import json
import re
import sys
from pathlib import Path

import click
import pytest

from wattune.cli.job import command
from wattune.cli.job.program import PLACEHOLDERS
from wattune.cli.main import run
from wattune.core.job import Outcome
from wattune.core.objective import FORMS

PAGE = (Path(__file__).parents[3] / "docs/reference/commands.md").read_text(encoding="utf-8")


def section(name):
    return re.search(rf"^## wattune job {name}\n(.*?)(?=^## )", PAGE, re.DOTALL | re.MULTILINE)[1]


@pytest.mark.parametrize("name", list(command.commands))
def test_every_option_has_a_row(name):
    rows = set(re.findall(r"^\| `(--[a-z-]+)", section(name), re.MULTILINE))
    options = {
        max(parameter.opts, key=len)
        for parameter in command.commands[name].params
        if isinstance(parameter, click.Option)
    }
    assert rows == options - {"--json", "--help"}


def test_every_placeholder_objective_and_outcome_has_a_row():
    text = section("run")
    assert [name for name in PLACEHOLDERS if f"| `{{{name}}}` |" not in text] == []
    assert [form for form in FORMS if f"`{form}`" not in text] == []
    assert [outcome for outcome in Outcome if f"`{outcome.value}`" not in text] == [Outcome.RUNNING]


def keys(document):
    if isinstance(document, dict):
        parts = [part for name, part in document.items() if name != "trust"]  # which has a table of its own
        return set(document) | {key for part in parts for key in keys(part)}
    return {key for part in document for key in keys(part)} if isinstance(document, list) else set()


def test_every_field_of_a_document_has_a_word(tmp_path, monkeypatch, capfd):
    for variable, place in (("STORE", "h.db"), ("STATE", "state"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    defined = ("--batch-sizes", "8,16", "--default", "16", "--target", "1", "--metric-pattern", "acc (.*)")
    program = ("--linger", "3600", "--", sys.executable, "-c", "print('acc 1')", "{batch_size}")
    calls = {
        "run": ("nightly", "--device", "sim:a100", *defined, *program),
        "list": (),
        "show": ("nightly",),
        "next": ("nightly", "--device", "sim:a100"),
        "forget": ("nightly", "--yes"),
    }
    words = " ".join(re.findall(r"`[^`\n]+`", PAGE[PAGE.index("## wattune job") : PAGE.index("## wattune physics")]))
    for name, arguments in calls.items():
        assert run(["job", name, "--json", *arguments]) == 0
        document = json.loads(capfd.readouterr().out)
        assert [key for key in sorted(keys(document)) if not re.search(rf"\b{key}\b", words)] == []
