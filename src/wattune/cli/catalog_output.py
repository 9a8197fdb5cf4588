"""The catalogue of simulated GPUs on the screen and as JSON: every value with its mark and its source."""

from __future__ import annotations

from collections import Counter
from typing import Any

from wattune.cli.output import console, print_json
from wattune.physics.catalog import catalog_names, load_model, sources
from wattune.physics.catalog.sheet import MARKS


def show_catalog(name: str, *, as_json: bool) -> None:
    """Print the values of one GPU, or of an empty name what there is of all."""
    keys = (load_model(name).key,) if name else catalog_names()
    if as_json:
        print_json({"simulated": True, "catalogue": [_document(key) for key in keys]})
    elif name:
        _show_values(keys[0])
    else:
        _show_all(keys)


def _document(key: str) -> dict[str, Any]:
    model = load_model(key)
    return {
        "device": f"sim:{key}",
        "name": model.spec().label,
        "architecture": model.architecture,
        "values": list(sources(key)),
    }


def _show_all(keys: tuple[str, ...]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for head in ("device", "name", *MARKS):
        table.add_column(head, justify="right" if head in MARKS else "left", overflow="fold")
    for key in keys:
        marks = Counter(value.mark for value in sources(key))
        label = load_model(key).spec().label.removeprefix("NVIDIA ")
        table.add_row(f"sim:{key}", label, *(str(marks[mark]) for mark in MARKS))
    console().print(table)
    console().print("How many values of each simulated GPU are measured, published and estimated.")
    console().print("wattune devices --catalog NAME shows them with their sources.")


def _show_values(key: str) -> None:
    from rich.table import Table

    console().print(f"sim:{key}, {load_model(key).spec().label}")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for head in ("what", "value", "mark", "source"):
        table.add_column(head, no_wrap=head in ("what", "mark"), overflow="fold")
    for value in sources(key):
        table.add_row(value.key, _text(value.value), value.mark, value.source)
    console().print(table)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
