"""The examples of the page about overlapping kernels run, on a small model with a simulated GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

import torch
from torch import distributed, nn

from wattune.control.ranks import Alone
from wattune.core.workload import Workload
from wattune.devices.simulated import SimulatedGpu
from wattune.integrations import overlap
from wattune.integrations.overlap import SimulatedPartitions
from wattune.physics.catalog import load_model
from wattune.workloads.catalog import make_workload

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "overlap-kernels.md"
DESCRIBE, EXECUTE, ASKED, MEASURE, _, FOLLOW = re.findall(
    r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
)
WIDTH, HEAD_WIDTH, KV_WIDTH = 16, 4, 8


class TitanLike(nn.Module):
    """Modules with the names of torchtitan."""

    def __init__(self):
        super().__init__()

        def linear(inputs, outputs):
            return nn.Linear(inputs, outputs, bias=False)

        self.attention_norm, self.ffn_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention, self.feed_forward = nn.Module(), nn.Module()
        self.attention.wq, self.attention.wo = linear(WIDTH, WIDTH), linear(WIDTH, WIDTH)
        self.attention.wk, self.attention.wv = linear(WIDTH, KV_WIDTH), linear(WIDTH, KV_WIDTH)
        self.feed_forward.w1, self.feed_forward.w3 = linear(WIDTH, 24), linear(WIDTH, 24)
        self.feed_forward.w2 = linear(24, WIDTH)

    def forward(self, hidden):
        """Compute what the description says, in the usual form."""
        normed = self.attention_norm(hidden)
        parts = [layer(normed) for layer in (self.attention.wq, self.attention.wk, self.attention.wv)]
        heads = [part.unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2) for part in parts]
        found = nn.functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        hidden = hidden + self.attention.wo(found.transpose(1, 2).flatten(2))
        normed, mlp = self.ffn_norm(hidden), self.feed_forward
        return hidden + mlp.w2(nn.functional.silu(mlp.w1(normed)) * mlp.w3(normed))


def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    gpu = SimulatedGpu(load_model("a100"))
    work = Workload(name="partition", phases=make_workload("resnet50").phases[:1])
    simulated = type("", (), {"__new__": lambda _, *what: SimulatedPartitions(repeated(*what), gpu, lambda *_: work)})
    repeated = overlap.RepeatedPartitions
    monkeypatch.setattr(overlap, "RepeatedPartitions", simulated)
    torch.manual_seed(1)
    blocks, hidden = [TitanLike(), TitanLike()], torch.randn(4, 5, WIDTH)
    names = {"blocks": blocks, "hidden": hidden, "head_width": HEAD_WIDTH, "tensor_parallel_group": None}
    names |= {"gpu": gpu, "ranks": Alone(), "clocks": (1410,)}
    try:
        exec(DESCRIBE + EXECUTE, names)
        wanted = blocks[1](blocks[0](hidden))
        torch.testing.assert_close(names["output"], wanted)
        plain = torch.autograd.grad(wanted.sum(), [weight for block in blocks for weight in block.parameters()])
        names["output"].sum().backward()
        found = [weight.grad for block in blocks for weight in block.parameters()]
        torch.testing.assert_close(found, list(plain), rtol=1e-4, atol=1e-5)
        exec(ASKED + MEASURE + FOLLOW, names)
    finally:
        distributed.destroy_process_group()
    assert len((tmp_path / "trials.jsonl").read_text().splitlines()) == 1 + 4 * 4
