from __future__ import annotations

from html.parser import HTMLParser

import pytest

from view_samples import sweep_history
from wattune.core.frontier import History, Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.render.page import Page, Prose, Table, render_page
from wattune.render.quantity import with_error
from wattune.sweeps.frontier_view import sweep_page, view_settings

HISTORY = sweep_history()


def page(*, history: History[Setting] = HISTORY, simulated: bool = True) -> Page:
    return sweep_page(
        view_settings(history, slowdown=0.05),
        title="net <50> on Part",
        simulated=simulated,
        per="iteration",
        slowdown=0.05,
        how=("Read before & after.",),
        made="Made by a test.",
    )


class Reader(HTMLParser):
    """Checks that tags close in order, and keeps tags, texts and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.addresses: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.replace("\u00a0", " "))


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


def test_the_page_is_well_formed_and_needs_nothing_from_outside() -> None:
    text = render_page(page())
    reader = read(text)
    assert reader.addresses == []
    assert not {"script", "link", "img", "iframe"} & set(reader.seen)
    assert "url(" not in text
    assert "@import" not in text


def test_the_page_is_marked_simulated_where_it_is() -> None:
    assert "simulated" in read(render_page(page())).words
    assert "simulated" not in render_page(page(simulated=False))


def test_the_page_has_figures_charts_and_every_trial() -> None:
    reader = read(render_page(page()))
    assert reader.seen.count("svg") == 5  # the frontier, wide and narrow, and three against the clock
    assert reader.seen.count("tr") == 1 + len(HISTORY)
    for word in ("net <50> on Part", "−10.0 %", "1200 MHz", "280.0 ± 1.5 J", "Read before & after."):
        assert any(word in text for text in reader.words), word


def test_the_lead_names_the_saving_and_its_price() -> None:
    lead = page().lead
    assert lead == "Set to 1200 MHz: time +4.0 %, energy −10.0 % per iteration against the driver default."


def test_a_sweep_without_savings_is_described_so() -> None:
    history = (Trial(Setting(), Measurement(1.0, 100.0)), Trial(Setting(sm_mhz=900), Measurement(2.0, 150.0)))
    lead = page(history=history).lead
    assert lead == "No setting saved energy within 5 % more time than the driver default."


def test_a_sweep_over_two_knobs_has_no_chart_against_one() -> None:
    mixed = (*HISTORY, *(Trial(Setting(power_limit_w=w), Measurement(1.1, 250.0)) for w in (200.0, 300.0)))
    reader = read(render_page(page(history=mixed)))
    assert reader.seen.count("svg") == 2


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (19.2873, 0.0667, "19.287 ± 0.067 J"),
        (95.94, None, "95.9 J"),
        (950.0, 38.0, "950 ± 38 J"),
        (1.0, 0.0, "1.00 J"),
    ],
)
def test_a_value_and_its_error_end_at_the_same_place(value: float, error: float | None, text: str) -> None:
    assert with_error(value, error, "J") == text


def test_words_are_escaped_and_numbers_stay_with_their_units() -> None:
    escaped = Page(
        title="<b>",
        lead="5 % of 3 J",
        simulated=False,
        sections=(Prose("a & b", ("<i>",)), Table("t", ("x",), (("<td>",),))),
        foot="",
    )
    text = render_page(escaped)
    assert "<b>" not in text
    assert "<i>" not in text
    assert "5\u00a0% of 3\u00a0J" in text
