"""The parallel layout of a model: how GPUs share it, whether they can do so evenly, and what one of them does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from wattune.core.errors import InputError
from wattune.core.near_names import meant
from wattune.workloads.operation import NetworkOp, dense, elementwise
from wattune.workloads.transformer import TRANSFORMERS, TransformerPart, TransformerShape, transformer


@dataclass(frozen=True, slots=True)
class Experts:
    """Experts that replace the feed-forward part of every layer, each as large as that part."""

    count: int
    chosen: int
    """Experts that process each token."""
    parallel: int = 1
    """GPUs that the experts are spread over."""

    def __post_init__(self) -> None:
        if not 1 <= self.chosen <= self.count:
            raise InputError(f"a token cannot have {self.chosen} of {self.count} experts", hint="choose 1 or more")
        _divides(self.parallel, self.count, "GPUs cannot share {} experts evenly")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelLayout:
    """How many GPUs share heads and widths (tp), sequences (cp), layers (pp) and samples (dp)."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1
    sequence_parallel: bool = False
    """True where tensor-parallel GPUs share the tokens of norms and sums too."""
    experts: Experts | None = None

    def __post_init__(self) -> None:
        for name in ("tp", "cp", "pp", "dp"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", hint="every degree is 1 or more")
        if self.sequence_parallel and self.tp == 1:
            raise InputError("sequence parallelism needs tensor parallelism", hint="raise tp, or leave it out")
        if self.experts is None:
            return
        if self.tp > 1 and not self.sequence_parallel:
            raise InputError("experts beside tensor parallelism need sequence parallelism", hint="use both, or tp 1")
        _divides(self.experts.parallel, self.tp * self.cp * self.dp, "GPUs with experts are no part of {} GPUs")

    @property
    def devices(self) -> int:
        return self.tp * self.cp * self.pp * self.dp

    def check_devices(self, gpus: int) -> None:
        """Refuse a number of GPUs that is no multiple of those of one replica."""
        replica = self.tp * self.cp * self.pp
        if gpus % replica or gpus // replica != self.dp:
            raise InputError(
                f"tp {self.tp}, cp {self.cp}, pp {self.pp} and dp {self.dp} are {self.devices} GPUs, not {gpus}",
                hint=f"use a multiple of {replica} GPUs, and dp to match"
                if gpus % replica
                else f"dp {gpus // replica}",
            )

    def check_model(self, shape: TransformerShape, *, sequence: int) -> None:
        """Refuse a model that these GPUs cannot share evenly."""
        _divides(self.tp, shape.heads, "tensor-parallel GPUs cannot share {} heads evenly")
        _divides(self.tp, shape.inner, "tensor-parallel GPUs cannot share an inner width of {} evenly")
        if self.tp % shape.key_heads:
            _divides(self.tp, shape.key_heads, "tensor-parallel GPUs cannot share {} key heads evenly")
        if self.cp > 1:
            # Causal attention is balanced by giving each GPU one early and one late piece of the sequence.
            _divides(2 * self.cp, sequence, "pieces of context-parallel GPUs cannot share {} tokens evenly")
        if self.sequence_parallel:
            _divides(self.tp, sequence // self.cp, "tensor-parallel GPUs cannot share {} tokens evenly")
        if self.pp > shape.layers:
            raise InputError(f"{shape.layers} layers do not fill {self.pp} stages", hint=f"pp {shape.layers} or less")

    def __str__(self) -> str:
        parts = [f"{name.upper()}{getattr(self, name)}" for name in ("cp", "tp", "pp", "dp") if getattr(self, name) > 1]
        return " ".join(parts) or "one GPU"


SIZES = ("layers", "width", "heads", "key_heads", "head_width", "inner", "vocabulary")
"""What a name may change of a known transformer, as in `llama3.2-3b:layers=32,width=4096,heads=32`."""


def shape_named(name: str) -> TransformerShape:
    """Find a transformer, or one with other sizes; hyphens, blanks and capitals of its name are ignored."""
    known, _, changes = shape_name(name).partition(":")
    pairs = (part.partition("=") for part in changes.split(",") if part)
    sizes: dict[str, Any] = {key: int(value) for key, _, value in pairs}
    shape = TRANSFORMERS[known]
    if "head_width" not in sizes and sizes.keys() & {"width", "heads"}:
        width, heads = sizes.get("width", shape.width), sizes.get("heads", shape.heads)
        _divides(heads, width, "heads cannot share a width of {} evenly")
        sizes["head_width"] = width // heads
    return replace(shape, **sizes)


def shape_name(name: str) -> str:
    """Return the name of a transformer as it is known, with the sizes that differ in a fixed order."""
    base, colon, changes = name.partition(":")
    known = {_key(known): known for known in TRANSFORMERS}
    if _key(base) not in known:
        raise InputError(
            f"there is no transformer {base!r}",
            hint=f"{meant(_key(base), known)}there are {', '.join(TRANSFORMERS)}; for another, write what differs from "
            "the nearest: llama3.2-3b:layers=32,width=4096,heads=32",
        )
    sizes = dict(_size(part, name) for part in changes.split(",")) if colon else {}
    listed = ",".join(f"{size}={sizes[size]}" for size in SIZES if size in sizes)
    return known[_key(base)] + (f":{listed}" if listed else "")


def _size(text: str, name: str) -> tuple[str, int]:
    size, _, value = text.strip().replace("-", "_").partition("=")
    if size not in SIZES or not value.isdecimal() or not 0 < int(value) < 10**9:
        raise InputError(
            f"{text!r} in {name!r} is no size of a transformer",
            hint=f"write llama3.2-3b:layers=32,width=4096 with any of {', '.join(SIZES)}",
        )
    return size, int(value)


def layers_of(shape: TransformerShape, given: tuple[int, ...] | None, *, stages: int) -> tuple[int, ...]:
    """Return the layers of every stage: those given, or the split whose busiest stage has the least arithmetic."""
    if given is None:
        return _balanced(shape, stages)
    if len(given) != stages or sum(given) != shape.layers or min(given) < 1:
        raise InputError(
            f"{','.join(map(str, given))} is no split of {shape.layers} layers over {stages} stages",
            hint=f"for example {','.join(map(str, _balanced(shape, stages)))}",
        )
    return given


def _balanced(shape: TransformerShape, stages: int) -> tuple[int, ...]:
    """Give the last stage fewer layers because of its head, and of the others the first ones the remainder."""
    operations = transformer(replace(shape, layers=1), TransformerPart())
    head, layer = _flops(operations, "head/"), _flops(operations, "layer1/")

    def split(last: int) -> tuple[int, ...]:
        each, left = divmod(shape.layers - last, stages - 1)
        return (*(each + (stage < left) for stage in range(stages - 1)), last)

    if stages == 1:
        return (shape.layers,)
    # The head runs forward and backward; a layer also runs forward a second time, to recompute its activations.
    most = shape.layers // stages
    options = [split(last) for last in range(most, 0, -1)]
    return min(options, key=lambda layers: max(layers[0] * 4 * layer, layers[-1] * 4 * layer + 3 * head))


def layer_operations(shape: TransformerShape, layout: ParallelLayout, *, sequence: int) -> dict[str, NetworkOp]:
    """Make the operations of a layer for one sample on one GPU, by name."""
    local = replace(shape, layers=1, sequence=sequence // layout.cp)
    made = transformer(local, TransformerPart(shards=layout.tp))
    operations = {op.name.partition("/")[2]: op for op in made if op.name.startswith("layer1/")}
    operations["attention"] = _with_context(operations["attention"], shape, layout, sequence)
    if layout.sequence_parallel:
        for name in ("add1", "norm1", "add2", "norm2"):
            operations[name] = _scaled(operations[name], 1 / layout.tp)
    return _with_experts(operations, shape, layout, sequence) if layout.experts else operations


def _with_context(attention: NetworkOp, shape: TransformerShape, layout: ParallelLayout, sequence: int) -> NetworkOp:
    """Give the queries of one context-parallel GPU the keys and values of all."""
    key = max(shape.key_width // layout.tp, shape.head_width)
    others = sequence * (1 - 1 / layout.cp)
    return replace(attention, flops=attention.flops * layout.cp, reads=attention.reads + 2 * key * others)


def _with_experts(
    ops: dict[str, NetworkOp], shape: TransformerShape, layout: ParallelLayout, sequence: int
) -> dict[str, NetworkOp]:
    """Replace the feed-forward part by experts that get an equal share of the tokens."""
    experts = layout.experts
    assert experts is not None
    tokens = sequence / layout.cp / layout.tp
    # Tensor-parallel GPUs hold whole experts, so nothing of an expert's width is divided among them.
    inner, held = shape.inner, experts.count // experts.parallel
    wide = 2 * inner if shape.gated else inner
    rows = tokens * experts.chosen
    up, middle = ("up-gate", "silu") if shape.gated else ("up", "gelu")
    return {
        **{name: op for name, op in ops.items() if name not in ("up-gate", "up", "silu", "gelu", "down")},
        "router": dense("router", shape.width, experts.count, rows=tokens),
        up: dense(up, shape.width, wide, rows=rows, parameters=held * shape.width * wide),
        middle: _scaled(ops[middle], rows * inner / ops[middle].writes),
        "down": dense("down", inner, shape.width, rows=rows, parameters=held * shape.width * inner),
        "combine": elementwise("combine", tokens * shape.width, inputs=experts.chosen),
    }


def _scaled(operation: NetworkOp, share: float) -> NetworkOp:
    """Return the operation on this share of its tokens; its weights stay."""
    return replace(
        operation, flops=operation.flops * share, reads=operation.reads * share, writes=operation.writes * share
    )


def _flops(operations: tuple[NetworkOp, ...], prefix: str) -> float:
    return sum(operation.flops for operation in operations if operation.name.startswith(prefix))


def _divides(parts: int, whole: int, complaint: str) -> None:
    if parts < 1 or whole % parts:
        raise InputError(f"{parts} {complaint.format(whole)}", hint="use a number that divides it")


def _key(name: str) -> str:
    return "".join(character for character in name.lower() if character not in "- _")
