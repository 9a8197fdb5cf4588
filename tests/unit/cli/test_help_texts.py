"""What `--help` prints, for every command and sub-command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from wattune.cli.main import wattune


def leaves(command: click.Command = wattune, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            own = command.get_command(context, name)
            assert own is not None
            yield from leaves(own, (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(leaves())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_json_and_every_option_a_help_text(name: str) -> None:
    options = [one for one in COMMANDS[name].params if isinstance(one, click.Option)]
    assert "--json" in {opt for option in options for opt in option.opts}
    assert [option.name for option in options if not option.help or not option.help.endswith((".", "]", "…"))] == []


def test_no_list_of_commands_cuts_a_sentence() -> None:
    grouped = {name: command for name, command in COMMANDS.items() if " " in name}
    for name, command in grouped.items():
        assert not command.get_short_help_str(limit=80 - 20).endswith("..."), name
