"""Blocks, transports and choices for tests of the overlap executor."""

from __future__ import annotations

import torch

from wattune.integrations.overlap import LlamaBlock, LlamaShape, PlannedLaunch

SHAPE = LlamaShape(width=16, heads=4, kv_heads=4, feedforward=24)
SLOTS = {
    "fwd_attn": {"norm_0": "attn_norm", "linear_0": "qkv", "rope_0": "rope", "attn_0": "attention"},
    "fwd_mlp": {"norm_0": "attn_add", "linear_0": "gate_up", "activation_0": "swiglu", "linear_1": "down"},
    "bwd_mlp": {"norm_0": "mlp_add", "linear_0": "down", "activation_0": "swiglu", "linear_1": "gate_up"},
    "bwd_attn": {"norm_0": "mlp_norm", "linear_0": "projection", "attn_0": "attention", "rope_0": "rope"},
}
"""The first operation of each slot; in later blocks fwd_attn and bwd_mlp begin with the operation of another block."""


def whole_blocks(count, dtype=torch.float64):
    """Return blocks that are the same in every process."""
    torch.manual_seed(3)
    blocks = [LlamaBlock(SHAPE, dtype=dtype) for _ in range(count)]
    for block in blocks:
        with torch.no_grad():
            block.attention_norm.add_(0.1 * torch.randn_like(block.attention_norm))
    return blocks


def sample_input(batch, dtype=torch.float64, tokens=4):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(batch, tokens, SHAPE.width, dtype=torch.float64, generator=generator).to(dtype)


def loss_of(hidden):
    return (hidden.sin() * torch.linspace(0.5, 1.5, hidden.shape[-1], dtype=hidden.dtype)).sum()


def plain(blocks, hidden):
    """Run whole blocks by ordinary autograd: output, loss, and gradients of the input and of all weights."""
    hidden = hidden.detach().clone().requires_grad_()
    output = hidden
    for block in blocks:
        block.zero_grad()
        output = block(output)
    loss = loss_of(output)
    loss.backward()
    return output.detach(), loss.item(), hidden.grad, [weight.grad for block in blocks for weight in block.parameters()]


def all_choices(names, launch, comm_sms=4, sm_mhz=1410):
    """Return the same launch for all partitions that have the slot, and the first slot for others."""
    return {
        name: PlannedLaunch(
            sm_mhz, comm_sms, launch if launch == "none" or launch in SLOTS[name] else next(iter(SLOTS[name]))
        )
        for name in names
    }


class LateTransport:
    """Collectives of a single rank, whose tensors cannot be used before they have been waited for."""

    size = 1

    def __init__(self):
        self.started = []

    def start(self, kind, tensor, *, dim, sms):
        self.started.append((kind, sms))
        return _Late(tensor)


class _Late:
    def __init__(self, tensor):
        self._tensor, self._values = tensor, tensor.clone()
        tensor.fill_(float("nan"))

    def wait(self):
        return self._tensor.copy_(self._values)


def check_order(log, choices):
    """Check that every collective was launched just before its slot, beside operations of another nanobatch."""
    collectives = 0
    for place, launch in enumerate(log):
        if launch.name != "all_reduce" or launch.partition.endswith("trail"):
            continue
        before, after = log[place - 1], log[place + 1] if place + 1 < len(log) else None
        choice = choices[launch.partition]
        collectives += 1
        if choice.launch == "none":
            assert before.partition == launch.partition or before.name == "all_reduce"
            assert after is None or after.name != "all_reduce"
            assert after is None or (after.partition, after.nanobatch) != (before.partition, before.nanobatch)
            continue
        assert after is not None
        assert after.partition == launch.partition
        assert after.nanobatch != launch.nanobatch
        first = SLOTS[launch.partition][choice.launch]
        names = (first, "mlp_add", "attn_norm") if choice.launch == "norm_0" else (first,)
        assert after.name in names
    return collectives
