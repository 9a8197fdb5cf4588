"""What a recomputed operation needs to do the same again: random numbers and automatic casts of the forward pass."""

from __future__ import annotations

from typing import Any

try:
    import torch
except ModuleNotFoundError as error:
    raise ImportError("overlapping kernels in PyTorch needs PyTorch: pip install 'wattune[torch]'") from error


class SameAgain:
    """Within it, casts are those of the forward pass, and so are random numbers, if their state is given."""

    def __init__(self, casts: Any, state: Any, device: Any) -> None:
        self._casts, self._state, self._device = casts, state, device
        self._before: Any = None

    def __enter__(self) -> None:
        self._casts.__enter__()
        if self._state is not None:
            self._before = random_state(self._device)
            _set_random_state(self._state, self._device)

    def __exit__(self, *reason: object) -> None:
        if self._state is not None:
            _set_random_state(self._before, self._device)
        self._casts.__exit__(*reason)


def random_state(device: Any) -> Any:
    """Return the state of the random numbers on a device."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def casts_on(device: Any) -> Any:
    """Return a context with the automatic casts that are in force now."""
    kind = device.type
    return torch.autocast(
        kind,
        dtype=torch.get_autocast_dtype(kind),
        enabled=torch.is_autocast_enabled(kind),
        cache_enabled=torch.is_autocast_cache_enabled(),
    )


def _set_random_state(state: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
