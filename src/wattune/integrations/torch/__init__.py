"""PyTorch: `trace` computes the work of a model, without a GPU and without its weights."""

from __future__ import annotations

try:
    import torch as _torch
except ModuleNotFoundError as error:
    raise ImportError("tracing needs PyTorch: pip install 'wattune[torch]'") from error

from wattune.integrations.torch.trace import ModuleCost, Traced, trace

__all__ = ["ModuleCost", "Traced", "trace"]
del _torch
