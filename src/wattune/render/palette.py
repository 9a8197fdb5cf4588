"""Colours for charts and pages, in a light and a dark form.

The hues are those of Okabe and Ito (2008), which people with common colour blindness can distinguish; the light forms
are darkened and the dark forms lightened to a contrast of at least 3 : 1 with the background.
"""

from __future__ import annotations

from wattune.render.chart import Tone

_COLOURS = {
    "paper": ("#ffffff", "#10151b"),
    "panel": ("#f6f7f9", "#181f27"),
    "ink": ("#16202b", "#e8edf2"),
    "quiet": ("#5a6673", "#9aa7b4"),
    "line": ("#dde2e8", "#2b3540"),
    Tone.BLUE.value: ("#0068a8", "#4ba3e3"),
    Tone.ORANGE.value: ("#c85200", "#ff8b3d"),
    Tone.GREEN.value: ("#00805d", "#2fc797"),
    Tone.PURPLE.value: ("#a8508a", "#e08cc0"),
    Tone.GOLD.value: ("#946800", "#e6b422"),
    Tone.SKY.value: ("#2186c4", "#7cc8f5"),
    Tone.GREY.value: ("#77828e", "#8693a0"),
}
LIGHT = {name: light for name, (light, _) in _COLOURS.items()}
DARK = {name: dark for name, (_, dark) in _COLOURS.items()}


def variables(selector: str) -> str:
    """Return style rules that define all colours for the selector, in dark form where the reader prefers dark."""
    light = ";".join(f"--{name}:{colour}" for name, colour in LIGHT.items())
    dark = ";".join(f"--{name}:{colour}" for name, colour in DARK.items())
    return f"{selector}{{{light}}}@media (prefers-color-scheme:dark){{{selector}{{{dark}}}}}"


STOPS = ((0x4A, 0x4F, 0xB8), (0x93, 0x44, 0xA8), (0xD6, 0x51, 0x7C), (0xF2, 0x86, 0x52), (0xF9, 0xC2, 0x4B))

DARK_INK, LIGHT_INK = "#16202b", "#ffffff"


def scale_colour(share: float) -> str:
    """Return the colour of a value at `share` of a scale, from its lowest (0) to its highest (1)."""
    place = min(max(share, 0.0), 1.0) * (len(STOPS) - 1)
    first = min(int(place), len(STOPS) - 2)
    part = place - first
    mixed = (round(a + (b - a) * part) for a, b in zip(STOPS[first], STOPS[first + 1], strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def ink_on(share: float) -> str:
    """Return the colour of text on `scale_colour(share)`."""
    return DARK_INK if share > 0.6 else LIGHT_INK
