"""Make a GPU model from a catalogue file."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from wattune.core.gpu_spec import ClockTable, PowerLimits, Sensors, Switching
from wattune.core.workload import Pipe
from wattune.physics.catalog.sheet import Sheet
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import (
    ArithmeticUnit,
    ClockChange,
    CorePhysics,
    LinkPhysics,
    MemoryPhysics,
    SwitchingPhysics,
    Thermal,
)

_SPAN = ("lowest", "highest", "count")

_HOTTEST_C = 150.0
"""No GPU works at this temperature, whatever its file says."""

# A lognormal wait whose 99th percentile is five times its median; typical of measurements on several GPUs.
_WAIT_SPREAD = 0.69


def parse_model(sheet: Sheet) -> GpuModel:
    """Make the model that a file describes; errors name the file and the key."""
    clocks = _clocks(sheet)
    _check_rest(sheet)
    return GpuModel(
        key=sheet.text("key"),
        name=sheet.text("name"),
        architecture=sheet.text("architecture"),
        clocks=clocks,
        power_limits=_power_limits(sheet),
        default_limit_w=sheet.number("board.power_limit_default_w"),
        can_lock_mem=sheet.flag("board.can_lock_mem"),
        sensors=Sensors(
            sheet.number_or("sensors.counter_period_s", None),
            sheet.number("sensors.power_period_s"),
            sheet.number("sensors.power_window_s"),
        ),
        switching=Switching(sheet.number_or("switching.sm_s", None), sheet.number_or("switching.mem_s", None)),
        idle_w=sheet.number("board.idle_w"),
        memory_bytes=sheet.whole("board.memory_bytes"),
        sms=sheet.whole("board.sms"),
        cores=sheet.whole("board.cores"),
        thermal=_thermal(sheet),
        noise_w=sheet.number("sensors.noise_w", least=0.0),
        gain=sheet.number("sensors.gain"),
        units=_units(sheet),
        memory=_memory(sheet),
        core=_core(sheet, clocks[0].sm_mhz[-1]),
        launch_s=sheet.number("time.launch_us") * 1e-6,
        smoothness=sheet.number("time.smoothness", least=1.0),
        offset_w=sheet.number_or("sensors.offset_w", 0.0, least=-100.0, most=100.0),
        has_counter=sheet.has("sensors.counter_period_s"),
        change=_change(sheet),
        link=_link(sheet),
    )


def _check_rest(sheet: Sheet) -> None:
    """Raise where a GPU without work draws more than its power limit, or is too hot to be simulated."""
    limit_w = sheet.number("board.power_limit_default_w")
    drawn = {key: sheet.number(key) for key in ("board.idle_w", "core.board_w", "core.leak_w", "memory.idle_w")}
    highest = max(drawn, key=lambda key: drawn[key])
    rest_w = max(drawn["board.idle_w"], sum(drawn.values()) - drawn["board.idle_w"])
    if rest_w > limit_w:
        raise sheet.wrong(highest, f"of {drawn[highest]:g} W leaves nothing of the power limit of {limit_w:g} W")
    thermal = _thermal(sheet)
    rest_c = thermal.ambient_c + thermal.resistance_k_per_w * rest_w
    if rest_c > min(thermal.slowdown_c, _HOTTEST_C):
        raise sheet.wrong("thermal.resistance_k_per_w", f"heats the GPU to {rest_c:.0f} °C without any work")


def _clocks(sheet: Sheet) -> tuple[ClockTable, ...]:
    entries = sheet.tables("clocks")
    mem_mhz = [_count(sheet, f"clocks[{index}].mem_mhz", entry.get("mem_mhz")) for index, entry in enumerate(entries)]
    if mem_mhz != sorted(set(mem_mhz), reverse=True):
        raise sheet.wrong("clocks", "are not in the order of their memory clocks, highest first")
    return tuple(_clock_table(sheet, index, entry) for index, entry in enumerate(entries))


def _clock_table(sheet: Sheet, index: int, entry: Mapping[str, Any]) -> ClockTable:
    key = f"clocks[{index}]"
    sheet.marked(key, entry, None)
    span = entry.get("sm_mhz")
    if not isinstance(span, dict):
        raise sheet.wrong(key, "needs sm_mhz = { lowest, highest, count }")
    lowest, highest, count = (_count(sheet, f"{key}.sm_mhz.{part}", span.get(part)) for part in _SPAN)
    if count < 2 or highest - lowest < count - 1:
        raise sheet.wrong(f"{key}.sm_mhz", f"cannot hold {count} clocks from {lowest} to {highest}")
    # GPUs with a step of half a MHz, such as the V100's 7.5, list whole numbers rounded down.
    return ClockTable(
        entry["mem_mhz"], tuple(lowest + (highest - lowest) * step // (count - 1) for step in range(count))
    )


def _count(sheet: Sheet, key: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise sheet.wrong(key, f"is a whole number above 0, not {value!r}")
    return value


def _power_limits(sheet: Sheet) -> PowerLimits | None:
    """Return the limits that can be set; the file of a GPU whose limit is fixed gives only the default."""
    if not sheet.has("board.power_limit_min_w") and not sheet.has("board.power_limit_max_w"):
        return None
    min_w, default_w, max_w = (sheet.number(f"board.power_limit_{part}_w") for part in ("min", "default", "max"))
    if not min_w <= default_w <= max_w:
        raise sheet.wrong("board.power_limit_default_w", f"lies outside of {min_w:g} to {max_w:g} W")
    return PowerLimits(min_w, default_w, max_w)


def _thermal(sheet: Sheet) -> Thermal:
    return Thermal(
        sheet.number("thermal.ambient_c", above=-100, most=100),
        sheet.number("thermal.resistance_k_per_w"),
        sheet.number("thermal.tau_s"),
        sheet.number_or("thermal.slowdown_c", inf),
    )


def _units(sheet: Sheet) -> tuple[ArithmeticUnit, ...]:
    pipes = [pipe for pipe in Pipe if pipe is Pipe.FP32 or sheet.has(f"unit.{pipe.value}")]
    return tuple(
        ArithmeticUnit(
            pipe,
            peak_flops=sheet.number(f"unit.{pipe.value}.tflops") * 1e12,
            reference_mhz=sheet.number(f"unit.{pipe.value}.reference_mhz"),
            efficiency=sheet.number(f"unit.{pipe.value}.efficiency", most=1.0),
            w_per_ghz=sheet.number(f"unit.{pipe.value}.w_per_ghz"),
        )
        for pipe in pipes
    )


def _memory(sheet: Sheet) -> MemoryPhysics:
    return MemoryPhysics(
        bandwidth_bytes_per_s=sheet.number("memory.gb_per_s") * 1e9,
        efficiency=sheet.number("memory.efficiency", most=1.0),
        knee_mhz=sheet.number("memory.knee_mhz"),
        knee_exponent=sheet.number("memory.knee_exponent", most=2.0),
        idle_w=sheet.number("memory.idle_w"),
        j_per_byte=sheet.number("memory.pj_per_byte") * 1e-12,
        l2_j_per_byte=sheet.number_or("memory.l2_pj_per_byte", 0.0, least=0.0) * 1e-12,
    )


def _core(sheet: Sheet, max_mhz: int) -> CorePhysics:
    knee_mhz = sheet.number("core.voltage_knee_mhz")
    if knee_mhz >= max_mhz:
        raise sheet.wrong(
            "core.voltage_knee_mhz", f"lies below the highest clock of {max_mhz} MHz, not at {knee_mhz:g}"
        )
    return CorePhysics(
        voltage_knee_mhz=knee_mhz,
        voltage_ratio=sheet.number("core.voltage_ratio", least=1.0),
        board_w=sheet.number("core.board_w"),
        leak_w=sheet.number("core.leak_w"),
        idle_clock_w_per_ghz=sheet.number("core.idle_clock_w_per_ghz"),
        busy_clock_w_per_ghz=sheet.number("core.busy_clock_w_per_ghz"),
        leak_per_k=sheet.number_or("core.leak_per_k", 0.0, least=0.0, most=0.05),
        leak_at_c=sheet.number_or("core.leak_at_c", 60.0),
        voltage_bend=sheet.number_or("core.voltage_bend", 1.0, least=1.0, most=3.0),
    )


def _change(sheet: Sheet) -> SwitchingPhysics:
    spread = sheet.number_or("switching.spread", _WAIT_SPREAD, least=0.0, most=3.0)
    sm_stall_s, mem_stall_s = (sheet.number_or(f"switching.{knob}_stall_s", 0.0, least=0.0) for knob in ("sm", "mem"))
    return SwitchingPhysics(ClockChange(sm_stall_s, spread), ClockChange(mem_stall_s, spread))


def _link(sheet: Sheet) -> LinkPhysics | None:
    if not sheet.has("link"):
        return None
    return LinkPhysics(
        sheet.text("link.kind"),
        bytes_per_s=sheet.number("link.gb_per_s") * 1e9,
        sm_bytes_per_s=sheet.number("link.sm_gb_per_s") * 1e9,
        j_per_byte=sheet.number("link.pj_per_byte") * 1e-12,
    )
