"""What was found about the clocks of layers, in words."""

from __future__ import annotations

from wattune.core.gpu_spec import labelled
from wattune.core.measurement import Measurement
from wattune.levels.layer.comparison import LayerComparison, StrategyPlans
from wattune.levels.layer.costs import BACKWARD, FORWARD, STEP
from wattune.levels.layer.planner import EXHAUSTIVE, IDEAL, INTENSITY, SEGMENTS, SINGLE
from wattune.levels.layer.verdict import LATENCIES_S, WORTH
from wattune.render.quantity import percent

SCOPE_WORDS = {FORWARD: "forward pass", BACKWARD: "backward pass", STEP: "training step"}

MEANINGS = {
    SINGLE: "one setting for all layers",
    INTENSITY: "by arithmetic intensity",
    EXHAUSTIVE: "each layer's own best",
    SEGMENTS: "optimum, switching charged",
    IDEAL: "upper bound: switching is free",
}
"""Each strategy in a few words."""

_NEARLY_NOTHING = 0.0005


def verdict_sentence(found: LayerComparison) -> str:
    """Say whether switching pays, how much it saves, and from which latency on it would pay."""
    verdict = found.verdict
    gpu = labelled(found.costs.gpu, found.costs.simulated)
    latency = latency_words(verdict.switching.sm_latency_s)
    pays = "pays" if verdict.pays else "does not pay"
    cost = verdict.segments.cost
    return (
        f"Changing clocks between layers {pays} on {gpu} at a switching latency of {latency}: within a slowdown of "
        f"{100 * verdict.slowdown:g} %, the energy of a {SCOPE_WORDS[found.scope]} of {found.costs.workload} changes "
        f"by {percent(-100 * verdict.saving(cost))} against default clocks{_against_single(found)}; "
        f"{_from_latency(found)}."
    )


def _against_single(found: LayerComparison) -> str:
    """Compare with the best single setting; a saving that does not pay is called small."""
    saving = found.saving_over_single(found.verdict.segments.cost)
    if not found.verdict.segments.switches or abs(saving) < _NEARLY_NOTHING:
        return f", as with one setting for all layers ({found.single_setting})"
    only = "" if found.verdict.pays or saving < 0 else "only "
    return f" and by {only}{percent(-100 * saving)} against the best single setting ({found.single_setting})"


def _from_latency(found: LayerComparison) -> str:
    below_s, latency_s = found.verdict.pays_below_s, found.verdict.switching.sm_latency_s
    if found.verdict.pays:
        longest_s = max(below_s or 0.0, latency_s)
        least = "at least " if longest_s >= LATENCIES_S[-1] else "about "
        return f"it pays up to a latency of {least}{latency_words(longest_s)}"
    if below_s is None:
        return f"it would pay at no latency of {latency_words(LATENCIES_S[0])} or more"
    if below_s >= latency_s:
        return f"longer segments would pay, as at a latency of {latency_words(below_s)}"
    return f"it would begin to pay below about {latency_words(below_s)}"


def latency_words(seconds: float) -> str:
    """Return a latency in its usual unit: `80 ms`, `0.3 ms`, `1.2 s`."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def switching_words(found: LayerComparison, origin: str) -> str:
    """Describe what a change of clocks costs, and where the figures come from."""
    cost = found.verdict.switching
    words = f"core clock {latency_words(cost.sm_latency_s)} latency, {latency_words(cost.sm_stall_s)} stall"
    if len({setting.mem_mhz for setting in found.costs.settings}) > 1:
        words += f"; memory clock {latency_words(cost.mem_latency_s)}, {latency_words(cost.mem_stall_s)}"
    return f"{words}; segments of at least {cost.dwell:g} latencies ({origin})"


def paying_words() -> str:
    """Say when switching counts as paying."""
    return f"Switching pays when it saves {100 * WORTH:g} % of the default's energy beyond the best single setting."


def outside_words(plans: StrategyPlans, default: Measurement) -> str:
    """Say how slow the fastest plan of a strategy is that has none within the slowdown limit."""
    times = plans.frontier.fastest.cost.time_s / default.time_s
    return f"at least {f'{times:.0f} times the time' if times >= 10 else f'{times:.2f} times the time'}"
