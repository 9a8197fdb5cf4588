"""How long a look must last: what errors windows of other lengths would have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wattune.core.measurement import SIGMAS_95
from wattune.core.run_window import Window
from wattune.response.evidence import LEAST_PACE, USUAL_PACE

USUAL_S = 10.0
"""The length at which a window without an error of its own has the usual one."""


def error_by_length(windows: tuple[Window, ...]) -> Callable[[float], float]:
    """What tells the standard error of a pace, as a share, after so many seconds.

    Errors fall with the root of the time, unless the windows so far show that they do not.
    """
    known = [
        (np.log(window.cost.time_s), np.log(max(window.pace_error_s / SIGMAS_95 / window.pace_s, LEAST_PACE)))
        for window in windows
        if window.pace_s and window.pace_error_s and window.cost.time_s > 0
    ]
    if not known:
        return lambda length_s: USUAL_PACE / float(np.sqrt(length_s / USUAL_S))
    lengths, errors = (np.array(column) for column in zip(*known, strict=True))
    # A slope that is known before anything is seen: as if two windows an octave either side had shown it.
    spread = float(((lengths - lengths.mean()) ** 2).sum())
    slope = float(((lengths - lengths.mean()) * (errors - errors.mean())).sum())
    power = float(np.clip((slope - 0.5) / (spread + 1.0), -0.5, 0.0))
    middle_s, middle = float(lengths.mean()), float(errors.mean())
    return lambda length_s: max(float(np.exp(middle + power * (np.log(length_s) - middle_s))), LEAST_PACE)
