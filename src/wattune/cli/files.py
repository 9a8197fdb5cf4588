"""Writing files that are whole or not there at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from wattune.core.errors import InputError


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
