"""Variation between chips of one GPU model.

The knee of the voltage curve lies up to 3 % beside its place, the floor voltage up to 2 % and the leakage up to 15 %
(docs/explanation/physics.md). Each is drawn from a normal distribution whose second standard deviation is that far out,
and cut off there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattune.physics.gpu_model import GpuModel

KNEE = 0.03
FLOOR_VOLTAGE = 0.02
LEAKAGE = 0.15


@dataclass(frozen=True, slots=True)
class Chip:
    """Deviation of a chip from its GPU model, each as a share."""

    knee: float = 0.0
    floor_voltage: float = 0.0
    leakage: float = 0.0

    @classmethod
    def drawn(cls, seed: int) -> Chip:
        """Draw the chip of a seed."""
        draws = np.clip(np.random.default_rng(seed).standard_normal(3) / 2.0, -1.0, 1.0)
        knee, floor_voltage, leakage = draws * (KNEE, FLOOR_VOLTAGE, LEAKAGE)
        return cls(float(knee), float(floor_voltage), float(leakage))

    def of(self, model: GpuModel) -> GpuModel:
        """Return the GPU with this chip: dynamic core power scales with the square of the floor voltage."""
        squared = (1.0 + self.floor_voltage) ** 2
        core = model.core
        return replace(
            model,
            core=replace(
                core,
                voltage_knee_mhz=core.voltage_knee_mhz * (1.0 + self.knee),
                # The highest voltage is the board's and does not change, so its ratio to the floor does.
                voltage_ratio=max(core.voltage_ratio / (1.0 + self.floor_voltage), 1.0),
                leak_w=core.leak_w * squared * (1.0 + self.leakage),
                idle_clock_w_per_ghz=core.idle_clock_w_per_ghz * squared,
                busy_clock_w_per_ghz=core.busy_clock_w_per_ghz * squared,
            ),
            units=tuple(replace(unit, w_per_ghz=unit.w_per_ghz * squared) for unit in model.units),
            memory=replace(model.memory, l2_j_per_byte=model.memory.l2_j_per_byte * squared),
        )


def chip_of(model: GpuModel, seed: int) -> GpuModel:
    """Return this GPU model with the chip that belongs to a seed."""
    return Chip.drawn(seed).of(model)
