from __future__ import annotations

import json
from dataclasses import replace

import pytest

from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Reading, Throttle
from wattune.render.monitor_view import (
    HEAD,
    Watched,
    fitting_columns,
    graph_top_w,
    monitor_document,
    monitor_row,
    power_steps,
    sum_of_graphs,
)

SPEC = GpuSpec(name="NVIDIA Part", uuid="GPU-1", clocks=(), power_limits=None, simulated=True)
FULL = Reading(
    time_s=5.0,
    energy_j=1000.0,
    power_w=243.6,
    temperature_c=61.2,
    sm_mhz=1410,
    mem_mhz=1215,
    throttle=Throttle.POWER_CAP | Throttle.THERMAL,
    power_limit_w=250.0,
    sm_util=0.98,
    mem_util=0.5,
    memory_used_bytes=20 << 30,
    memory_total_bytes=40 << 30,
)


def watched(*readings: Reading) -> Watched:
    gpu = Watched(SPEC)
    for reading in readings:
        gpu = gpu.with_reading(reading, keep_s=60.0)
    return gpu


def test_a_row_has_every_value() -> None:
    row = monitor_row(0, watched(Reading(time_s=0.0, energy_j=400.0), FULL))
    assert row == (
        "0 Part (simulated)",
        "244 W",
        "250 W",
        "1410 MHz",
        "1215 MHz",
        "98 %",
        "50 %",
        "20.0/40.0 GiB",
        "61 °C",
        "power cap, thermal",
        "600 J",
    )


def test_an_unknown_value_is_a_dash_and_never_zero() -> None:
    row = monitor_row(1, watched(Reading(time_s=0.0)))
    assert row[0] == "1 Part (simulated)"
    assert set(row[1:]) == {"–"}
    (gpu,) = monitor_document([watched(Reading(time_s=0.0))])["gpus"]
    assert gpu["power_w"] is None
    assert gpu["throttle"] is None


def test_energy_counts_from_the_first_reading_even_when_that_is_forgotten() -> None:
    gpu = watched(*(Reading(time_s=float(second), energy_j=100.0 * second) for second in range(10, 200)))
    assert gpu.energy_j == 18900.0
    assert gpu.readings[0].time_s == 138.0  # one more than a minute ago, which still holds at its edge


def test_a_lost_gpu_shows_why_and_keeps_its_past() -> None:
    gpu = Watched(SPEC, (FULL,), 0.0, trouble="fell off the bus")
    assert "fell off the bus" in monitor_row(0, gpu)
    assert monitor_document([gpu])["gpus"][0]["power_w"] is None


def test_the_document_is_json_and_marked_simulated() -> None:
    document = json.loads(json.dumps(monitor_document([watched(FULL)])))
    assert document["simulated"] is True
    assert document["gpus"][0]["throttle"] == ["power cap", "thermal"]


def test_steps_hold_average_and_leave_gaps() -> None:
    values = [(0.0, 100.0), (2.0, 200.0), (2.5, 300.0), (5.0, None), (8.0, 50.0)]
    readings = [Reading(time_s=time_s, power_w=power_w) for time_s, power_w in values]
    shown = power_steps(readings, now_s=10.0, span_s=10.0, steps=10)
    assert shown == [100.0, 100.0, 250.0, 300.0, 300.0, None, None, None, 50.0, 50.0]


def test_steps_before_the_first_reading_are_unknown_and_an_older_one_holds() -> None:
    later = [Reading(time_s=8.0, power_w=5.0)]
    assert power_steps(later, now_s=10.0, span_s=4.0, steps=4) == [None, None, 5.0, 5.0]
    older = [Reading(time_s=1.0, power_w=5.0)]
    assert power_steps(older, now_s=10.0, span_s=4.0, steps=4) == [5.0] * 4


def test_graphs_add_up() -> None:
    assert sum_of_graphs([[1.0, None, None], [2.0, 3.0, None]]) == [3.0, 3.0, None]


def test_the_top_of_a_graph_is_round_and_never_passed() -> None:
    assert graph_top_w([watched(FULL)]) == 250.0
    assert graph_top_w([watched(Reading(time_s=0.0))]) >= 1.0


@pytest.mark.parametrize("width", [20, 60, 80, 120, 200])
def test_columns_fit_and_the_important_ones_stay(width: int) -> None:
    rows = [monitor_row(0, watched(FULL))]
    columns = fitting_columns(rows, width=width)
    assert columns[:2] == (0, 1)
    if len(columns) > 2:
        assert sum(max(len(HEAD[column]), len(rows[0][column])) + 2 for column in columns) - 2 <= width
    if width == 200:
        assert len(columns) == len(HEAD)


def test_a_narrow_terminal_shows_what_is_watched_most() -> None:
    spec = GpuSpec(name="A100-SXM4-40GB", uuid="GPU-1", clocks=(), power_limits=None, simulated=True)
    full = monitor_row(0, Watched(spec, (FULL,), start_j=0.0))
    assert [HEAD[column] for column in fitting_columns([full], width=60)] == ["GPU", "power", "busy", "VRAM"]
    without = monitor_row(0, Watched(spec, (replace(FULL, memory_used_bytes=None),), start_j=0.0))
    assert [HEAD[column] for column in fitting_columns([without], width=60)] == ["GPU", "power", "core", "busy", "temp"]
    assert "temp" in [HEAD[column] for column in fitting_columns([full], width=80)]
