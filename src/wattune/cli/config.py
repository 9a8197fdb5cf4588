"""`wattune config`: each setting and where it came from."""

from __future__ import annotations

import click

from wattune.cli.output import console, json_option, print_json
from wattune.config import load_config


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
                        "value": value.value,
                        "origin": value.origin,
                        "variable": value.option.variable,
                        "meaning": value.option.meaning,
                    }
                    for value in values
                ]
            }
        )
        return
    from rich.table import Table

    table = Table("setting", "value", "from", "variable", "meaning", box=None, pad_edge=False)
    for value in values:
        option = value.option
        table.add_row(option.name, value.value or "not set", value.origin, option.variable, option.meaning)
    console().print(table)
