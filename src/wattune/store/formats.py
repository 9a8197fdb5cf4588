"""Flat tables as CSV, JSON and Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping

from wattune.core.errors import StoreError
from wattune.store.flat import Cell, FlatTable


def csv_bytes(table: FlatTable) -> bytes:
    """The table as CSV: a header, an empty field for what is unknown, true and false in lower case."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([_field(cell) for cell in row] for row in table.rows)
    return text.getvalue().encode()


def json_bytes(table: FlatTable) -> bytes:
    """The table as one JSON document: `{"columns": [...], "rows": [{...}, ...]}`."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    document = {"columns": list(table.columns), "rows": rows}
    return json.dumps(document, indent=2, allow_nan=False).encode() + b"\n"


def parquet_bytes(table: FlatTable) -> bytes:
    """The table as Parquet; every column has its type even where no row has a value."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise StoreError(
            "Parquet needs the pyarrow package, which is not installed", hint="pip install 'wattune[parquet]'"
        ) from None
    types = {str: pyarrow.string(), float: pyarrow.float64(), int: pyarrow.int64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in table.columns.items()])
    columns = {name: [row[place] for row in table.rows] for place, name in enumerate(table.columns)}
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema), sink)
    return sink.getvalue()


FORMATS: Mapping[str, Callable[[FlatTable], bytes]] = {
    "csv": csv_bytes,
    "json": json_bytes,
    "parquet": parquet_bytes,
}


def _field(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return repr(cell) if isinstance(cell, float) else str(cell)
