"""`wattune config`: each setting and where it came from."""

from __future__ import annotations

import re

import click

from wattune.cli.output import console, json_option, print_json
from wattune.config import Value, load_config

_PASSWORD = re.compile(r"(://[^:@/]*:).*@")


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Show each setting of wattune and where it came from.

    A setting is taken from its environment variable, else from config.toml in the platform's configuration folder
    (another file with WATTUNE_CONFIG), else from its default.
    """
    values = load_config().values
    if as_json:
        print_json(
            {
                "settings": [
                    {
                        "name": value.option.name,
                        "value": shown(value),
                        "origin": value.origin,
                        "variable": value.option.variable,
                        "meaning": value.option.meaning,
                    }
                    for value in values
                ]
            }
        )
        return
    out = console()
    for value in values:
        # No table: a path that is cut or wrapped is of no use to whoever wants to copy it.
        out.print(f"{value.option.name:8}{shown(value) or 'not set'}", soft_wrap=True, markup=False)
        out.print(f"{'':8}{value.option.meaning}", style="dim", soft_wrap=True, markup=False)
        out.print(f"{'':8}{_origin(value)}", style="dim", soft_wrap=True, markup=False)


def shown(value: Value) -> str | None:
    """The setting as it may be shown: a URL without its password."""
    if value.value is None or "://" not in value.value:
        return value.value
    return _PASSWORD.sub(r"\1***@", value.value)


def _origin(value: Value) -> str:
    return f"default; set it with {value.option.variable}" if value.origin == "default" else f"from {value.origin}"
