"""Writing files that are whole or not there at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from wattune.core.errors import InputError


def check_writable(path: Path | None) -> None:
    """Nothing, where a file can be written there; better to know before measuring than after."""
    if path is not None and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise InputError(f"cannot write {path}: no folder to write to", hint=f"make it first: mkdir -p {path.parent}")


def write_text(file: Path, text: str) -> None:
    """Nothing; the file holds the text. On failure what was there before still is."""
    partial = None
    try:
        handle, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(partial, 0o644)
        os.replace(partial, file)
    except OSError as error:
        if partial is not None:
            Path(partial).unlink(missing_ok=True)
        raise InputError(
            f"cannot write {file}: {error.strerror}", hint="choose a folder that exists, is writable and has room"
        ) from None
