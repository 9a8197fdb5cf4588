"""The reference page says what is so."""

from pathlib import Path

import click
from make_stubs import implemented_names

from wattune.cli.simulate import command
from wattune.emulator.launch import CODES

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "emulator.md").read_text(encoding="utf-8")


def test_every_option_is_documented():
    options = [name for parameter in command.params if isinstance(parameter, click.Option) for name in parameter.opts]
    assert [name for name in options if name not in PAGE] == []


def test_every_fault_is_documented():
    assert [name for name in CODES if name not in PAGE] == []


def test_the_number_of_functions_is_right():
    assert f"{len(implemented_names())} functions are implemented" in PAGE
