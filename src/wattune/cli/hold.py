"""`wattune hold`: hold a known setting while a command runs, or until Ctrl-C, and measure what is spent."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.output import json_option, print_json, remark
from wattune.cli.program_options import ProgramOptions, steps_and_program_options
from wattune.config import Config, load_config

if TYPE_CHECKING:
    from wattune.cli.measured_program import MeasuredCommand
    from wattune.core.reading import Reading, Trace
    from wattune.core.setting import Setting
    from wattune.sweeps.result import ComparedCost, SweptDefault

INTERVAL_S = 0.02
MOSTLY = 0.05
"""Share of the readings in which a clock may differ from what was set: the driver takes a moment for a change."""


@click.command()
@click.option("--device", "devices", multiple=True, help="GPU to set: auto, nvml, nvml:0, sim:a100 … (repeatable).")
@click.option("--workload", default="resnet50", show_default=True, help="The workload that simulated GPUs play.")
@click.option("--name", help="Name of the run in the history; by default the command line.")
@click.option("--no-store", is_flag=True, help="Do not store this run in the history, and compare with no sweep there.")
@steps_and_program_options
@json_option
@click.argument("setting")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
def command(
    setting: str,
    devices: tuple[str, ...],
    workload: str,
    name: str | None,
    no_store: bool,
    starting: ProgramOptions,
    as_json: bool,
    command_line: tuple[str, ...],
) -> int:
    """Hold a setting while a command runs, or until Ctrl-C, and print what was spent.

    SETTING is a core clock (1200MHz), a power limit (250W), or several with commas between them:
    1200MHz,mem=810MHz,250W. What it does not name is left to the driver. `wattune sweep` finds one.

    The command keeps its input, output and exit code; the figures are those of `wattune measure`. What the setting
    saved is known only where an earlier `wattune sweep` of the same command measured the driver's default. However it
    ends, the GPUs get back the settings they had. The command does not wait for a slow driver: the setting holds from
    when its GPUs are open, and what it did before is not measured.
    """
    from wattune.cli.counted_program import CountedCommand
    from wattune.cli.measure import document, keep, show
    from wattune.cli.measured_program import CommandMeter, measure_program, measure_until_signal
    from wattune.core.codec import to_json
    from wattune.core.setting import parse_setting
    from wattune.workloads.catalog import make_workload

    wanted, load, config = parse_setting(setting), make_workload(workload), load_config()
    tariff = config.tariff
    if command_line:
        starting.check(command_line)
    measuring = CommandMeter(
        devices=devices,
        workload=load,
        interval_s=INTERVAL_S,
        setting=wanted,
        say=str if as_json else remark,
        until="the command ends" if command_line else "Ctrl-C",
    )
    if command_line:
        outcome = measure_program(CountedCommand.of(command_line, starting, to_stderr=as_json), measuring)
    else:
        outcome = measure_until_signal(measuring)
    unheld = [line for trace in outcome.traces if (line := unheld_line(wanted, trace)) is not None]
    against = _compared(None if no_store else config, command_line, outcome)
    try:
        if as_json:
            held = {"setting": to_json(wanted), "unheld": unheld, "against_default": against.document}
            print_json({**document(command_line, outcome, tariff), **held})
        else:
            show(outcome, tariff)
            if command_line and outcome.unmeasured is None:
                remark(against.words)
            for line in unheld:
                remark(f"warning: {line}")
    finally:
        if not no_store:
            called = name or shlex.join(command_line) or f"hold {wanted.argument}"
            details = {"setting": wanted.argument, "unheld": unheld}
            keep(config, "hold", called, outcome, details=details)
    return outcome.exit_code


@dataclass(frozen=True, slots=True)
class _Against:
    """What a held setting changed against the driver's default, or why that is unknown."""

    unknown: str | None = None
    default: SweptDefault | None = None
    compared: ComparedCost | None = None
    simulated: bool = False

    @property
    def document(self) -> dict[str, Any]:
        from wattune.core.codec import to_json

        if self.default is None or self.compared is None:
            return {"unknown": self.unknown}
        sweep = {"sweep": self.default.run_id, "sweep_started_at": self.default.started_at.isoformat()}
        return {"unknown": None, "per": self.default.per, **to_json(self.compared), **sweep}

    @property
    def words(self) -> str:
        from wattune.render.quantity import changes

        default, found = self.default, self.compared
        if default is None or found is None:
            return f"against the driver default: unknown, since {self.unknown}"
        differ = changes(
            found.time_percent,
            found.energy_percent,
            time_error=found.time_error_percent,
            energy_error=found.energy_error_percent,
        )
        start_up = "" if default.per == "step" else ", start-up included"
        mark = " (simulated)" if self.simulated else ""
        return (
            f"against the driver default, as the sweep of {default.started_at:%Y-%m-%d %H:%M} UTC measured it, per "
            f"{default.per}{start_up}: {differ}{mark}"
        )


def _compared(config: Config | None, command_line: Sequence[str], outcome: MeasuredCommand) -> _Against:
    """Compare what a command took with an earlier sweep of it; a history that cannot be read is only named."""
    from socket import gethostname

    from wattune.cli.counted_program import command_name
    from wattune.core.errors import StoreError
    from wattune.store.worker import StoreWorker
    from wattune.sweeps.result import ComparedCost, load_default

    if not command_line:
        return _Against("no command was run")
    if outcome.unmeasured is not None:
        return _Against(outcome.unmeasured)
    if outcome.from_s and outcome.steps is None:
        return _Against("its GPU was not open when the command started, and no steps of it were counted")
    if outcome.excluded is not None:
        return _Against(outcome.excluded)
    if len(outcome.gpus) > 1:
        return _Against("a sweep measures one GPU, and this run had several")
    if config is None:
        return _Against("with --no-store no sweep in the history is used")
    command, uuid, steps = command_name(command_line), outcome.gpus[0].spec.uuid, outcome.steps
    counted_by = None if steps is None else steps.source
    try:
        default = StoreWorker(config.store_url).call(
            lambda store: load_default(store, command, uuid=uuid, host=gethostname(), counted_by=counted_by)
        )
    except StoreError as error:
        return _Against(f"the history cannot be read: {error.message}")
    if steps is None and outcome.exit_code != 0:
        return _Against("the command failed and no steps of it were counted")
    if default is None:
        return _Against("it was not measured in the same way on this GPU: `wattune sweep -- COMMAND` does that")
    cost = outcome.total if steps is None else steps.per_step
    return _Against(None, default, ComparedCost.of(cost, default.cost), outcome.simulated)


def unheld_line(setting: Setting, trace: Trace) -> str | None:
    """Return how the readings of a working GPU differ from what was set, in words; None where they agree."""
    readings = [reading for reading in trace.readings if not _idle(reading)]
    lines = [
        _clock_line("core clock", setting.sm_mhz, [(one.sm_mhz, one) for one in readings]),
        _clock_line("memory clock", setting.mem_mhz, [(one.mem_mhz, one) for one in readings]),
        _limit_line(setting.power_limit_w, [one.power_limit_w for one in trace.readings]),
    ]
    found = "; ".join(filter(None, lines))
    return f"{trace.gpu}: {found}" if found else None


def _idle(reading: Reading) -> bool:
    from wattune.core.reading import Throttle

    return reading.sm_util == 0 or (reading.throttle is not None and Throttle.IDLE in reading.throttle)


def _clock_line(name: str, asked_mhz: int | None, read: Sequence[tuple[int | None, Reading]]) -> str | None:
    from wattune.control.window_totals import CLOCK_SLACK
    from wattune.core.reading import Throttle

    known = [(mhz, reading) for mhz, reading in read if mhz is not None]
    if asked_mhz is None or not known:
        return None
    off = [(mhz, reading) for mhz, reading in known if abs(mhz - asked_mhz) > CLOCK_SLACK * asked_mhz]
    if len(off) <= MOSTLY * len(known):
        return None
    reasons = Throttle.NONE
    for _, reading in off:
        reasons |= reading.throttle or Throttle.NONE
    words = " and ".join(_REASONS[reason.name] for reason in reasons if reason.name in _REASONS)
    why = f", limited by {words}" if words else ""
    mean_mhz = fmean(mhz for mhz, _ in off)
    return (
        f"the {name} was not {asked_mhz} MHz in {100 * len(off) / len(known):.0f} % of the readings, "
        f"but {mean_mhz:.0f} MHz on average{why}"
    )


_REASONS = {
    "POWER_CAP": "the power limit",
    "THERMAL": "the temperature",
    "HARDWARE": "the hardware's own protection",
    "OTHER": "another reason of the driver",
}


def _limit_line(asked_w: float | None, read: Sequence[float | None]) -> str | None:
    from wattune.control.window_totals import LIMIT_SLACK_W

    known = [watts for watts in read if watts is not None]
    off = [watts for watts in known if asked_w is not None and abs(watts - asked_w) > LIMIT_SLACK_W]
    if not off or len(off) <= MOSTLY * len(known):
        return None
    return f"the power limit was not {asked_w:g} W but {fmean(off):g} W"
