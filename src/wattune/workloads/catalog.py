"""Workloads by name: NAME, NAME:BATCH, or NAME@STAGE/STAGES:BATCH for one stage of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from wattune.core.errors import InputError
from wattune.core.near_names import meant
from wattune.core.workload import Pipe, Workload
from wattune.workloads.convolutional import inception3, resnet, shufflenet2, vgg
from wattune.workloads.graph import GRAPHS, graph_kinds, graph_network
from wattune.workloads.operation import (
    ADAM,
    SGD,
    NetworkOp,
    Optimizer,
    gradient_phases,
    inference_phases,
    merged,
    training_phases,
    update_phase,
)
from wattune.workloads.recurrent import deepspeech2, lstm_language_model, ncf
from wattune.workloads.training_run import Loop, Schedule, scheduled
from wattune.workloads.transformer import TRANSFORMERS, WHOLE, TransformerPart, transformer

# Intervals per pass: enough for a power trace to show the network, few enough for some dozens of phases.
_INTERVALS = 6
# Two keep a run of some hundred micro-steps at a few thousand phases.
_RUN_INTERVALS = 2


@dataclass(frozen=True, slots=True)
class Network:
    """A named network and its usual training."""

    name: str
    operations: Callable[[], tuple[NetworkOp, ...]]
    batch_size: int
    """Fits into 12 GB in training, if the network does."""
    optimizer: Optimizer = SGD
    pipe: Pipe = Pipe.TF32
    """Frameworks use TF32 for FP32 networks; a GPU without TF32 uses FP32."""


def _transformer(name: str, batch_size: int, pipe: Pipe = Pipe.TF32) -> Network:
    return Network(name, partial(transformer, TRANSFORMERS[name]), batch_size, ADAM, pipe)


_NETWORKS = (
    Network("resnet18", partial(resnet, "resnet18"), 256),
    Network("resnet50", partial(resnet, "resnet50"), 64),
    Network("resnet101", partial(resnet, "resnet101"), 48),
    Network("resnet152", partial(resnet, "resnet152"), 32),
    Network("vgg16", partial(vgg, "vgg16"), 64),
    Network("vgg19", partial(vgg, "vgg19"), 64),
    Network("inception3", inception3, 64),
    Network("shufflenet2", shufflenet2, 256),
    _transformer("bert-base", 64),
    _transformer("bert-large", 16),
    _transformer("gpt2", 8),
    _transformer("gpt3-175b", 1, Pipe.FP16),
    _transformer("llama3.2-3b", 1, Pipe.FP16),
    _transformer("llama3.3-70b", 1, Pipe.FP16),
    _transformer("qwen3-1.7b", 1, Pipe.FP16),
    Network("deepspeech2", deepspeech2, 20),
    Network("ncf", ncf, 1_048_576, ADAM),
    Network("lstm", lstm_language_model, 20),
    *(
        Network(kind, partial(graph_network, kind, GRAPHS["zinc"]), GRAPHS["zinc"].batch_size, ADAM)
        for kind in graph_kinds()
        if kind != "mlp"
    ),
)
_BY_NAME = {network.name: network for network in _NETWORKS}


def workload_names() -> tuple[str, ...]:
    """Return the names that `make_workload` takes."""
    return tuple(_BY_NAME)


def network_named(name: str) -> Network:
    """Find a network by name; hyphens, blanks and capitals are ignored."""
    return _BY_NAME[_key(name.strip().lower())]


MOST_SAMPLES = 10**9
"""Largest batch size."""


def make_workload(name: str, *, batch_size: int | None = None, pipe: Pipe | None = None, shards: int = 1) -> Workload:
    """Make a training iteration of the named network, in its usual precision unless another is given.

    "resnet50:128" sets the batch size, "gpt3-175b@3/8:1" takes the third of eight pipeline stages, and `shards` is the
    number of tensor-parallel GPUs.
    """
    layers = make_layers(name, batch_size=batch_size, pipe=pipe, shards=shards)
    return replace(layers, phases=merged(layers.phases, _INTERVALS))


def make_layers(name: str, *, batch_size: int | None = None, pipe: Pipe | None = None, shards: int = 1) -> Workload:
    """Make the same iteration with a phase per layer and pass."""
    chosen = _chosen(name, batch_size=batch_size, pipe=pipe, shards=shards)
    phases = training_phases(
        chosen.operations, batch_size=chosen.batch_size, pipe=chosen.pipe, optimizer=chosen.optimizer
    )
    return Workload(
        name=chosen.title,
        phases=phases,
        batch_size=chosen.batch_size,
        parameters=sum(operation.parameters for operation in chosen.operations),
    )


def make_run(name: str, schedule: Schedule, *, batch_size: int | None = None, pipe: Pipe | None = None) -> Loop:
    """Make the loops of training the named network, from one checkpoint to the next."""
    chosen = _chosen(name, batch_size=batch_size, pipe=pipe, shards=1)
    operations, size, pipe = chosen.operations, chosen.batch_size, chosen.pipe
    gradients = merged(gradient_phases(operations, batch_size=size, pipe=pipe), _RUN_INTERVALS)
    forward = merged(inference_phases(operations, batch_size=size, pipe=pipe), _RUN_INTERVALS)
    evaluating = tuple(replace(phase, name=f"evaluation/{phase.name.partition('/')[2]}") for phase in forward)
    update = update_phase(operations, chosen.optimizer)
    return scheduled(chosen.title, schedule, gradients=gradients, update=update, evaluating=evaluating)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A name and its options, resolved."""

    title: str
    operations: tuple[NetworkOp, ...]
    batch_size: int
    pipe: Pipe
    optimizer: Optimizer


def _chosen(name: str, *, batch_size: int | None, pipe: Pipe | None, shards: int) -> _Chosen:
    key, named_size, stage_number, stages = _parsed(name)
    if named_size is not None and batch_size not in (None, named_size):
        raise InputError(f"{name!r} and a batch size of {batch_size} contradict each other", hint="give one of them")
    network = _BY_NAME[key]
    size = next(size for size in (named_size, batch_size, network.batch_size) if size is not None)
    if not 1 <= size <= MOST_SAMPLES:
        raise InputError(
            f"a batch size is a whole number from 1 to {MOST_SAMPLES}, not {size:g}",
            hint=f'write for example "{network.name}:64"',
        )
    part = TransformerPart(stage_number, stages, shards)
    stage = f"@{part.stage}/{part.stages}" if part.stages > 1 else ""
    return _Chosen(
        f"{network.name}{stage}:{size}", _operations(network, part), size, pipe or network.pipe, network.optimizer
    )


def _operations(network: Network, part: TransformerPart) -> tuple[NetworkOp, ...]:
    if part == WHOLE:
        return network.operations()
    if network.name not in TRANSFORMERS:
        raise InputError(
            f"{network.name} is not divided into stages or shards", hint=f"there are {', '.join(TRANSFORMERS)}"
        )
    return transformer(TRANSFORMERS[network.name], part)


def _parsed(name: str) -> tuple[str, int | None, int, int]:
    """Return the network, batch size, stage and stages of a name."""
    front, colon, size = name.strip().lower().partition(":")
    plain, at, stage = front.partition("@")
    if colon and not _is_count(size):
        raise InputError(f"workload {name!r} has no whole batch size", hint=f'write for example "{front}:64"')
    key, batch_size = _key(plain), int(size) if colon else None
    if not at:
        return key, batch_size, 1, 1
    number, slash, stages = stage.partition("/")
    if not (slash and _is_count(number) and _is_count(stages)):
        raise InputError(f"workload {name!r} names no stage", hint=f'write for example "{key}@1/8"')
    return key, batch_size, int(number), int(stages)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_SAMPLES)) and int(text) >= 1


def _key(name: str) -> str:
    """Return the spelling of a name in this file."""
    plain = {_plain(key): key for key in _BY_NAME}
    if _plain(name) in plain:
        return plain[_plain(name)]
    raise InputError(
        f"there is no workload {name!r}", hint=f"{meant(_plain(name), plain)}there are {', '.join(_BY_NAME)}"
    )


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").replace(" ", "")
