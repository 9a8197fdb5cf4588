"""The colour of a clock: from cool and dark for the lowest to warm and light for the highest.

The lightness rises all the way, so that the order survives any colour blindness and a grey printer; the stops follow
the plasma map of matplotlib in spirit, brightened at its dark end to stand out from dark paper.
"""

from __future__ import annotations

STOPS = ((0x4A, 0x4F, 0xB8), (0x93, 0x44, 0xA8), (0xD6, 0x51, 0x7C), (0xF2, 0x86, 0x52), (0xF9, 0xC2, 0x4B))

DARK_INK, LIGHT_INK = "#16202b", "#ffffff"


def clock_colour(share: float) -> str:
    """The colour of a clock that lies at `share` from the lowest (0) to the highest (1)."""
    place = min(max(share, 0.0), 1.0) * (len(STOPS) - 1)
    first = min(int(place), len(STOPS) - 2)
    part = place - first
    mixed = (round(a + (b - a) * part) for a, b in zip(STOPS[first], STOPS[first + 1], strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def ink_on(share: float) -> str:
    """The colour of text on the colour of a clock."""
    return DARK_INK if share > 0.6 else LIGHT_INK
