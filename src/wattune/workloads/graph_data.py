"""The graphs that graph networks are trained on, as far as their size matters.

Means over graphs, features and classes are those of the data sets' cards (Dwivedi et al. 2020); batch sizes are the
benchmark's settings.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GraphData:
    """A kind of graph: what one sample holds on average, and what is asked of it."""

    name: str
    nodes: float
    edges: float
    """Each direction counted."""
    features: int
    """Of a node; kinds of node where `looked_up`."""
    classes: int
    batch_size: int
    looked_up: bool = False
    """Whether a node's feature is a row of a table."""


GRAPHS = {
    data.name: data
    for data in (
        GraphData("csl", 41.0, 164.0, 1, 10, 5, looked_up=True),
        GraphData("zinc", 23.16, 49.83, 28, 1, 128, looked_up=True),
        GraphData("aqsol", 17.57, 35.76, 65, 1, 128, looked_up=True),
        GraphData("mnist", 70.6, 564.5, 3, 10, 128),
        GraphData("cifar10", 117.6, 941.2, 5, 10, 128),
        GraphData("pattern", 118.9, 6098.9, 3, 2, 64, looked_up=True),
        GraphData("cluster", 117.2, 4303.9, 7, 6, 64, looked_up=True),
        GraphData("tsp", 275.4, 6885.0, 2, 2, 64),
        GraphData("collab", 235_868, 2_358_104, 128, 1, 1),
    )
}
