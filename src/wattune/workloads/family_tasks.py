"""The tasks of the family: network, usual batch size, precision, and what the host adds.

Host times are estimates. An eager framework spends some ten microseconds of host time on a kernel; the GPU waits for
that only where its kernels are shorter. Waits for data range from nothing (in memory) to tens of milliseconds
(decoding).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from wattune.core.workload import Pipe
from wattune.workloads.convolutional import resnet
from wattune.workloads.graph import graph_kinds, graph_network
from wattune.workloads.graph_data import GRAPHS, GraphData
from wattune.workloads.image_layers import Image
from wattune.workloads.inception import inception3
from wattune.workloads.operation import Operation
from wattune.workloads.optimizer import ADAM, SGD, Optimizer
from wattune.workloads.recommender import ncf
from wattune.workloads.speech import deepspeech2
from wattune.workloads.suite_networks import (
    cyclegan,
    image_caption,
    image_compression,
    object_reconstruction,
    ranking,
    shared_cells,
    spatial_transformer,
    summarization,
    video_prediction,
    wgan_critic,
)
from wattune.workloads.transformer import transformer
from wattune.workloads.transformer_shapes import TRANSLATOR

GENERATION = "aibench/image-generation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A training task."""

    name: str
    operations: Callable[[], tuple[Operation, ...]]
    batch_size: int
    pipe: Pipe = Pipe.TF32
    optimizer: Optimizer = ADAM
    loading_s: float = 0.0
    """Wait for data before a batch of the usual size."""
    dispatch_s: float = 0.0
    """Host time per kernel that the GPU does not hide."""
    micro_steps: tuple[int, ...] = (1,)
    """Of which one is drawn."""
    steps: tuple[int, int] = (20, 60)
    """Fewest and most between evaluations."""


def _task(
    name: str,
    operations: Callable[[], tuple[Operation, ...]],
    batch_size: int,
    *,
    pipe: Pipe = Pipe.TF32,
    optimizer: Optimizer = ADAM,
    loading_ms: float = 0.0,
    dispatch_us: float = 0.0,
    micro_steps: tuple[int, ...] = (1,),
) -> Task:
    return Task(
        name=f"aibench/{name}",
        operations=operations,
        batch_size=batch_size,
        pipe=pipe,
        optimizer=optimizer,
        loading_s=loading_ms / 1000,
        dispatch_s=dispatch_us / 1e6,
        micro_steps=micro_steps,
    )


_DETECTION = partial(resnet, "resnet101", image=Image(3, 600, 800))
_DEPTH_FACES = partial(resnet, "resnet50", image=Image.square(4, 112))

TASKS = (
    _task("image-classification", partial(resnet, "resnet50"), 64, optimizer=SGD, loading_ms=6, micro_steps=(1, 2)),
    _task("image-generation", wgan_critic, 64, pipe=Pipe.FP32, loading_ms=3, dispatch_us=4),
    _task("text-to-text", partial(transformer, TRANSLATOR), 64, pipe=Pipe.FP16, loading_ms=1, micro_steps=(1, 4)),
    _task("image-to-text", image_caption, 32, loading_ms=12),
    _task("image-to-image", cyclegan, 1, pipe=Pipe.FP32, loading_ms=4, dispatch_us=2),
    _task("speech-recognition", deepspeech2, 20, pipe=Pipe.FP16, optimizer=SGD, loading_ms=20, micro_steps=(1, 2)),
    _task("face-embedding", inception3, 32, optimizer=SGD, loading_ms=15),
    _task("3d-face-recognition", _DEPTH_FACES, 64, pipe=Pipe.FP16, loading_ms=25),
    _task("object-detection", _DETECTION, 2, optimizer=SGD, loading_ms=25, dispatch_us=6, micro_steps=(1, 4)),
    _task("recommendation", ncf, 65_536, pipe=Pipe.FP32, loading_ms=1, dispatch_us=5),
    _task("video-prediction", video_prediction, 16, pipe=Pipe.FP32, loading_ms=8),
    _task("image-compression", image_compression, 64, loading_ms=10, dispatch_us=6),
    _task("3d-object-reconstruction", object_reconstruction, 48, pipe=Pipe.FP32, loading_ms=45),
    _task("text-summarization", summarization, 16, pipe=Pipe.FP32, loading_ms=2, dispatch_us=8),
    _task("spatial-transformer", spatial_transformer, 64, pipe=Pipe.FP32, optimizer=SGD, loading_ms=5, dispatch_us=12),
    _task("learning-to-rank", ranking, 4096, pipe=Pipe.FP32, loading_ms=2.5, dispatch_us=10),
    _task("architecture-search", shared_cells, 64, pipe=Pipe.FP32, loading_ms=0.5, dispatch_us=6, micro_steps=(1, 2)),
)

# Putting graphs of a batch together costs the host so much per graph and per edge (Python objects and copies).
_GRAPH_S, _EDGE_S = 40e-6, 8e-9
# Graph kernels shorter than some ten microseconds wait for the host.
_SHORT_EDGES = 60_000
_SHORT_DISPATCH_S, _LONG_DISPATCH_S = 9e-6, 2e-6


def graph_tasks() -> tuple[Task, ...]:
    """Six kinds of network on nine kinds of graph."""
    kinds = [kind for kind in graph_kinds() if kind != "mlp"]
    return tuple(_graph_task(kind, data) for data in GRAPHS.values() for kind in kinds)


def _graph_task(kind: str, data: GraphData) -> Task:
    edges = data.batch_size * data.edges
    whole = data.batch_size == 1  # one large graph, which stays on the GPU
    return Task(
        name=f"gnn/{data.name}-{kind}",
        operations=partial(graph_network, kind, data),
        batch_size=data.batch_size,
        pipe=Pipe.FP32,
        loading_s=0.0 if whole else data.batch_size * _GRAPH_S + edges * _EDGE_S,
        dispatch_s=_SHORT_DISPATCH_S if edges < _SHORT_EDGES else _LONG_DISPATCH_S,
        steps=(60, 160),
    )
