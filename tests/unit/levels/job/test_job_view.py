from __future__ import annotations

from dataclasses import replace

import pytest
from rich.style import Style

from job_view_samples import GPU, NEEDED, PREDICTED, epoch, job, memory, profile, proposal, run, view
from view_samples import plain, styles
from wattune.core.job import JobChoice, JobGpu, JobMemory, Outcome
from wattune.core.setting import Setting
from wattune.levels.job.policies import EpochsBand
from wattune.levels.job.view.charts import count_axis, epochs_chart, epochs_lines
from wattune.levels.job.view.cost_map import BEST, CHOSEN, DEFAULT
from wattune.levels.job.view.page import history_chart, recurrences, sizes_chart
from wattune.levels.job.view.view_model import (
    JobView,
    amount,
    counted_in,
    gpu_label,
    job_map,
    measured_epochs,
)
from wattune.render.chart import Scale
from wattune.render.quantity import counted, duration
from wattune.render.svg import draw

OTHER = JobGpu(name="A40", simulated=True, max_power_w=300.0)


def named(chart, name):
    return next(series for series in chart.series if series.name == name)


def test_epochs_without_a_prediction_are_those_of_the_runs() -> None:
    bands = {band.batch_size: band for band in measured_epochs(memory().runs)}
    assert sorted(bands) == [128, 256, 512]
    assert (bands[128].low, bands[128].high) == (18, 20)
    assert bands[512] == EpochsBand(512, 43, 43, 43)
    assert view(predicted=()).epochs == tuple(bands[size] for size in sorted(bands))
    assert view().epochs == PREDICTED


def test_a_band_that_cannot_be_is_refused() -> None:
    for low, epochs, high in ((0, 1, 2), (2, 1, 3), (1, 2, float("inf")), (float("nan"), 2, 3)):
        with pytest.raises(ValueError, match="cannot be"):
            EpochsBand(32, epochs, low, high)


def test_the_map_is_epochs_times_the_profile() -> None:
    known = job_map(view())
    cells = {cell.choice: cell for cell in known.cells}
    cell = cells[JobChoice(128, Setting(power_limit_w=200.0))]
    assert cell.cost is not None
    assert cell.cost.energy_j == pytest.approx(NEEDED[128] * epoch(128, 200.0).energy_j)
    assert cell.runs == 7
    default, chosen = known.named(DEFAULT), known.named(CHOSEN)
    assert default is not None
    assert default.choice == JobChoice(512, Setting(power_limit_w=250.0))
    assert chosen is not None
    assert chosen == known.named(BEST)
    assert known.rows[1].barred == "missed the target in 1 run"


def test_out_of_memory_bars_larger_sizes_on_that_part_only() -> None:
    runs = (*memory().runs, run(20, 256, Outcome.OUT_OF_MEMORY, epochs=0))
    here = view(memory=JobMemory(runs)).barred
    assert {size: why for size, why in here.items() if size != 64} == {256: "out of memory", 512: "out of memory"}
    elsewhere = view(memory=JobMemory(runs), gpu=OTHER).barred
    assert set(elsewhere) == {64}


def test_a_later_run_that_went_well_lifts_the_bar() -> None:
    runs = (run(0, 256, Outcome.OUT_OF_MEMORY, epochs=0), run(1, 256))
    assert view(memory=JobMemory(runs)).barred == {}


def test_a_size_that_reached_the_target_once_is_not_barred() -> None:
    runs = (run(0, 64, Outcome.MISSED), run(1, 64))
    assert view(memory=JobMemory(runs)).barred == {}


def test_sizes_of_an_earlier_definition_stay_on_the_map() -> None:
    known = job_map(view(job=job(sizes=(128, 256))))
    assert [row.batch_size for row in known.rows] == [32, 64, 128, 256, 512]


def test_of_an_objective_that_nothing_keeps_the_setting_that_a_run_holds_is_shown() -> None:
    known = job_map(view(job=job(objective="deadline:1s")))
    chosen = known.named(CHOSEN)
    assert chosen is not None
    assert (chosen.choice.setting, chosen.remark) == (Setting(power_limit_w=250.0), "breaks the limit")
    assert known.named(BEST) is None
    assert known.named(DEFAULT) is not None


def test_a_recurrence_costs_all_its_runs() -> None:
    done = {own.number: own for own in recurrences(view())}
    assert sorted(done) == list(range(9))
    third = done[2]
    assert [own.batch_size for own in third.runs] == [32, 256]
    assert third.batch_size == 256
    assert third.cost.time_s == pytest.approx(5 * epoch(32, 200.0).time_s + 30 * epoch(256, 200.0).time_s)


def test_recurrences_are_shown_by_batch_size_beside_the_default() -> None:
    chart = history_chart(view())
    assert [series.name for series in chart.series] == ["size 128", "size 256", "size 512"]
    assert [point.x for point in named(chart, "size 256").points] == [2, 3]
    assert len({(series.shape, series.tone) for series in chart.series}) == 3
    assert chart.rules[0].text.startswith("default, estimated: 249 kJ")
    tip = named(chart, "size 256").points[1].tip or ""
    assert "32: 5 epochs, stopped by wattune" in tip
    assert "%" not in tip  # of whole runs, whose starts differ


def test_a_recurrence_that_failed_has_a_series_of_its_own() -> None:
    runs = (run(0, 512), run(1, 64, Outcome.MISSED))
    chart = history_chart(view(memory=JobMemory(runs)))
    assert [series.name for series in chart.series] == ["size 512", "target not reached"]


def test_runs_on_other_gpus_are_left_out_and_counted() -> None:
    runs = (*memory().runs, run(20, 128, gpu=OTHER))
    assert "1 run on other GPUs not shown" in (history_chart(view(memory=JobMemory(runs))).subtitle or "")
    assert "A40 (simulated)" in (epochs_chart(view(memory=JobMemory(runs))).subtitle or "")


def test_runs_are_shown_by_how_they_ended() -> None:
    chart = sizes_chart(view())
    assert [series.name for series in chart.series] == [
        "reached the target",
        "missed the target",
        "stopped by wattune",
        "still running",
    ]
    assert chart.y.scale is Scale.LOG
    shapes = [(series.shape, series.tone) for series in chart.series]
    assert len(set(shapes)) == len(shapes)


def test_predicted_epochs_have_a_band_and_the_runs() -> None:
    chart = epochs_chart(view())
    predicted = named(chart, "predicted")
    assert [(own.low, own.high) for own in predicted.spread] == [(band.low, band.high) for band in PREDICTED]
    assert [point.y for point in named(chart, "stopped: would need more").points] == [5.0]
    assert [note.text for note in chart.notes] == ["default", "next"]
    assert [rule.text for rule in chart.rules] == ["at most 60"]
    tip = named(chart, "missed it: would need more").points[0].tip or ""
    assert tip.splitlines()[1:] == ["60 epochs, missed the target", "tries 64 & more"]


def test_default_and_next_share_a_note_where_they_are_one() -> None:
    assert [note.text for note in epochs_chart(view(proposal=proposal(512))).notes] == ["default, next"]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_little_history_still_makes_pictures(count: int) -> None:
    few = view(memory=JobMemory(memory().runs[:count]), predicted=(), proposal=None, default_run=None)
    for chart in (history_chart(few), sizes_chart(few), epochs_chart(few)):
        assert "nan" not in draw(chart).lower()
    if not count:
        assert "no recurrence is over yet" in (history_chart(few).subtitle or "")


def test_one_batch_size_makes_pictures() -> None:
    alone = view(
        job=job(sizes=(64,)), memory=JobMemory((run(0, 64),), (profile(64),)), predicted=(), proposal=proposal(64)
    )
    for chart in (history_chart(alone), sizes_chart(alone), epochs_chart(alone)):
        assert draw(chart)
    assert job_map(alone).named(BEST) is not None


def test_names_are_escaped_and_simulated_parts_say_so() -> None:
    strange = view(
        "<b> & ü", gpu=replace(GPU, simulated=True), memory=JobMemory((run(0, 512, gpu=replace(GPU, simulated=True)),))
    )
    for chart in (history_chart(strange), sizes_chart(strange), epochs_chart(strange)):
        text = draw(chart)
        assert "&lt;b&gt; &amp; ü" in text
        assert "V100 (simulated)" in text


def test_predicted_epochs_in_a_terminal() -> None:
    lines = epochs_lines(view(), width=90)
    text = plain(lines)
    rows = text.splitlines()
    assert rows[0].split() == ["batch", "size", "epochs", "to", "the", "target"]
    assert "► 128" in rows[3]
    assert "6 reached, 1 running" in rows[3]
    assert "missed the target in 1 run" in rows[2]
    assert "○ 512" in rows[5]
    lengths = [row.count("█") for row in rows[1:]]
    assert lengths == sorted(lengths)
    assert all(Style.parse(style) for line in lines for style in styles(line) if style)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_lines_keep_to_the_width(width: int) -> None:
    assert max(len(line) for line in plain(epochs_lines(view(), width=width)).splitlines()) <= max(width, 50)


def test_an_empty_history_in_a_terminal() -> None:
    text = plain(epochs_lines(view(memory=JobMemory(), predicted=(), gpu=replace(GPU, simulated=True)), width=80))
    assert text.count("untried") == 5
    assert "(simulated)" in text


def test_words() -> None:
    assert counted_in("cost:0.5") == ("cost", "J")
    assert counted_in("money:0.3,2")[1] == ""
    assert counted_in("Power:250") == ("time", "s")
    assert [duration(seconds) for seconds in (None, 0.5, 900.0, 9000.0)] == ["–", "500 ms", "900 s", "2.50 h"]
    assert amount(1.25, "") == "1.25"
    assert amount(2500.0, "J") == "2.50 kJ"
    assert gpu_label(replace(OTHER, count=4)) == "4 × A40 (simulated)"
    assert (counted(1, "run"), counted(2, "run")) == ("1 run", "2 runs")


@pytest.mark.parametrize(
    "objective", ["cost:1", "energy:5%", "deadline:2h", "money:0.3,2", "carbon:380,40", "edp", "power:400"]
)
def test_every_objective_makes_pictures(objective: str) -> None:
    own: JobView = view(job=job(objective=objective))
    assert draw(history_chart(own))
    assert job_map(own).named(BEST) is not None


def test_an_extreme_prediction_leaves_the_chart_readable() -> None:
    predicted = (*PREDICTED[1:], EpochsBand(32, 5e6, 70.0, 1e12))
    wild = view(predicted=predicted)
    assert wild.barred[32] == "expected to need more than 60 epochs"
    chart = epochs_chart(wild)
    assert chart.y_bounds[1] < 100
    assert 32 not in view(predicted=(*PREDICTED[1:], EpochsBand(32, 5e6, 10.0, 1e12))).barred
    assert named(chart, "predicted").points[0].y is None
    assert max(len(line) for line in plain(epochs_lines(wild, width=90)).splitlines()) <= 90


def test_a_single_batch_size_is_named_although_it_needs_no_legend() -> None:
    assert "all size 512" in (history_chart(view(memory=JobMemory((run(0, 512),)))).subtitle or "")


def test_recurrences_are_counted_in_whole_numbers() -> None:
    assert [text for _, text in count_axis("run", 3).marks] == ["1", "2", "3"]
    assert [text for _, text in count_axis("run", 25).marks] == [str(n) for n in range(5, 26, 5)]
    assert len(count_axis("run", 234).marks) <= 12
