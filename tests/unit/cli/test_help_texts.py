"""What `--help` prints, for every command and sub-command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from wattune.cli.main import run, wattune


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


WRONG_NUMBERS = ("", "abc", "nan", "1e400", "9" * 400)


def wrong_values(option: click.Option) -> tuple[str, ...]:
    """Return values that an option must refuse by its type alone."""
    if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        return WRONG_NUMBERS
    if isinstance(option.type, click.Path) and not option.type.dir_okay:
        return ("/",)
    return ("no such thing",) if isinstance(option.type, click.Choice) else ()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_value_of_another_type_is_one_line_and_a_hint(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for option in COMMANDS[name].params:
        values = wrong_values(option) if isinstance(option, click.Option) and not option.is_flag else ()
        for value in values:
            assert run([*name.split(), option.opts[0], value]) == 2, (option.name, value[:9])
            captured = capsys.readouterr()
            error, hint = captured.err.splitlines()
            assert error.startswith(f"error: invalid value for '{option.opts[0]}'"), error
            assert (hint, captured.out) == (f"hint: `wattune {name} --help` shows how it is used", "")
