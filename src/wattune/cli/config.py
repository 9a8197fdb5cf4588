"""`wattune config`: show each setting and its origin."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from wattune.cli.output import json_option, print_json, print_line
from wattune.config import Value, load_config
from wattune.store.url import redacted


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Show each setting of wattune and its origin.

    A setting comes from its environment variable, else from config.toml in the platform's configuration folder (or the
    file that WATTUNE_CONFIG names), else from its default.
    """
    values = load_config().values
    if as_json:
        print_json({"settings": [_document(value) for value in values]})
        return
    width = max(len(value.option.name) for value in values) + 2
    for value in values:
        # No table: a path that is cut or wrapped cannot be copied.
        print_line(f"{value.option.name:{width}}{_shown(value) or 'not set'}")
        print_line(f"{'':{width}}{value.option.meaning}", style="dim")
        origin = f"from {value.origin}"
        if value.origin == "default":
            origin = f"default; set it with {value.option.variable}"
        print_line(f"{'':{width}}{origin}", style="dim")


def _document(value: Value) -> dict[str, Any]:
    shown = {"name": value.option.name, "value": _shown(value), "origin": value.origin}
    return shown | asdict(value.option)


def _shown(value: Value) -> str | None:
    return redacted(value.value) if value.value and value.option.name == "store" else value.value
