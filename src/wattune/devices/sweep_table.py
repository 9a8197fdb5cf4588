"""A sweep CSV: what an iteration of a workload took and spent at each setting that was measured.

Columns: workload, sm_mhz, mem_mhz, power_limit_w, time_s, energy_j; an empty setting is the driver's default. A setting
that was measured several times counts with its mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean

from wattune.core.csv_input import Row, parse_csv
from wattune.core.errors import InputError
from wattune.core.gpu_spec import ClockTable, PowerLimits
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting

COLUMNS = ("workload", "sm_mhz", "mem_mhz", "power_limit_w", "time_s", "energy_j")


@dataclass(frozen=True, slots=True)
class SweepTable:
    """Costs of one iteration, by workload and setting."""

    file: str
    costs: dict[str, dict[Setting, Measurement]]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every setting that was measured with any workload, lowest first."""
        return tuple(sorted(set(chain.from_iterable(self.costs.values()))))

    @property
    def clocks(self) -> tuple[ClockTable, ...]:
        """The clocks that were measured; rows that leave the memory clock to the driver go with the highest."""
        mem_mhz = sorted({setting.mem_mhz for setting in self.settings if setting.mem_mhz is not None}, reverse=True)
        default = mem_mhz[0] if mem_mhz else None
        rows: dict[int | None, set[int]] = {mhz: set() for mhz in mem_mhz}
        for setting in self.settings:
            if setting.sm_mhz is not None:
                rows.setdefault(setting.mem_mhz or default, set()).add(setting.sm_mhz)
        return tuple(ClockTable(mhz, tuple(sorted(sm_mhz))) for mhz, sm_mhz in rows.items())

    @property
    def power_limits(self) -> PowerLimits | None:
        """The range of limits that were measured, the highest being the default; None where none was set."""
        limits_w = [setting.power_limit_w for setting in self.settings if setting.power_limit_w is not None]
        return PowerLimits(min(limits_w), max(limits_w), max(limits_w)) if limits_w else None

    def measured_as(self, setting: Setting) -> Setting | None:
        """The setting of the table that this one stands for, or None where it was not measured.

        What is left to the driver stands for rows that leave it to the driver too or, where there are none, for the
        highest clock or limit that was measured: settings are ordered so that this is the largest that agrees.
        """
        return max((known for known in self.settings if _agrees(known, setting)), default=None)


def read_sweep(file: Path) -> SweepTable:
    """The table in a file, or an error that names the file, the line and the column."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(
            f"cannot read {file}: {reason}", hint="give a sweep CSV, as `wattune sweep --csv` writes"
        ) from None
    return parse_sweep(text, file=str(file))


def parse_sweep(text: str, *, file: str) -> SweepTable:
    """The table in a text."""
    measured: dict[str, dict[Setting, list[Measurement]]] = {}
    for row in parse_csv(text, file=file, required=COLUMNS):
        settings = measured.setdefault(row.text("workload"), {})
        settings.setdefault(_setting(row), []).append(Measurement(row.positive("time_s"), row.positive("energy_j")))
    costs = {
        workload: {setting: _mean(repeats) for setting, repeats in settings.items()}
        for workload, settings in measured.items()
    }
    return SweepTable(file, costs)


def _agrees(known: Setting, asked: Setting) -> bool:
    pairs = (
        (known.sm_mhz, asked.sm_mhz),
        (known.mem_mhz, asked.mem_mhz),
        (known.power_limit_w, asked.power_limit_w),
    )
    return all(wanted is None or has == wanted for has, wanted in pairs)


def _setting(row: Row) -> Setting:
    return Setting(row.whole_or_none("sm_mhz"), row.whole_or_none("mem_mhz"), row.positive_or_none("power_limit_w"))


def _mean(repeats: list[Measurement]) -> Measurement:
    return Measurement(fmean(cost.time_s for cost in repeats), fmean(cost.energy_j for cost in repeats))
