"""Opening GPUs for a command: a simulated one in place of a missing driver is a warning, or with a flag an error."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wattune.config import REQUIRE_GPU

if TYPE_CHECKING:
    from wattune.devices.gpu import Gpu

F = TypeVar("F", bound=Callable[..., Any])


def open_gpu(name: str | None = None) -> AbstractContextManager[Gpu]:
    """Open one GPU as `wattune.open_gpu` does."""
    from wattune import api
    from wattune.devices.open import warn_once

    return api.open_gpu(name, on_fallback=warn_once)


def open_gpus(*names: str, wall_clock: bool = False) -> AbstractContextManager[tuple[Gpu, ...]]:
    """Open several GPUs as `wattune.open_gpus` does."""
    from wattune import api
    from wattune.devices.open import warn_once

    return api.open_gpus(*names, wall_clock=wall_clock, on_fallback=warn_once)


def require_gpu_option(function: F) -> F:
    """Add the --require-gpu flag, which sets the variable of that setting, for the program that is run as well."""
    return click.option(
        "--require-gpu",
        is_flag=True,
        expose_value=False,
        callback=_require,
        help="Fail where no GPU is found, instead of using a simulated one.",
    )(function)


def _require(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    del option
    if not wanted or ctx.resilient_parsing:
        return
    before = os.environ.get(REQUIRE_GPU)
    os.environ[REQUIRE_GPU] = "true"

    def undo() -> None:
        if before is None:
            os.environ.pop(REQUIRE_GPU, None)
        else:
            os.environ[REQUIRE_GPU] = before

    ctx.call_on_close(undo)
