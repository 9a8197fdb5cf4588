"""The model, layout and GPU that `wattune kernels` works on: options, and the partitions that follow from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wattune.core.errors import InputError

if TYPE_CHECKING:
    from wattune.levels.overlap.partitions import PartitionedModel

F = TypeVar("F", bound=Callable[..., Any])
_DEGREE = click.IntRange(1, 100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What the options say about a model, before it is looked up."""

    name: str
    tp: int
    cp: int
    pp: int = 1
    dp: int = 1
    gpus: int | None = None
    """Of the whole job, where they are given."""
    sequence_parallel: bool
    microbatch_size: int
    sequence: int
    nanobatches: int
    recompute: bool = True
    stage_layers: str | None = None

    def partitioned(self, *, nanobatches: int | None = None) -> PartitionedModel:
        """Derive the partitions, with so many nanobatches."""
        from wattune.levels.overlap.layout import ParallelLayout
        from wattune.levels.overlap.partitions import partition_model

        layout = ParallelLayout(
            tp=self.tp, cp=self.cp, pp=self.pp, dp=self.dp, sequence_parallel=self.sequence_parallel
        )
        if self.gpus is not None:
            layout.check_devices(self.gpus)
        return partition_model(
            self.name,
            layout,
            microbatch_size=self.microbatch_size,
            sequence=self.sequence,
            nanobatches=self.nanobatches if nanobatches is None else nanobatches,
            recompute=self.recompute,
            stage_layers=_layers(self.stage_layers),
        )


def model_options(function: F) -> F:
    """Add the options that name a model and the part of its layout that its partitions depend on."""
    options = (
        click.option("--model", "name", required=True, help="A transformer: llama3.2-3b, qwen3-1.7b …"),
        click.option("--tp", type=_DEGREE, required=True, help="GPUs that share heads and widths."),
        click.option("--cp", type=_DEGREE, default=1, show_default=True, help="GPUs that share sequences."),
        click.option("--sequence-parallel", is_flag=True, help="Tensor-parallel GPUs share the tokens of norms too."),
        click.option("--microbatch-size", type=_DEGREE, required=True, help="Samples of a microbatch."),
        click.option("--sequence", type=click.IntRange(1), required=True, help="Tokens of a sample."),
        click.option(
            "--nanobatches", type=click.IntRange(2, 64), default=2, show_default=True, help="Parts of a microbatch."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _layers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--stage-layers {text!r} is no list of layers", hint="write for example 15,13") from None
