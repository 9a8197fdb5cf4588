from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from job_view_samples import GPU, view
from wattune.core.job import JobMemory
from wattune.core.measurement import Measurement
from wattune.core.tariff import Price, Tariff
from wattune.levels.job.view.comparison import JobComparison, Share
from wattune.levels.job.view.page import job_file, job_page
from wattune.levels.job.view.view_model import JobView, job_map
from wattune.render.page import Figures, LargeChart, Page, Table
from wattune.render.quantity import UNKNOWN, number
from wattune_bench.job.curves import PolicyCurve, PolicyCurves
from wattune_bench.job.page import JobBenchReport, job_bench_file, job_bench_page
from wattune_bench.result import Goal

NOTHING = Measurement(0.0, 0.0)
NO_TARIFF = Tariff()
COMPARED = JobComparison(
    unit="step",
    recurrences=9,
    spent=Measurement(8000.0, 2e6),
    default=Measurement(7800.0, 2.3e6),
    whole=Measurement(9000.0, 2.2e6),
)


def overview(name: str = "nightly-bert", **changes: object) -> JobView:
    figures = {
        "recurrences": 9,
        "spent": Measurement(9000.0, 2.2e6),
        "profiling": Measurement(100.0, 2.2e4),
        "exploring": Measurement(1000.0, 2e5),
        "comparison": COMPARED,
        "objective_share": Share(-12.3, 1.0),
        "energy_share": Share(-14.1, 1.2),
        "time_share": Share(3.0, 0.5),
        "break_even": 0,
    }
    return view(name, **{**figures, **changes})


def job_overview_page(found: JobView, tariff: Tariff = NO_TARIFF) -> Page:
    return job_page(found, searcher="wattune", made="Made by wattune.", tariff=tariff)


def html(found: JobView, *, suffix: str) -> str:
    return job_file(found, searcher="wattune", made="Made by wattune.", suffix=suffix, tariff=Tariff())


def empty() -> JobView:
    gpu = replace(GPU, simulated=True)
    nobody = {"memory": JobMemory(), "predicted": (), "proposal": None, "default_run": None, "gpu": gpu}
    spent = {"recurrences": 0, "spent": NOTHING, "profiling": NOTHING, "exploring": NOTHING}
    unknown = dict.fromkeys(("objective_share", "energy_share", "time_share", "break_even"))
    return overview(**nobody, **spent, **unknown, comparison="nothing was compared")


def bench(cases: int = 2, **changes: object) -> JobBenchReport:
    rng = np.random.default_rng(5)
    policies = tuple(PolicyCurve(name, rng.uniform(100, 200, (3, 30))) for name in ("default", "zeus", "wattune"))
    curves = PolicyCurves(workload="cifar<100>", gpu="V100", simulated=False, oracle=100.0, curves=policies)
    goals = (Goal("regret after 10", 0.31, "≤ 0.333", met=True), Goal("drift", None, "≤ 5", met=None))
    fields = {"source": "tables", "goals": goals, "made": "Made by wattune.", **changes}
    return JobBenchReport(cases=(curves,) * cases, **fields)


class Balanced(HTMLParser):
    """Counts tags that were opened and not closed, and finds what would load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta",):
            self.open.append(tag)
        self.loads += [name for name, _ in attrs if name in ("src", "href")]
        if tag == "script":
            self.loads.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("text", [html(overview("<b> & ü"), suffix=".html"), job_bench_file(bench(), suffix=".html")])
def test_pages_are_whole_and_load_nothing(text: str) -> None:
    parser = Balanced()
    parser.feed(text)
    assert (parser.open, parser.loads) == ([], [])
    assert "nan" not in text.lower().replace("nanosecond", "")
    assert "prefers-color-scheme:dark" in text


def test_the_page_of_a_job_joins_all_pictures() -> None:
    page = job_overview_page(overview())
    titles = [section.chart.title for section in page.sections if isinstance(section, LargeChart)]
    assert titles == [
        "Cost of each recurrence: nightly-bert",
        "Batch size of each run: nightly-bert",
        "Epochs to the target: nightly-bert",
        "Time-energy frontier of a run to the target",
    ]
    assert page.lead == (
        "12 runs on V100: the steps of 9 recurrences, learning included, against the same work by default: "
        "time +3.0 ± 0.5 %, energy −14.1 ± 1.2 %, cost −12.3 ± 1.0 %. "
        "The next run gets batch size 128: 19 ± 3 epochs expected."
    )


def test_a_card_has_the_saving_of_the_next_choice_in_the_long_run() -> None:
    figures = job_overview_page(overview()).sections[0]
    assert isinstance(figures, Figures)
    card = figures.figures[-1]
    known = job_map(overview())
    default, chosen = known.named("default"), known.named("chosen")
    assert default is not None
    assert default.cost is not None
    assert chosen is not None
    assert chosen.cost is not None
    saved_kwh = (1 - chosen.cost.energy_j / default.cost.energy_j) * default.cost.power_w
    assert (card.value, card.label) == (f"{number(saved_kwh)} kWh", "saved per 1,000 GPU-hours")
    assert "expected of batch size 128 at " in (card.detail or "")
    first = job_overview_page(empty()).sections[0]
    assert isinstance(first, Figures)
    assert not any("GPU-hours" in one.label for one in first.figures)


def test_more_than_the_default_is_said_as_plainly() -> None:
    assert "cost +2.0 ± 0.5 %" in job_overview_page(overview(objective_share=Share(2.0, 0.5))).lead


def test_names_are_escaped() -> None:
    text = html(overview("<b> & ü"), suffix=".html")
    assert "&lt;b&gt; &amp; ü on V100" in text
    assert "<b> &" not in text


def test_every_size_and_run_has_its_row() -> None:
    sizes, runs = (section for section in job_overview_page(overview()).sections if isinstance(section, Table))
    assert [row[0] for row in sizes.rows] == ["32", "64", "128", "256", "512"]
    assert sizes.rows[1][1] == "missed the target in 1 run"
    assert sizes.strong == frozenset({2})
    assert [row[0] for row in runs.rows] == [str(n) for n in range(12, 0, -1)]


def test_a_job_without_runs_has_a_page_without_empty_pictures() -> None:
    page = job_overview_page(empty())
    assert not any(isinstance(section, LargeChart) for section in page.sections)
    assert page.lead == "No run on V100 (simulated) yet."
    text = html(empty(), suffix=".html")
    assert "simulated" in text
    assert "nan" not in text.lower()


def test_without_the_cost_of_the_default_nothing_is_claimed() -> None:
    page = job_overview_page(overview(comparison="nothing was compared", objective_share=None, energy_share=None))
    assert "saving unknown: nothing was compared." in page.lead
    figures = page.sections[0]
    assert isinstance(figures, Figures)
    assert figures.figures[0].value == UNKNOWN


def test_an_svg_is_the_first_picture_only() -> None:
    text = html(overview(), suffix=".svg")
    assert text.startswith("<svg ")
    assert "Cost of each recurrence" in text
    assert "Regret after so many recurrences, mean of 2 jobs" in job_bench_file(bench(), suffix=".svg")
    assert "Regret so far: cifar&lt;100&gt;" in job_bench_file(bench(1), suffix=".svg")


def test_the_page_of_a_benchmark_has_goals_regrets_and_every_case() -> None:
    page = job_bench_page(bench(3))
    goals, regrets = (section for section in page.sections if isinstance(section, Table))
    assert [row[1] for row in goals.rows] == ["met", "not measured"]
    assert len(regrets.rows) == 9
    assert regrets.strong == frozenset({2, 5, 8})
    assert regrets.rows[0][-2:] != ("–", "–")
    assert regrets.rows[0][6] == "–"
    assert sum(isinstance(section, LargeChart) for section in page.sections) == 1 + 2 * 3


def test_a_benchmark_without_cases_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one case"):
        bench(0)


def test_the_energy_of_a_job_is_also_shown_as_kwh_and_money() -> None:
    found = overview()
    kwh = sum(run.cost.energy_j for run in found.here if run.cost is not None) / 3.6e6
    notes = [figure.detail for figure in job_overview_page(found, Tariff(Price(0.5, "EUR"))).sections[0].figures]
    assert f"{number(1000 * kwh)} Wh, {number(0.5 * kwh)} EUR" in notes[1]
