"""Traces as people have them: our own CSV, other people's, and the logs of nvidia-smi, whole or broken."""

import numpy as np
import pytest

from wattune.core.errors import InputError
from wattune.signals.trace_text import busiest, parse_traces

OURS = "time_s,power_w,sm_util,mem_util,sm_mhz\n0.0,100,0.5,0.2,1410\n0.1,200,,0.3,1410\n"
SMI = """timestamp, power.draw [W], utilization.gpu [%], memory.used [MiB]
2025/12/10 17:36:14.418, 17.37 W, 0 %, 1 MiB
2025/12/10 17:36:14.518, 117.37 W, 97 %, 1 MiB
2025/12/10 17:36:14.618, [N/A], 97 %, 1 MiB
"""


def one(text):
    (samples,) = parse_traces(text, file="trace.csv")
    return samples


def test_our_own_format_is_read_with_its_gaps():
    samples = one(OURS)
    assert samples.time_s.tolist() == [0.0, 0.1]
    assert samples.power_w.tolist() == [100.0, 200.0]
    assert samples.sm_util[0] == 0.5
    assert np.isnan(samples.sm_util[1])


def test_a_log_of_nvidia_smi_is_read_with_its_units():
    samples = one(SMI)
    assert samples.time_s == pytest.approx([0.0, 0.1, 0.2])
    assert samples.power_w[:2].tolist() == [17.37, 117.37]
    assert np.isnan(samples.power_w[2])
    assert samples.sm_util.tolist() == [0.0, 0.97, 0.97]
    assert len(samples.in_order()) == 2


def test_percent_is_recognised_by_name_unit_or_value():
    assert one("t_est_s,power_w,gpu_util_pct,mem_util_pct\n0,1,1,1\n1,1,1,1\n").sm_util.tolist() == [0.01, 0.01]
    assert one("time_s,power_w,sm_util\n0,1,98\n1,1,1\n").sm_util.tolist() == [0.98, 0.01]


@pytest.mark.parametrize("first", [1_700_000_000, 1_700_000_000_000, 1_700_000_000_000_000, 1_700_000_000_000_000_000])
def test_stamps_since_1970_may_be_finer_than_seconds(first):
    tick = first // 1_700_000_000
    assert one(f"timestamp,power_w\n{first},1\n{first + 2 * tick},1\n").duration_s == pytest.approx(2.0, rel=1e-6)


def test_dates_may_be_in_iso_format():
    assert one("time,power_w\n2025-01-01T00:00:00.5,1\n2025-01-01T00:00:02,1\n").duration_s == pytest.approx(1.5)


def test_a_change_of_the_time_zone_is_no_gap():
    assert one("time,power\n2025-03-30T01:59:59+01:00,1\n2025-03-30T03:00:01+02:00,1\n").duration_s == 2.0


@pytest.mark.parametrize(
    "text",
    [
        "Time (s),Power (W),GPU Util (%)\n0,50,40\n2,60,50\n",
        "timestamp_ms,power_mw,gpu_util\n0,50000,40\n2000,60000,50\n",
        "time [ms],Power [mW],utilization.gpu [%]\n0,50000,40\n2000,60000,50\n",
        "time_s;power_w;gpu_util_pct\n0,0;50,0;40\n2,0;60,0;50\n",
        "time_s\tpower_w\tgpu_util_pct\n0\t50\t40\n2\t60\t50\n",
        "# a note\n# and another\ntime_s,power_w,gpu_util_pct\n0,50,40\n2,60,50\n",
        "utilization.gpu [%], name, power.draw [W], timestamp\n40 %, A, 50.0 W, 2025/12/10 17:36:14\n"
        "50 %, A, 60.0 W, 2025/12/10 17:36:16\n",
    ],
)
def test_columns_are_found_by_name_in_any_order_with_units_and_separators(text):
    samples = one(text)
    assert samples.time_s.tolist() == [0.0, 2.0]
    assert samples.power_w.tolist() == [50.0, 60.0]
    assert samples.sm_util.tolist() == [0.4, 0.5]


def test_a_column_separates_gpus():
    traces = parse_traces("index,time_s,power_w\n1,0,50\n0,0,90\n1,1,50\n0,1,90\n", file="log.csv")
    assert [trace.power_w.tolist() for trace in traces] == [[50, 50], [90, 90]]
    assert busiest(traces) == 1


@pytest.mark.parametrize(
    "text",
    [
        "_runtime,system.gpu.0.powerWatts,system.gpu.0.powerPercent,system.gpu.0.gpu,system.gpu.1.powerWatts\n"
        "0,50,12,40,90\n1,60,15,50,90\n",
        "timestamp,gpu0_power_w,gpu0_util,gpu1_power_w\n5,50,40,90\n6,60,50,90\n",
        '"Relative Time (Process)","run - system/gpu.0.powerWatts","run - system/gpu.0.powerWatts__MAX",gpu.0.gpu,'
        "gpu.1.powerWatts\n0,50,70,40,90\n1,60,80,50,90\n",
        "#Date       Time     gpu   pwr  gtemp     sm    mem\n#YYYYMMDD   HH:MM:SS Idx     W      C      %      %\n"
        " 20250601   12:00:00   0    50     60     40      9\n 20250601   12:00:00   1    90      -      1      1\n"
        "#Date       Time     gpu   pwr  gtemp     sm    mem\n#YYYYMMDD   HH:MM:SS Idx     W      C      %      %\n"
        " 20250601   12:00:01   0    60     60     50      9\n 20250601   12:00:01   1    90      -      1      1\n",
        "#Time        gpu   pwr     sm\n#HH:MM:SS    Idx     W      %\n 12:00:00      0    50     40\n"
        " 12:00:00      1    90      1\n 12:00:01      0    60     50\n 12:00:01      1    90      1\n",
        "Timestamp,Entity,DCGM_FI_DEV_POWER_USAGE,DCGM_FI_DEV_GPU_UTIL\n2025-06-01T12:00:00,GPU 0,50,40\n"
        "2025-06-01T12:00:00,GPU 1,90,1\n2025-06-01T12:00:01,GPU 0,60,50\n2025-06-01T12:00:01,GPU 1,90,1\n",
    ],
)
def test_logs_of_other_monitors_are_read_gpu_by_gpu(text):
    first, second = parse_traces(text, file="log")
    assert first.duration_s == 1.0
    assert first.power_w.tolist() == [50.0, 60.0]
    assert first.sm_util.tolist() == [0.4, 0.5]
    assert second.power_w.tolist() == [90.0, 90.0]


def test_rows_in_turn_separate_gpus_without_a_column():
    rows = [f"{poll * 0.1 + gpu * 0.002:.3f},{100 + 50 * gpu}" for poll in range(40) for gpu in range(3)]
    traces = parse_traces("\n".join(("time_s,power_w", *rows)), file="log.csv")
    assert [set(trace.power_w.tolist()) for trace in traces] == [{100.0}, {150.0}, {200.0}]


def test_uneven_polls_of_one_gpu_are_one_gpu():
    random = np.random.default_rng(0)
    rows = [f"{time_s:.4f},100" for time_s in np.cumsum(random.uniform(0.005, 0.03, 400))]
    assert len(parse_traces("\n".join(("time_s,power_w", *rows)), file="log.csv")) == 1


def test_a_last_line_that_was_cut_off_and_a_header_in_between_are_left_out():
    text = SMI.rstrip("\n").rsplit("\n", 1)[0] + "\n" + SMI.splitlines()[0] + "\n2025/12/10 17:36:14.7"
    assert one(text).power_w.tolist() == [17.37, 117.37]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("time_s,power_w\n", "has a header and no rows"),
        ("time_s,watts\n0,1\n", "no power column"),
        ("when,power_w\n0,1\n", "no time column"),
        ("time_s,power_w\n0,1\n0\n1,2\n", "line 3"),
        ('time_s,power_w\n0,"1\n', "unexpected end"),
        ("time_s,power_w\nx,y\nx,y\n", "2 of 2 rows"),
        (
            "2025/06/01 12:00:00.000, 310.25 W, 99 %\n2025/06/01 12:00:00.100, 311 W, 99 %\n",
            "does not name the columns",
        ),
        ("Dear all,\nthis is a letter, with commas, and no numbers.\n", "no time column"),
        ("#Entity   POWER   GPUTL\nID        W\nGPU 0     311.2   99\nGPU 0     312.2   99\n", "no time column"),
    ],
)
def test_an_invalid_trace_is_refused_in_one_line_with_a_hint(text, message):
    with pytest.raises(InputError, match=message) as refused:
        parse_traces(text, file="bad.csv")
    assert "\n" not in refused.value.message
    assert "bad.csv" in refused.value.message
    assert refused.value.hint
