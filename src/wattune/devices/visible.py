"""Which GPUs a program may see, by the rules of CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Sequence


def visible_indices(variable: str | None, uuids: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the visible GPUs, in the order in which the program numbers them.

    As in CUDA, unset means all; the list ends at the first entry that names no GPU; an entry is an index or a UUID,
    which may be shortened as long as it is unique. A MIG entry of the old form (`MIG-GPU-<uuid>/i/c`) means the GPU
    that holds the slice.
    """
    if variable is None:
        return tuple(range(len(uuids)))
    chosen: list[int] = []
    for part in variable.split(","):
        index = _index(part.strip(), uuids)
        if index is None or index in chosen:
            break
        chosen.append(index)
    return tuple(chosen)


def _index(entry: str, uuids: Sequence[str]) -> int | None:
    if entry.isdecimal():
        return int(entry) if int(entry) < len(uuids) else None
    if entry.startswith("MIG-GPU-"):
        entry = entry.removeprefix("MIG-").split("/")[0]
    if not entry.startswith("GPU-"):
        return None
    matches = [index for index, uuid in enumerate(uuids) if uuid.lower().startswith(entry.lower())]
    return matches[0] if len(matches) == 1 else None
