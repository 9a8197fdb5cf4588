"""A small network of dense layers, trained by Adam on the squared error; numpy alone.

Inputs are standardised by what the first training saw, which is all that batch normalisation of the inputs does once
training is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_RATE, _FIRST_DECAY, _SECOND_DECAY, _TINY = 1e-3, 0.9, 0.999, 1e-7
"""Adam as Kingma and Ba 2015 have it."""


@dataclass(frozen=True, slots=True, eq=False)
class Perceptron:
    """Weights and biases of each layer; rectified in between, linear at the end, one output."""

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    centre: Floats
    scale: Floats

    def __call__(self, inputs: Floats) -> Floats:
        """(rows,): the outputs."""
        return np.asarray(self._forward(inputs)[-1][:, 0])

    def trained(self, inputs: Floats, targets: Floats, *, epochs: int, batch: int, seed: int = 0) -> Perceptron:
        """The network after so many passes over the rows."""
        weights, biases = [one.copy() for one in self.weights], [one.copy() for one in self.biases]
        network = replace(self, weights=tuple(weights), biases=tuple(biases))
        moments = [(np.zeros_like(one), np.zeros_like(one)) for one in (*weights, *biases)]
        random = np.random.default_rng(seed)
        for count, rows in enumerate(_batches(len(inputs), epochs, batch, random), start=1):
            gradients = network._gradients(inputs[rows], targets[rows])
            for value, gradient, (first, second) in zip((*weights, *biases), gradients, moments, strict=True):
                first += (1 - _FIRST_DECAY) * (gradient - first)
                second += (1 - _SECOND_DECAY) * (gradient * gradient - second)
                step = first / (1 - _FIRST_DECAY**count)
                value -= _RATE * step / (np.sqrt(second / (1 - _SECOND_DECAY**count)) + _TINY)
        return network

    def _forward(self, inputs: Floats) -> list[Floats]:
        layers = [(inputs - self.centre) / self.scale]
        last = len(self.weights) - 1
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            out = layers[-1] @ weight + bias
            layers.append(out if place == last else np.maximum(out, 0.0))
        return layers

    def _gradients(self, inputs: Floats, targets: Floats) -> list[Floats]:
        """Of all weights, then of all biases."""
        layers = self._forward(inputs)
        slope = 2.0 * (layers[-1] - targets[:, np.newaxis]) / len(targets)
        weights: list[Floats] = []
        biases: list[Floats] = []
        for place in range(len(self.weights) - 1, -1, -1):
            weights.insert(0, layers[place].T @ slope)
            biases.insert(0, slope.sum(axis=0))
            if place:
                slope = (slope @ self.weights[place].T) * (layers[place] > 0)
        return [*weights, *biases]


def fresh(inputs: Floats, *, hidden: tuple[int, ...], seed: int = 0) -> Perceptron:
    """A network for such inputs that has not learned anything yet: weights after Glorot and Bengio 2010."""
    random = np.random.default_rng(seed)
    sizes = (inputs.shape[1], *hidden, 1)
    pairs = list(pairwise(sizes))
    weights = tuple(random.uniform(-1, 1, pair) * np.sqrt(6.0 / sum(pair)) for pair in pairs)
    biases = tuple(np.zeros(size) for size in sizes[1:])
    scale = inputs.std(axis=0)
    return Perceptron(weights, biases, inputs.mean(axis=0), np.where(scale > 0, scale, 1.0))


def _batches(rows: int, epochs: int, batch: int, random: np.random.Generator) -> Iterator[NDArray[np.intp]]:
    for _ in range(epochs):
        order = random.permutation(rows)
        for start in range(0, rows, batch):
            yield order[start : start + batch]
