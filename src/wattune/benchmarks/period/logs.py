"""Look-alikes of logs that people record: convolutional networks, checkpoints, gradient accumulation, all simulated.

What public logs show and a plain step does not: a profile of many layers that hardly differ, a loader that is late now
and then, an evaluation after every epoch, a start with work of its own, and polls that come in two lengths.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp, log
from pathlib import Path

import numpy as np
from numpy.random import Generator

from wattune.benchmarks.datasets.find import data_files, text_of
from wattune.benchmarks.period.cases import TraceCase
from wattune.benchmarks.period.loads import Load, Sensing, polled
from wattune.core.errors import InputError
from wattune.signals.period import Verdict
from wattune.signals.samples import Floats, PowerSamples
from wattune.signals.trace_text import busiest, parse_traces

KIND = "log of"
"""What the names of these kinds begin with."""
_OF_EACH = 8
_IDLE_W = 60.0
# Two lengths of polls in turn, as a program that sleeps and then asks for several things has them.
_POLLS_S = ((0.0105, 0.0146), (0.0105, 0.0196), (0.0196, 0.0196))


@dataclass(slots=True)
class _LogPlayer:
    """A program as it is played: intervals of duration, power, busy and memory busy."""

    random: Generator
    pieces: list[Floats] = field(default_factory=list)
    time_s: float = 0.0
    steps_s: list[float] = field(default_factory=list)

    def play(self, profile: Floats, *, interval: float = 1.0) -> None:
        """One pass of a profile, longer by a factor."""
        piece = profile.copy()
        piece[0] *= interval
        self.pieces.append(piece)
        self.time_s += float(piece[0].sum())

    def wait(self, seconds: float, *, power_w: float = _IDLE_W, busy: float = 0.0) -> None:
        """Some time without kernels, or with a few."""
        self.play(np.array([[seconds], [power_w], [busy], [busy / 2]]))

    def load(self, periods_s: Mapping[str, float]) -> Load:
        """All that was played."""
        duration_s, power_w, busy, mem_busy = np.concatenate(self.pieces, axis=1)
        return Load(duration_s=duration_s, power_w=power_w, busy=busy, mem_busy=mem_busy, periods_s=periods_s)


def log_cases(*, seed: int) -> Iterator[TraceCase]:
    """Some look-alikes of every kind."""
    for kind, make in KINDS.items():
        for number in range(_OF_EACH):
            random = np.random.default_rng((seed, number, sum(map(ord, kind))))
            yield replace(make(random), file=f"simulated/{kind}/{number}/{seed}", kind=kind, seed=seed)


def _profile(random: Generator, length_s: float, *, layers: int, swing: float) -> Floats:
    """Layers of one pass, forward and backward, whose power differs by some share, and a dip at the end."""
    mean_w = float(random.uniform(110, 220))
    duration_s = random.dirichlet(np.full(layers, 2.0)) * 0.96 * length_s
    power_w = mean_w * (1 + swing * random.standard_normal(layers))
    mem_busy = np.clip(random.uniform(0.2, 0.6) + 0.15 * random.standard_normal(layers), 0.02, 1.0)
    dip = np.array([[0.04 * length_s], [0.75 * mean_w], [random.uniform(0.3, 1.0)], [0.05]])
    return np.concatenate((np.array([duration_s, power_w, np.ones(layers), mem_busy]), dip), axis=1)


def _network(random: Generator) -> TraceCase:
    """A convolutional network at some clock, with a loader, epochs and a start of its own."""
    step_s = exp(random.uniform(log(0.26), log(6.8)))
    layers = int(random.integers(16, 60))
    step = _profile(random, step_s, layers=layers, swing=float(random.uniform(0.04, 0.2)))
    jitter, late = float(random.uniform(0.002, 0.02)), float(random.uniform(0.0, 0.03))
    seconds = max(60.0, float(random.uniform(18, 45)) * step_s)
    epoch_s, check = float(random.uniform(25, 90)), step[:, : layers // 3]
    playing = _LogPlayer(random)
    _start(playing, step)
    begun_s = since_s = playing.time_s
    while playing.time_s < begun_s + seconds:
        from_s = playing.time_s
        playing.play(step, interval=1 + jitter * float(random.standard_normal()))
        if random.random() < late:
            playing.wait(float(random.uniform(0.1, 0.6)) * step_s, power_w=90.0)
        playing.steps_s.append(playing.time_s - from_s)
        if playing.time_s - since_s > epoch_s:
            for _ in range(max(round(3.0 / (0.3 * step_s)), 2)):
                playing.play(check)
            playing.wait(float(random.uniform(0.2, 1.5)))
            since_s = playing.time_s
    playing.wait(2.5)
    return _seen(playing, {"step": float(np.median(playing.steps_s))}, random)


def _start(playing: _LogPlayer, step: Floats) -> None:
    """Loading, and the first steps, which try out algorithms and take longer."""
    playing.wait(float(playing.random.uniform(3, 20)), power_w=30.0)
    for _ in range(int(playing.random.integers(1, 4))):
        playing.wait(float(playing.random.uniform(0.1, 0.8)), power_w=110.0, busy=0.4)
        playing.play(step, interval=float(playing.random.uniform(1.1, 2.0)))


def _language_model(random: Generator) -> TraceCase:
    """A language model that is saved every so many steps, polled ten times a second, cores' utilisation only."""
    step_s, every = float(random.uniform(0.33, 0.9)), int(random.integers(30, 60))
    saving_s = float(random.uniform(2.0, 12.0))
    step = _profile(random, step_s, layers=int(random.integers(4, 12)), swing=0.15)
    playing = _LogPlayer(random)
    playing.wait(float(random.uniform(5, 30)), power_w=20.0)
    begun_s = playing.time_s
    for number in range(1, int(5.5 * every)):
        playing.play(step, interval=1 + 0.01 * float(random.standard_normal()))
        if number % every == 0:
            playing.wait(saving_s * float(random.uniform(0.95, 1.05)), power_w=100.0)
    periods_s = {"step": step_s, "cycle": every * step_s + saving_s}
    case = _seen(playing, periods_s, random, polls_s=(0.102, 0.105), seconds=playing.time_s - begun_s)
    return replace(case, samples=replace(case.samples, mem_util=None))


def _accumulation(random: Generator) -> TraceCase:
    """Gradients added up over many micro-steps, then an update of another kind; a sensor of 100 ms."""
    micro_s, many = float(random.uniform(0.5, 1.5)), int(random.choice((8, 16, 32, 48)))
    micro = _profile(random, micro_s, layers=int(random.integers(3, 8)), swing=0.15)
    update = _profile(random, float(random.uniform(0.2, 1.0)), layers=2, swing=0.1)
    playing = _LogPlayer(random)
    playing.wait(float(random.uniform(3, 15)), power_w=80.0)
    begun_s = playing.time_s
    while playing.time_s < begun_s + max(90.0, 4.5 * many * micro_s):
        for _ in range(many):
            playing.play(micro, interval=1 + 0.01 * float(random.standard_normal()))
        playing.play(update)
    update_s = float(update[0].sum())
    periods_s = {"pass": micro_s, "micro-step": micro_s + update_s / many, "step": many * micro_s + update_s}
    return _seen(playing, periods_s, random, polls_s=(0.1, 0.1), refresh_s=0.1)


def _seen(
    playing: _LogPlayer,
    periods_s: Mapping[str, float],
    random: Generator,
    *,
    polls_s: tuple[float, float] | None = None,
    refresh_s: float = 0.02,
    seconds: float | None = None,
) -> TraceCase:
    """What polling shows of what was played; a new value every poll or two, some of them twice."""
    total_s = playing.time_s if seconds is None else min(playing.time_s, seconds + 30.0)
    chosen_s = polls_s or _POLLS_S[int(random.integers(len(_POLLS_S)))]
    window_s = float(random.uniform(0.25, 1.0)) * refresh_s
    noise_w = float(random.uniform(0.3, 2.5))
    sensing = Sensing(refresh_s=refresh_s, window_s=window_s, noise_w=noise_w, poll_s=min(chosen_s) / 2)
    finest = polled(playing.load(periods_s), sensing, total_s, random=random)
    return TraceCase(
        file="", kind="", samples=_picked(finest, chosen_s), verdict=Verdict.PERIODIC, periods_s=dict(periods_s)
    )


def _picked(finest: PowerSamples, polls_s: tuple[float, float]) -> PowerSamples:
    """Those of many samples that polls in two lengths would have come upon."""
    pairs = int(finest.duration_s / sum(polls_s))
    times_s = finest.time_s[0] + np.cumsum(np.tile(polls_s, pairs))
    place = np.clip(np.searchsorted(finest.time_s, times_s, side="right") - 1, 0, len(finest) - 1)
    return finest.where(np.isin(np.arange(len(finest)), place))


Make = Callable[[Generator], TraceCase]

KINDS: Mapping[str, Make] = {
    f"{KIND} a convolutional network": _network,
    f"{KIND} a language model with checkpoints": _language_model,
    f"{KIND} gradient accumulation": _accumulation,
}


TRUTHS = "truths.csv"
"""A file beside traces that says what is true of them: `file,verdict,period_s`, several rows for several levels."""


@dataclass(frozen=True, slots=True)
class KnownTruth:
    """What is known of a trace."""

    verdict: Verdict
    spans_s: dict[str, tuple[float, float]] = field(default_factory=dict)


# From batch size over printed images per second (pengfei-zou/PowerBound), from the program's own log
# (grantwilkins/training_profile), and from the edges that the load noted (JimZeyuYang/GPU_Power_Benchmark).
_KNOWN = {
    "odpp_titanxp_resnet50_b64_sm1430": KnownTruth(Verdict.PERIODIC, {"step": (0.2847, 0.2847)}),
    "odpp_titanxp_vgg19_b64_sm670": KnownTruth(Verdict.PERIODIC, {"step": (1.006, 1.006)}),
    "titanx2_gpt_save50_b": KnownTruth(Verdict.PERIODIC, {"step": (0.205, 0.225), "cycle": (13.4, 13.4)}),
    "squarewave50_A100": KnownTruth(Verdict.NOT_OBSERVABLE),
}


def real_cases(folder: Path) -> Iterator[TraceCase]:
    """Every power trace in a folder, with its truth where that is known."""
    for file in data_files(folder):
        if file.suffix != ".csv" or file.name == TRUTHS:
            continue
        try:
            traces = parse_traces(text_of(file), file=file.name)
        except InputError:
            continue  # A table of another kind: other benches read it.
        known = _written(file) or _KNOWN.get(file.stem)
        yield TraceCase(
            file=f"{file.parent.name}/{file.name}",
            kind="real",
            samples=traces[busiest(traces)],
            verdict=known.verdict if known else Verdict.PERIODIC,
            spans_s=known.spans_s if known else {},
            simulated=False,
        )


def _written(file: Path) -> KnownTruth | None:
    """What a file of truths beside the trace says of it."""
    truths = file.parent / TRUTHS
    if not truths.is_file():
        return None
    rows = [row for row in csv.DictReader(text_of(truths).splitlines()) if row.get("file") == file.name]
    if not rows:
        return None
    try:
        spans_s = {
            f"level {number}": (float(row["period_s"]), float(row["period_s"]))
            for number, row in enumerate(rows)
            if row.get("period_s")
        }
        return KnownTruth(Verdict(rows[0].get("verdict") or Verdict.PERIODIC), spans_s)
    except ValueError as error:
        raise InputError(f"{truths}: {error}", hint="its columns are file,verdict,period_s") from None
