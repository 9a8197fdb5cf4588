"""Whatever a job's history holds, its pictures are well-formed, free of NaN, and lose no run."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from job_view_samples import shown
from view_samples import plain
from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, Proposal
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.tariff import Tariff
from wattune.levels.job.view.charts import epochs_chart, epochs_lines, job_frontier_chart
from wattune.levels.job.view.cost_map import map_lines
from wattune.levels.job.view.page import history_chart, job_file, sizes_chart
from wattune.levels.job.view.view_model import JobView, job_map
from wattune.render.svg import standalone
from wattune_bench.job.curves import PolicyCurve, PolicyCurves, cost_chart, mean_regret_chart, regret_chart

SIZES = st.lists(st.integers(1, 1 << 20), min_size=1, max_size=16, unique=True)
COSTS = st.builds(Measurement, st.floats(0, 1e9), st.floats(0, 1e12))
GPUS = st.builds(
    JobGpu,
    name=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40),
    simulated=st.booleans(),
    max_power_w=st.floats(1, 1e4),
    count=st.integers(1, 8),
)
METRICS = st.lists(st.none() | st.floats(-1e6, 1e6), max_size=12).map(tuple)
SETTINGS = st.builds(
    Setting,
    st.none() | st.integers(100, 2000),
    st.none() | st.integers(400, 5001),
    st.none() | st.floats(1, 700),
)
OBJECTIVES = st.sampled_from(
    ["cost:0", "cost:0.5", "energy:5%", "deadline:1h", "money:0.3,2", "carbon:380", "edp", "power:250"]
)


@st.composite
def views(draw: st.DrawFn) -> JobView:
    sizes = tuple(draw(SIZES))
    name = draw(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(str.strip))
    job = Job(
        name=name,
        batch_sizes=sizes,
        default_batch_size=draw(st.sampled_from(sizes)),
        target=0.5,
        max_epochs=draw(st.integers(1, 200)),
        objective=draw(OBJECTIVES),
    )
    parts = draw(st.lists(GPUS, min_size=1, max_size=2))
    runs = [
        JobRun(
            id=str(order),
            order=order,
            recurrence=draw(st.integers(0, order)),
            batch_size=draw(st.sampled_from(sizes)),
            gpu=draw(st.sampled_from(parts)),
            outcome=draw(st.sampled_from(Outcome)),
            metrics=draw(METRICS),
            cost=draw(st.none() | COSTS),
            setting=draw(st.none() | SETTINGS),
            why=draw(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)),
        )
        for order in range(draw(st.integers(0, 8)))
    ]
    trials = st.lists(st.builds(Trial, SETTINGS, COSTS), max_size=9).map(tuple)
    profiles = [
        Profile(gpu=parts[0], batch_size=size, trials=draw(trials))
        for size in draw(st.lists(st.sampled_from(sizes), max_size=3, unique=True))
    ]
    return shown(
        {
            "job": job,
            "memory": JobMemory(tuple(runs), tuple(profiles)),
            "gpu": parts[0],
            "proposal": draw(
                st.none() | st.builds(Proposal, st.sampled_from(sizes), exploring=st.booleans(), why=st.just(""))
            ),
            "default_run": draw(st.none() | COSTS),
        }
    )


def sound(text: str) -> ElementTree.Element:
    root = ElementTree.fromstring(text)
    for element in root.iter():
        for name, value in element.attrib.items():
            if name not in ("aria-label", "class"):
                assert "nan" not in value.lower(), (element.tag, name, value)
                assert "inf" not in value.lower(), (element.tag, name, value)
    return root


@settings(max_examples=60, deadline=None)
@given(views())
def test_every_history_makes_sound_pictures(view: JobView) -> None:
    for chart in (history_chart(view), sizes_chart(view), epochs_chart(view)):
        sound(standalone(chart))
    known = job_map(view)
    frontier = job_frontier_chart(known)
    if frontier is not None:
        sound(standalone(frontier))
    assert sum(len(series.points) for series in sizes_chart(view).series) == len(view.here)


@settings(max_examples=25, deadline=None)
@given(views(), st.integers(30, 200))
def test_every_history_makes_a_page_and_fits_a_terminal(view: JobView, width: int) -> None:
    page = job_file(view, searcher="zeus", made="", suffix=".html", tariff=Tariff())
    assert page.endswith("</html>\n")
    assert ("simulated" in page) >= view.gpu.simulated
    assert epochs_lines(view, width=width)
    assert plain(map_lines(job_map(view), width=width))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 40), st.integers(0, 2**32 - 1), st.booleans())
def test_every_set_of_curves_makes_sound_pictures(seeds: int, recurrences: int, seed: int, stuck: bool) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.lognormal(0, 2, (seeds, recurrences))
    if stuck:
        costs[0, recurrences // 2 :] = np.nan
    curves = (PolicyCurve("zeus", costs), PolicyCurve("default", np.full((1, recurrences), 5.0)))
    view = PolicyCurves(workload="w", gpu="g", simulated=True, oracle=float(rng.lognormal()), curves=curves)
    for chart in (cost_chart(view), regret_chart(view), mean_regret_chart([view, view, view])):
        sound(standalone(chart))
