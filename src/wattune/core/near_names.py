"""The known names that somebody may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Mapping


def meant(name: str, known: Mapping[str, str]) -> str:
    """Return a question that names up to three known names near `name`, or an empty text.

    Names that contain it come first. `known` has a plain spelling of each; the question has its value.
    """
    within = [spelling for spelling in known if name and name in spelling]
    near = (*within, *difflib.get_close_matches(name, known, n=3, cutoff=0.8))
    found = list(dict.fromkeys(known[spelling] for spelling in near))[:3]
    return f"did you mean {' or '.join(found)}? " if found else ""
