"""What the small trainings share: a model, its data, and where they leave what they saw."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

BATCH, FEATURES = 8, 4


class Tiny(torch.nn.Module):
    """A linear model that returns its loss, as models of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.linear = torch.nn.Linear(FEATURES, 1)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.linear(inputs).squeeze(-1)
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}


class Samples(torch.utils.data.Dataset):
    """Seeded samples with labels."""

    def __init__(self, count: int) -> None:
        made = torch.Generator().manual_seed(3)
        self.inputs = torch.randn(count, FEATURES, generator=made)
        self.labels = self.inputs.sum(dim=1)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return {"inputs": self.inputs[place], "labels": self.labels[place]}


def leave(**found: object) -> None:
    """Write what this rank saw to the folder that the first argument names."""
    rank = os.environ.get("RANK", "0")
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
