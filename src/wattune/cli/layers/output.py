"""Output of `wattune layers plan` and `roofline`: JSON documents, tables, plots and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.table import Table as ScreenTable
from rich.text import Text

from wattune.cli.layers.source import LayerSource
from wattune.cli.output import console, made_line, marked, stderr_console, trust_lines, write_text
from wattune.config import load_config
from wattune.core.codec import to_json
from wattune.core.errors import Infeasible, InputError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.levels.layer.comparison import LayerComparison, StrategyPlans
from wattune.levels.layer.plan_file import LayerPlans, layer_plan_text
from wattune.levels.layer.planner import EXHAUSTIVE, IDEAL, INTENSITY, SEGMENTS, SINGLE
from wattune.levels.layer.switching import switches_of
from wattune.levels.layer.view.charts import changes, drawn_plans
from wattune.levels.layer.view.page import Origins, layers_page, long_run_saving, strategy_table
from wattune.levels.layer.view.words import outside_words, paying_words, switching_words, verdict_sentence
from wattune.plans.plan import Plan
from wattune.render.page import Table, render_page
from wattune.render.quantity import footprint_words
from wattune.render.terminal_graph import Spot, scatter

_SIGNS = {
    IDEAL: ("·", "green"),
    EXHAUSTIVE: ("◇", "yellow"),
    INTENSITY: ("△", "magenta"),
    SINGLE: ("□", "bright_red"),
    SEGMENTS: ("•", "cyan"),
}
"""The sign and style of each strategy in the plot; later ones are drawn over earlier ones."""


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show what is done at the moment on standard error; without a terminal nothing is shown."""
    screen = stderr_console()
    if not screen.is_terminal:
        yield lambda _: None
        return
    with screen.status("computing the layers") as status:
        yield status.update


@dataclass(frozen=True, slots=True)
class PlannedLayers:
    """All that a command planned, and its output."""

    found: LayerComparison
    source: LayerSource
    strategy: str
    """Whose plan is written and drawn."""
    switching_origin: str

    @property
    def origins(self) -> Origins:
        return Origins(costs=self.source.origin, switching=self.switching_origin)

    def write(self, files: Mapping[str, Path | None]) -> None:
        """Write those of the files `out`, `html` and `frontier_csv` that have a path."""
        texts: dict[str, Callable[[], str]] = {
            "out": lambda: layer_plan_text(plans_to_write(self.found, self.strategy, source=self.source)),
            "html": self._page,
            "frontier_csv": lambda: frontier_csv(self.found),
        }
        for kind, path in files.items():
            if path is not None:
                write_text(path, texts[kind]())

    def _page(self) -> str:
        page = layers_page(
            self.found,
            strategy=self.strategy,
            rooflines=self.source.places,
            origins=self.origins,
            made=made_line(),
            tariff=load_config().tariff,
        )
        return render_page(page)

    def document(self) -> dict[str, Any]:
        """Describe the verdict and every strategy."""
        found, verdict = self.found, self.found.verdict
        return {
            **marked(found.costs.simulated, found.costs.gpu),
            "model": found.costs.workload,
            "batch_size": self.source.batch_size,
            "precision": self.source.precision,
            "gpu": found.costs.gpu,
            "scope": found.scope,
            "max_slowdown_percent": 100 * verdict.slowdown,
            "default": {**_cost(found.default), "setting": str(found.costs.settings[0])},
            "switching": {**to_json(verdict.switching), "origin": self.switching_origin},
            "verdict": _verdict_document(found),
            "saved_per_1000_gpu_hours": asdict(long_run_saving(found, load_config().tariff)),
            "strategy": self.strategy,
            "strategies": {plans.name: _strategy_document(found, plans) for plans in found.strategies},
        }

    def show(self) -> None:
        """Print the verdict, the plan of each strategy, their frontiers, and what was assumed."""
        print_comparison(self.found, origins=self.origins)


def _verdict_document(found: LayerComparison) -> dict[str, Any]:
    verdict, cost = found.verdict, found.verdict.segments.cost
    return {
        "pays": verdict.pays,
        "saving_percent": 100 * verdict.saving(cost),
        "saving_over_single_percent": 100 * found.saving_over_single(cost),
        "slowdown_percent": 100 * found.slowdown(cost),
        "pays_below_s": verdict.pays_below_s,
        "sentence": verdict_sentence(found),
    }


def _cost(cost: Measurement) -> dict[str, float]:
    return {"time_s": cost.time_s, "energy_j": cost.energy_j}


def _strategy_document(found: LayerComparison, plans: StrategyPlans) -> dict[str, Any]:
    within = None
    if plans.within is not None:
        played = None if plans.name == IDEAL else _changes(found, plans.within.cost)
        within = {**_trial_document(found, plans.within.planned), "played": played}
    return {
        "upper_bound": plans.name == IDEAL,
        "within": within,
        "frontier": [_trial_document(found, trial) for trial in plans.frontier],
    }


def _trial_document(found: LayerComparison, trial: Trial[Plan]) -> dict[str, Any]:
    switches = switches_of(trial.choice)
    return {**_changes(found, trial.cost), "switches": switches, "bound_j": trial.choice.bound_j or None}


def _changes(found: LayerComparison, cost: Measurement) -> dict[str, float]:
    return {
        **_cost(cost),
        "saving_percent": 100 * found.verdict.saving(cost),
        "saving_over_single_percent": 100 * found.saving_over_single(cost),
        "slowdown_percent": 100 * found.slowdown(cost),
    }


def frontier_csv(found: LayerComparison) -> str:
    """Write the frontier of every strategy as CSV, fastest first."""
    rows = (
        f"{plans.name},{trial.cost.time_s!r},{trial.cost.energy_j!r},{switches_of(trial.choice)}\n"
        for plans in found.strategies
        for trial in plans.frontier
    )
    return "strategy,time_s,energy_j,switches\n" + "".join(rows)


def print_comparison(found: LayerComparison, *, origins: Origins) -> None:
    """Print the verdict, the plan of each strategy, their frontiers, and what was assumed."""
    screen = console()
    screen.print(verdict_sentence(found), style="bold", markup=False, soft_wrap=not screen.is_terminal)
    for line in trust_lines(found.costs.simulated, found.costs.gpu):
        screen.print(line, markup=False, soft_wrap=not screen.is_terminal)
    label = " (simulated)" if found.costs.simulated else ""
    saved = footprint_words(long_run_saving(found, load_config().tariff))
    words = f"The better of one setting and segments saves {saved} per 1,000 GPU-hours{label}."
    screen.print(words, markup=False, soft_wrap=not screen.is_terminal)
    screen.print()
    table = strategy_table(found)
    screen.print(f"{table.title}:", markup=False, style="dim")
    screen.print(screen_table(table, left_out=(1,)))
    screen.print()
    screen.print(frontier_picture(found, width=min(screen.width, 100), height=14))
    screen.print(_legend(found), soft_wrap=not screen.is_terminal)
    screen.print()
    for line in assumptions(found, origins):
        screen.print(line, style="dim", markup=False, soft_wrap=not screen.is_terminal)


def assumptions(found: LayerComparison, origins: Origins) -> tuple[str, ...]:
    """Say where the figures come from."""
    return (
        f"layers: {len(found.costs.names)} at {len(found.costs.settings)} settings, {origins.costs}",
        f"switching: {switching_words(found, origins.switching)}",
        paying_words(),
    )


def screen_table(table: Table, *, left_out: Sequence[int] = ()) -> ScreenTable:
    """Return a table of a page for the terminal, without some of its columns."""
    columns = [column for column in range(len(table.head)) if column not in left_out]
    screen = ScreenTable(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), collapse_padding=True)
    for column in columns:
        words = column < table.words
        head = table.head[column].replace(": ", "\n")
        justify: Literal["left", "right"] = "left" if words else "right"
        screen.add_column(head, justify=justify, vertical="bottom", no_wrap=column > 0, overflow="fold")
    for place, row in enumerate(table.rows):
        screen.add_row(*(Text(row[column]) for column in columns), style="bold" if place in table.strong else None)
    return screen


def frontier_picture(found: LayerComparison, *, width: int, height: int) -> Text:
    """Draw the frontiers as a scatter plot of energy over time, both against the default."""
    spots = []
    for name, (sign, style) in _SIGNS.items():
        plans = next((plans for plans in found.strategies if plans.name == name), None)
        for trial in drawn_plans(found, plans) if plans else ():
            spots.append(Spot(*changes(found, trial.cost), sign, style))
    spots.append(Spot(0.0, 0.0, "▲", "bold"))
    return Text("\n", no_wrap=True).join(scatter(spots, width=width, height=height, x_unit="%", y_unit="%"))


def _legend(found: LayerComparison) -> Text:
    simulated = " (simulated)" if found.costs.simulated else ""
    line = Text(f"energy over time, against the default ▲{simulated}:", style="dim")
    for plans in found.strategies:
        sign, style = _SIGNS[plans.name]
        bound = {IDEAL: " (upper bound)", SEGMENTS: " (over □ where equal)"}.get(plans.name, "")
        shown = plans.name if drawn_plans(found, plans) else f"{plans.name}: {outside_words(plans, found.default)}"
        line.append(f" {sign}", style=style).append(f" {shown}{bound}", style="dim")
    return line


def plans_to_write(found: LayerComparison, strategy: str, *, source: LayerSource) -> LayerPlans:
    """Return the content of the plan file of a strategy; its plan within the slowdown limit is the chosen one."""
    plans = found.of(strategy)
    if strategy == IDEAL:
        raise InputError("ideal is an upper bound that no GPU can play", hint="write the plan of another --strategy")
    if plans.within is None:
        raise Infeasible(
            f"no plan by {strategy} is within a slowdown of {100 * found.verdict.slowdown:g} %",
            hint="allow a larger --max-slowdown, or choose another --strategy",
        )
    planned, frontier, layers = plans.within.planned, plans.frontier, len(found.costs.names)
    if planned not in frontier.trials:
        frontier = Frontier((planned,))
    return LayerPlans(
        workload=found.costs.workload,
        batch_size=source.batch_size,
        precision=source.precision,
        scope=found.scope,
        gpu=found.costs.gpu,
        simulated=found.costs.simulated,
        switching=found.verdict.switching,
        strategy=strategy,
        default=found.costs.plan(np.zeros(layers, np.intp), np.zeros(layers)),
        frontier=frontier,
        chosen=frontier.trials.index(planned),
    )
