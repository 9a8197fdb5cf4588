"""The workloads that have a name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from wattune.core.errors import InputError
from wattune.core.workload import Phase, Pipe, Workload
from wattune.workloads.convolutional import resnet, vgg
from wattune.workloads.merge import merged
from wattune.workloads.operation import Operation, training_phases
from wattune.workloads.transformer import transformer

# Stretches per pass: fine enough for a power trace to show the network, coarse enough to stay at some dozens of phases.
_STRETCHES = 6


@dataclass(frozen=True, slots=True)
class _Entry:
    operations: Callable[[], tuple[Operation, ...]]
    batch_size: int
    """Fits into 12 GB in training."""


_ENTRIES = {
    "resnet18": _Entry(partial(resnet, "resnet18"), 256),
    "resnet50": _Entry(partial(resnet, "resnet50"), 64),
    "resnet152": _Entry(partial(resnet, "resnet152"), 32),
    "vgg16": _Entry(partial(vgg, "vgg16"), 64),
    "vgg19": _Entry(partial(vgg, "vgg19"), 64),
    "bert-base": _Entry(partial(transformer, "bert-base"), 64),
    "gpt2": _Entry(partial(transformer, "gpt2"), 8),
}


def workload_names() -> tuple[str, ...]:
    """The names that `make_workload` knows."""
    return tuple(_ENTRIES)


def make_workload(name: str, *, batch_size: int | None = None, pipe: Pipe = Pipe.TF32) -> Workload:
    """A training iteration of the named network; "resnet50:128" sets the batch size as well.

    TF32 is what frameworks use for FP32 networks where the part has it; elsewhere the GPU takes FP32.
    """
    written_name, written_size = _split(name)
    key = _key(written_name)
    if written_size is not None and batch_size not in (None, written_size):
        raise InputError(f"{name!r} and a batch size of {batch_size} contradict each other", hint="give one of them")
    sizes = (written_size, batch_size, _ENTRIES[key].batch_size)
    size = next(size for size in sizes if size is not None)
    if size < 1:
        raise InputError(f"a batch size is a whole number above 0, not {size}", hint=f'write for example "{key}:64"')
    operations = _ENTRIES[key].operations()
    return Workload(
        name=f"{key}:{size}",
        phases=_phases(operations, size, pipe),
        batch_size=size,
        parameters=sum(operation.parameters for operation in operations),
    )


def _phases(operations: tuple[Operation, ...], batch_size: int, pipe: Pipe) -> tuple[Phase, ...]:
    return merged(training_phases(operations, batch_size=batch_size, pipe=pipe), _STRETCHES)


def _split(name: str) -> tuple[str, int | None]:
    key, colon, size = name.strip().lower().partition(":")
    if not colon:
        return key, None
    if not size.isdecimal() or int(size) < 1:
        raise InputError(f"workload {name!r} has no whole batch size", hint=f'write for example "{key}:64"')
    return key, int(size)


def _key(name: str) -> str:
    """The name as this file writes it; hyphens and blanks do not matter."""
    plain = {_plain(key): key for key in _ENTRIES}
    if _plain(name) in plain:
        return plain[_plain(name)]
    near = difflib.get_close_matches(_plain(name), plain, n=1)
    suggestion = f"did you mean {plain[near[0]]}? " if near else ""
    raise InputError(f"there is no workload {name!r}", hint=f"{suggestion}there are {', '.join(_ENTRIES)}")


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").replace(" ", "")
