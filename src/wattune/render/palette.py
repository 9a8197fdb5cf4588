"""Colours for charts and pages, in a light and a dark form.

The hues are those of Okabe and Ito (2008), which people with any common colour blindness tell apart; the light forms
are darkened and the dark forms lightened until each stands out at least 3 : 1 against its background.
"""

from __future__ import annotations

from wattune.render.chart import Tone

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f6f7f9",
    "ink": "#16202b",
    "quiet": "#5a6673",
    "line": "#dde2e8",
    Tone.BLUE.value: "#0068a8",
    Tone.ORANGE.value: "#c85200",
    Tone.GREEN.value: "#00805d",
    Tone.PURPLE.value: "#a8508a",
    Tone.GOLD.value: "#946800",
    Tone.SKY.value: "#2186c4",
    Tone.GREY.value: "#77828e",
}
DARK = {
    "paper": "#10151b",
    "panel": "#181f27",
    "ink": "#e8edf2",
    "quiet": "#9aa7b4",
    "line": "#2b3540",
    Tone.BLUE.value: "#4ba3e3",
    Tone.ORANGE.value: "#ff8b3d",
    Tone.GREEN.value: "#2fc797",
    Tone.PURPLE.value: "#e08cc0",
    Tone.GOLD.value: "#e6b422",
    Tone.SKY.value: "#7cc8f5",
    Tone.GREY.value: "#8693a0",
}


def variables(selector: str) -> str:
    """Style rules that give the selector all colours, and their dark forms where the reader prefers dark."""
    light = ";".join(f"--{name}:{colour}" for name, colour in LIGHT.items())
    dark = ";".join(f"--{name}:{colour}" for name, colour in DARK.items())
    return f"{selector}{{{light}}}@media (prefers-color-scheme:dark){{{selector}{{{dark}}}}}"
