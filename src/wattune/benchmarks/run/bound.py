"""How near to the oracle noise lets a policy come that trusts nothing but the rows themselves.

Notation
    d       logarithm of a row's time over that of the reference
    σ       standard error of d after half of a run's looks at the row and half at the reference: noise·√(2/half)
    z       how many of them make it sure enough
    P       chance that a row within the promise is found so: Φ((limit − d)/σ − z)
Such a policy knows beforehand what every row saves, proves the best first, and has the whole run for each: so it does
better than any can that must find out. Curves that join the rows could tell more, if recorded rows lay on them.
"""

from __future__ import annotations

from math import inf, log, log1p, sqrt

from scipy.special import ndtr, ndtri

from wattune.benchmarks.run.sweep import CONFIDENCE, RUN_S, Sweep
from wattune.levels.run.orders import LOOKS_S


def provable_saving(
    sweep: Sweep, *, slowdown: float, noise: float, confidence: float = CONFIDENCE, looks: float = RUN_S / LOOKS_S[0]
) -> float:
    """The saving to be expected of it, as a share."""
    expected, left = 0.0, 1.0
    error, sure = noise * sqrt(4.0 / looks), float(ndtri(confidence))
    within = [setting for setting in sweep.costs if sweep.slowdown(setting) <= slowdown + 1e-12]
    for setting in sorted(within, key=sweep.saving, reverse=True):
        if setting == sweep.reference:
            break
        room = log1p(slowdown) - log(1.0 + sweep.slowdown(setting))
        proved = float(ndtr((room / error if error > 0.0 else inf) - sure))
        expected += left * proved * sweep.saving(setting)
        left *= 1.0 - proved
    return expected
