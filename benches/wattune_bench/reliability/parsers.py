"""Every parser of input from outside, with valid examples to mutate.

Each takes a text, and does with what it read as the commands do first. A parser may refuse a text with an error of
wattune, or with what its documentation names; anything else is a traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wattune.config import load_config
from wattune.control.record_file import appended_records
from wattune.control.reports.file import LineBuffer, LineForm
from wattune.control.reports.report import (
    AnyReport,
    MetricPattern,
    PhasePattern,
    Report,
    SlowPattern,
    StepCount,
    StepPattern,
    StepReport,
)
from wattune.core.csv_input import SWEEP_COLUMNS
from wattune.core.errors import InputError
from wattune.core.measurement import Measurement
from wattune.core.objective import parse_objective, parse_seconds, parse_share
from wattune.core.setting import Setting
from wattune.devices.entry import Entry, parse, text_of
from wattune.devices.table import TableGpu, parse_sweep
from wattune.emulator.launch import Fault
from wattune.levels.layer.cell_file import CellFileHeader, read_cells
from wattune.levels.layer.costs import simulated_costs
from wattune.levels.layer.plan_file import LayerPlans, layer_plan_text, parse_layer_plans
from wattune.levels.layer.planner import SEGMENTS, plan_layers
from wattune.levels.layer.switching import SwitchCost, charged
from wattune.levels.layer.table_file import LayerCell, parse_table, table_text
from wattune.levels.overlap.space import PartitionChoice, parse_choice
from wattune.levels.overlap.trial_file import PartitionTrial, TrialHeader, read_header, read_trials
from wattune.levels.pipeline.plan_file import parse_plan, plan_text
from wattune.levels.pipeline.planned import PlannedPipeline, Source, choose, plan_profile
from wattune.levels.pipeline.schedule_exchange import export_files, import_files
from wattune.physics.catalog import load_model, load_sheet, read_model
from wattune.physics.fit.model_fit import parse_points
from wattune.plans.stage_profile import StageProfile, parse_stage_profile
from wattune.signals.trace_text import busiest, parse_traces
from wattune.workloads.catalog import make_workload

BLOCKING_W = 60.0
GPU = "a4000"


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser, its valid examples, and the further errors that its documentation names."""

    name: str
    examples: tuple[str, ...]
    parse: Callable[[str], object]
    refuses: tuple[type[Exception], ...] = ()


def all_parsers(folder: Path) -> tuple[Parser, ...]:
    """Return every parser; those of files write each text into the folder."""
    return (*_tables(), *_plans(), *_files(folder), *_options(), *_reports())


def _tables() -> tuple[Parser, ...]:
    model = load_model(GPU)
    rows = [f"resnet50,{mhz},,,{1 + 400 / mhz!r},{100 + mhz / 9!r}" for mhz in (600, 800, 1000, 1200, 1400, 1560)]
    sweep = "\n".join((",".join(SWEEP_COLUMNS), "resnet50,,,,1.2,280.5", *rows)) + "\n"
    trace = "time_s,power_w,sm_util,mem_util,sm_mhz\n" + "".join(
        f"{0.1 * place:.6f},{200 + 50 * (place % 5 < 3)},0.9,0.4,1410\n" for place in range(24)
    )
    log = "timestamp, index, power.draw [W], utilization.gpu [%]\n" + "".join(
        f"2025/03/01 12:00:{place // 2:02d}.{500 * (place % 2):03d}, {place % 2}, {60 + place}.25 W, {place} %\n"
        for place in range(20)
    )
    layers = [LayerCell(f"forward/layer{n}", Setting(mhz), 0.01 / mhz, 2.0) for n in range(3) for mhz in (800, 1500)]
    return (
        Parser(
            "sweep table",
            (sweep, f"{sweep}bert,1000,6501,120,2,150\n"),
            lambda text: TableGpu(parse_sweep(text, file="f.csv")).spec,
        ),
        Parser("sweep to fit", (sweep,), lambda text: parse_points(text, file="f.csv", model=model)),
        Parser("power trace", (trace, log), lambda text: busiest(parse_traces(text, file="f.csv"))),
        Parser("stage profile", (_profile_text(),), _stage_profile),
        Parser(
            "layer table",
            (table_text(layers), table_text(layers, simulated=True)),
            lambda text: parse_table(text, file="f.csv"),
        ),
    )


def _plans() -> tuple[Parser, ...]:
    planned = _planned(_profile_text())
    kareus = _planned(_profile_text(knobs=True))
    profile, with_knobs = _stage_profile(_profile_text()), _stage_profile(_profile_text(knobs=True))
    source = Source("p.csv", "0" * 64, simulated=False)

    def imported(text: str) -> object:
        names, freqs = "freqs_pipeline_00000.py", text.partition("\f")
        texts = {names: freqs[0]} | ({names.replace("freqs", "scheds"): freqs[2]} if freqs[1] else {})
        made_from = with_knobs if freqs[1] else profile
        return import_files(texts, made_from, source=source, blocking_power_w=BLOCKING_W, schedule="1f1b")

    both = export_files(kareus, "kareus")
    pair = "\f".join(text for name, text in sorted(both.items()) if name.endswith("00000.py"))
    perseus = next(iter(export_files(planned, "perseus").values()))
    return (
        Parser("pipeline plan", (plan_text(planned),), lambda text: plan_text(parse_plan(text, file="f.json"))),
        Parser("schedules", (perseus, pair), imported),
        Parser("layer plan", (_layer_plan(),), lambda text: layer_plan_text(parse_layer_plans(text, file="f.json"))),
    )


def _files(folder: Path) -> tuple[Parser, ...]:
    file = folder / "file"

    def from_file(read: Callable[[Path], object]) -> Callable[[str], object]:
        def parse(text: str) -> object:
            file.write_bytes(text.encode("utf-8", "surrogatepass"))
            return read(file)

        return parse

    cells = CellFileHeader(workload="vgg16", gpu="NVIDIA A40", simulated=True, layers=("a", "b"))
    trials = TrialHeader(layout="llama3.2-3b tp8 8x4096", gpu="NVIDIA A100", simulated=True, ranks=8, nanobatches=2)

    def read_either(path: Path) -> object:
        header = read_header(path)
        return None if header is None else (header.model, read_trials(path, header))

    found, ours = {"power_limit": 300_000}, {"power_limit": (250_000,), "sm_clock": (1005,)}
    entry = Entry("GPU-1", "nvml:GPU-1", pid=4711, boot_id="1", found=found, ours=ours)
    return (
        Parser(
            "journal entry",
            (text_of(entry).decode(),),
            lambda text: parse(text.encode("utf-8", "surrogatepass")),
            (ValueError,),
        ),
        Parser("settings file", (_SETTINGS,), from_file(lambda path: load_config({}, path).store_url)),
        Parser("GPU model", (load_sheet(GPU).toml,), from_file(read_model)),
        Parser("layer cells", (_cells_text(file, cells),), from_file(lambda path: read_cells(path, cells))),
        Parser("trials of partitions", (_trials_text(file, trials),), from_file(read_either)),
    )


_SETTINGS = 'device = "sim:a100"\nstore = "~/history.db"\nstate = "~/state"\ncache = "~/cache"\ndata = "data"\n'


def _options() -> tuple[Parser, ...]:
    forms = ("cost:0.5", "energy:5%", "deadline:2h", "money:0.3,1.2", "carbon:400,20", "edp", "ed2p", "power:250")
    return (
        Parser("duration", ("90", "90s", "80us", "10ms", "1.5h", "2d"), parse_seconds, (ValueError, InputError)),
        Parser("share", ("5%", "0.05", "12.5 %"), parse_share, (ValueError,)),
        Parser(
            "objective", forms, lambda text: parse_objective(text, max_power_w=400.0).value(Measurement(2.0, 300.0))
        ),
        Parser("workload", ("resnet50:128", "bert-base", "gpt3-175b@3/8:1", "vgg16"), make_workload),
        Parser("GPU name", ("a100", "rtx-3080-ti", "a100-40gb"), load_model),
        Parser("fault", ("0:lost@30s", "1:lost", "0:timeout", "3:not-ready"), Fault.parse),
        Parser("partition setting", ("norm_0-none-12-1024",), lambda text: parse_choice(text, sm_mhz=1410)),
        Parser("patterns", _PATTERNS, _searched, (SlowPattern,)),
    )


_LINES = ("epoch 3 step 20/100 accuracy: 0.71 loss=1e-3", "a" * 60, "9" * 400, "", "phase forward", "\x00\x1b[2J")
_PATTERNS = (
    r"accuracy: ([0-9.]+)",
    r"epoch (?P<epoch>\d+).*?accuracy:? (?P<metric>[0-9.]+)",
    r"step (?P<step>\d+)",
    r"phase (?P<phase>\w+)",
    r"^(?=.*step)(?:[^s]|s(?!tep))*?(\d+)",
)


def _searched(text: str) -> object:
    """Compile a pattern for each of its uses, and search lines with it; it is refused where every use refuses it."""
    found: list[object] = []
    for kind in (StepPattern, MetricPattern, PhasePattern):
        try:
            pattern = kind.parse(text)
        except InputError as error:
            refusal = error
            continue
        found.extend(pattern.read(line) for line in _LINES)
    if not found:
        raise refusal
    return found


def _reports() -> tuple[Parser, ...]:
    lines = 'epoch,metric\n1,0.5\n2,nan\n{"metric": 0.7, "epoch": 3}\n{"step": 200}\n0.75\nstep,metric\n5,\n'
    return (Parser("metric file", (lines,), _counted),)


def _body(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _counted(text: str) -> object:
    buffer, form, found = LineBuffer(), LineForm(), []
    for line in (*buffer.feed(_body(text)), *buffer.rest()):
        form, report = form.read(line)
        found.append(report)
    return _count([report for report in found if report is not None])


def _count(reports: list[AnyReport]) -> int:
    """Count steps and epochs as the commands do."""
    counted, steps = StepCount(), 0
    for report in reports:
        if isinstance(report, StepReport):
            counted, more = counted.stepped(report)
            steps += more
        elif isinstance(report, Report) and counted.is_new(report):
            counted = counted.reported(report)
    return steps


def _profile_text(*, knobs: bool = False) -> str:
    heads = "stage,instruction,frequency" + (",launch" if knobs else "") + ",time,energy"
    rows = []
    for stage in range(2):
        for size, instruction in enumerate(("forward", "backward"), 1):
            for mhz in (1400, 1000):
                time_s = 0.01 * size * (0.3 + 980 / mhz)
                cells = (
                    stage,
                    instruction,
                    mhz,
                    *(("norm_0-none-12-1024",) if knobs else ()),
                    time_s,
                    time_s * mhz / 5,
                )
                rows.append(",".join(map(str, cells)))
    return "\n".join((heads, *rows)) + "\n"


def _stage_profile(text: str) -> StageProfile:
    profile = parse_stage_profile(text, file="p.csv")
    profile.shape("1f1b", 3)
    profile.check_blocking_power(1.0)
    return profile


def _planned(text: str) -> PlannedPipeline:
    profile = parse_stage_profile(text, file="p.csv")
    source = Source("p.csv", "0" * 64, simulated=False)
    return choose(plan_profile(profile, profile.shape("1f1b", 3), source=source, blocking_power_w=BLOCKING_W, points=4))


def _layer_plan() -> str:
    model, workload = load_model(GPU), make_workload("vgg16")
    workload = replace(workload, phases=workload.phases[:2])
    costs = simulated_costs(model, workload)
    switching = SwitchCost.of(model.spec(), model.change).at(0.001)
    plans = LayerPlans(
        workload=workload.name,
        batch_size=None,
        precision=None,
        scope="step",
        gpu=model.name,
        simulated=True,
        switching=switching,
        strategy=SEGMENTS,
        default=charged(costs, np.zeros(len(costs.names), dtype=np.intp), switching),
        frontier=plan_layers(costs, switching, SEGMENTS, points=2),
        chosen=0,
    )
    return layer_plan_text(plans)


def _cells_text(file: Path, header: CellFileHeader) -> str:
    with appended_records(file, header) as append:
        for layer in header.layers:
            append(LayerCell(layer, Setting(1000, 5000), 0.01, 2.5))
    return _taken(file)


def _trials_text(file: Path, header: TrialHeader) -> str:
    trial = PartitionTrial(
        partition="forward/attention",
        choice=PartitionChoice(1410, 12, "norm_0"),
        cost=Measurement(0.01, 3.0),
        repeats=10,
        cooling_s=5.0,
        window_s=2.0,
        start_c=50.0,
        end_c=None,
        simulated=True,
    )
    with appended_records(file, header) as append:
        append(trial)
    return _taken(file)


def _taken(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    file.unlink()
    return text
