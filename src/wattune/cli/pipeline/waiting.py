"""The power of a GPU that waits for another in `wattune pipeline plan`: as given, as measured, or by the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wattune.core.errors import DeviceNotFound, InputError

if TYPE_CHECKING:
    from wattune.physics.gpu_model import GpuModel
    from wattune.plans.stage_profile import StageProfile


def waiting_power(given_w: float | None, *, gpu: str | None, profile: StageProfile) -> tuple[float, str]:
    """Return the power of a GPU that waits, and where it comes from."""
    from wattune.physics.catalog import load_model

    if given_w is not None:
        return given_w, "as given"
    if profile.waiting_w is not None:
        return profile.waiting_w, f"as measured, by {profile.file}"
    name = gpu or profile.gpu
    if name is None:
        raise InputError(
            f"the power of a GPU that waits is not known: {profile.file} names no GPU",
            hint="give it with --blocking-power, or name a GPU of the catalogue with --gpu",
        )
    try:
        return by_catalogue(load_model(name))
    except DeviceNotFound as error:
        hint = f"give the power of a GPU that waits with --blocking-power; {error.hint}"
        raise DeviceNotFound(error.message, hint=hint) from None


def by_catalogue(gpu: GpuModel) -> tuple[float, str]:
    """Return the power of a GPU that holds a context and runs nothing, as the catalogue has it."""
    from wattune.levels.overlap.searched_model import idle_w

    return idle_w(gpu), f"idle with a context at {gpu.max_mhz} MHz, simulated"
