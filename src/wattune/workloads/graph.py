"""Graph neural networks in the shapes of Dwivedi et al. 2020 ("Benchmarking Graph Neural Networks").

GCN, GraphSAGE, GIN, GAT, MoNet, GatedGCN, and the network without a graph that they are compared with, at about 100,000
parameters. Sizes of graphs (means), features, classes and batch sizes are those of the same benchmark.

A layer works on nodes (dense products) and on edges (values gathered from nodes, combined, and summed at nodes). The
graphs are small: kernels are many and short, and most time goes into launching them and into preparing the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from wattune.workloads.operation import NetworkOp, dense, elementwise


@dataclass(frozen=True, slots=True)
class GraphData:
    """A data set of graphs: the mean size of one sample, and the task."""

    name: str
    nodes: float
    edges: float
    """Each direction counted."""
    features: int
    """Per node; the number of kinds of nodes where `from_table`."""
    classes: int
    batch_size: int
    from_table: bool = False
    """True where a node's feature is a row of a table."""


GRAPHS = {
    data.name: data
    for data in (
        GraphData("csl", 41.0, 164.0, 1, 10, 5, from_table=True),
        GraphData("zinc", 23.16, 49.83, 28, 1, 128, from_table=True),
        GraphData("aqsol", 17.57, 35.76, 65, 1, 128, from_table=True),
        GraphData("mnist", 70.6, 564.5, 3, 10, 128),
        GraphData("cifar10", 117.6, 941.2, 5, 10, 128),
        GraphData("pattern", 118.9, 6098.9, 3, 2, 64, from_table=True),
        GraphData("cluster", 117.2, 4303.9, 7, 6, 64, from_table=True),
        GraphData("tsp", 275.4, 6885.0, 2, 2, 64),
        GraphData("collab", 235_868, 2_358_104, 128, 1, 1),
    )
}


def graph_network(kind: str, data: GraphData, *, layers: int = 4, width: int | None = None) -> tuple[NetworkOp, ...]:
    """Make the operations of a network for one graph; `width` replaces the published hidden width."""
    hidden = width or _WIDTHS[kind]
    operations = _embedding(kind, data, hidden)
    for layer in range(layers):
        operations += _LAYERS[kind](f"layer{layer + 1}", data, hidden)
    return (*operations, *_readout(kind, data, hidden, layers))


def graph_kinds() -> tuple[str, ...]:
    """Return the kinds of networks."""
    return tuple(_LAYERS)


def _embedding(kind: str, data: GraphData, width: int) -> list[NetworkOp]:
    if data.from_table:
        rows, table = data.nodes, data.features * width
        nodes = NetworkOp(name="embedding", reads=rows, writes=rows * width, parameters=table)
    else:
        nodes = dense("embedding", data.features, width, rows=data.nodes)
    if kind != "gatedgcn":
        return [nodes]
    return [nodes, dense("embedding/edges", 1, width, rows=data.edges)]


def _readout(kind: str, data: GraphData, width: int, layers: int) -> list[NetworkOp]:
    """Make the mean over nodes and three dense layers that halve; GIN has one dense layer per layer."""
    mean = NetworkOp(name="readout/mean", flops=data.nodes * width, reads=data.nodes * width, writes=width)
    if kind == "gin":
        heads = [dense(f"readout/layer{layer}", width, data.classes) for layer in range(layers + 1)]
        return [mean, *heads]
    widths = (width, width // 2, width // 4, data.classes)
    return [mean, *(dense(f"readout/dense{index + 1}", *pair) for index, pair in enumerate(pairwise(widths)))]


def _mlp(name: str, data: GraphData, width: int) -> list[NetworkOp]:
    return [dense(f"{name}/dense", width, width, rows=data.nodes), elementwise(f"{name}/relu", data.nodes * width)]


def _gcn(name: str, data: GraphData, width: int) -> list[NetworkOp]:
    return [
        _gather(f"{name}/gather", data, width),
        dense(f"{name}/dense", width, width, rows=data.nodes),
        *_finish(name, data.nodes, width),
    ]


def _sage(name: str, data: GraphData, width: int) -> list[NetworkOp]:
    """Make the largest of the neighbours' projections, beside the node's own."""
    return [
        dense(f"{name}/pool", width, width, rows=data.nodes),
        elementwise(f"{name}/pool-relu", data.nodes * width),
        _gather(f"{name}/gather", data, width),
        dense(f"{name}/dense", 2 * width, width, rows=data.nodes),
        elementwise(f"{name}/length", data.nodes * width, launches=3),
        *_finish(name, data.nodes, width),
    ]


def _gin(name: str, data: GraphData, width: int) -> list[NetworkOp]:
    """Make a dense network of two layers on the sum of the neighbours; one weight for the node itself."""
    nodes = data.nodes * width
    return [
        _gather(f"{name}/gather", data, width),
        elementwise(f"{name}/self", nodes, parameters=1),
        dense(f"{name}/dense1", width, width, rows=data.nodes),
        _norm(f"{name}/dense1-norm", data.nodes, width),
        elementwise(f"{name}/relu1", nodes),
        dense(f"{name}/dense2", width, width, rows=data.nodes),
        *_finish(name, data.nodes, width),
    ]


def _gat(name: str, data: GraphData, width: int) -> list[NetworkOp]:
    """Make attention over edges: scores from both ends, a softmax at each node, and a weighted sum, per head."""
    edges = data.edges * _HEADS
    return [
        dense(f"{name}/dense", width, width, rows=data.nodes, parameters=width * width, launches=_HEADS),
        _edges(f"{name}/scores", data.edges * 2 * width, edges, flops=2.0, parameters=2 * width, launches=3 * _HEADS),
        _edges(f"{name}/softmax", 2 * edges, edges, flops=4.0, launches=4 * _HEADS),
        _edges(f"{name}/weigh", data.edges * width + edges, data.nodes * width, flops=2.0, launches=2 * _HEADS),
        *_finish(name, data.nodes, width, launches=_HEADS),
    ]


def _monet(name: str, data: GraphData, width: int) -> list[NetworkOp]:
    """Make three projections of each neighbour, weighed by Gaussian kernels over pseudo-coordinates of edges."""
    wide = _KERNELS * width
    coordinates = _PSEUDO * _PSEUDO + _PSEUDO + 2 * _KERNELS * _PSEUDO
    weights = data.edges * _KERNELS
    return [
        dense(f"{name}/dense", width, wide, rows=data.nodes, parameters=width * wide),
        _edges(f"{name}/gauss", data.edges * _PSEUDO, weights, flops=8.0, parameters=coordinates, launches=8),
        _edges(f"{name}/weigh", data.edges * wide + weights, data.nodes * wide, flops=2.0, launches=2),
        elementwise(f"{name}/sum", data.nodes * wide, parameters=width),
        *_finish(name, data.nodes, width),
    ]


def _gated(name: str, data: GraphData, width: int) -> list[NetworkOp]:
    """Make four projections of nodes and one of edges; each edge has a gate, which is a value of its own."""
    edges, nodes = data.edges * width, data.nodes * width
    projections = [dense(f"{name}/dense{index + 1}", width, width, rows=data.nodes) for index in range(4)]
    return [
        *projections,
        dense(f"{name}/edge-dense", width, width, rows=data.edges),
        _edges(f"{name}/gate", 3 * edges, edges, flops=2.0, launches=2),
        _edges(f"{name}/sigmoid", edges, edges, flops=4.0),
        _edges(f"{name}/weigh", 2 * edges, nodes, flops=2.0, launches=2),
        _edges(f"{name}/total", edges, nodes, flops=1.0),
        elementwise(f"{name}/divide", nodes, launches=3),
        *_finish(name, data.nodes, width),
        *_finish(f"{name}/edges", data.edges, width),
    ]


def _finish(name: str, rows: float, width: int, *, launches: float = 1) -> list[NetworkOp]:
    """Make batch norm, activation and the residual sum."""
    return [
        _norm(f"{name}/norm", rows, width, launches=launches),
        elementwise(f"{name}/relu", rows * width, launches=launches),
        elementwise(f"{name}/add", rows * width),
    ]


def _gather(name: str, data: GraphData, width: int) -> NetworkOp:
    """Read the neighbours' values along edges and combine them at nodes."""
    return _edges(name, data.edges * width, data.nodes * width, flops=1.0, launches=2)


def _edges(
    name: str, reads: float, writes: float, *, flops: float, parameters: int = 0, launches: float = 1
) -> NetworkOp:
    return NetworkOp(
        name=name, flops=flops * reads, reads=reads, writes=writes, parameters=parameters, launches=launches
    )


def _norm(name: str, rows: float, width: int, *, launches: float = 1) -> NetworkOp:
    elements, parameters = rows * width, 2 * width
    return elementwise(
        name, elements, flops=8.0, inputs=2, parameters=parameters, backward_passes=5 / 3, launches=launches
    )


_HEADS, _KERNELS, _PSEUDO = 8, 3, 2
# Hidden widths of the benchmark's settings for ZINC at about 100,000 parameters.
_WIDTHS = {"mlp": 150, "gcn": 145, "graphsage": 90, "gin": 110, "gat": 144, "monet": 90, "gatedgcn": 70}
_LAYERS: dict[str, Callable[[str, GraphData, int], list[NetworkOp]]] = {
    "mlp": _mlp,
    "gcn": _gcn,
    "graphsage": _sage,
    "gin": _gin,
    "gat": _gat,
    "monet": _monet,
    "gatedgcn": _gated,
}
