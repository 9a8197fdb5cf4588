"""Objectives from text."""

import pytest

from wattune.core.errors import InputError
from wattune.core.objective import (
    FORMS,
    Deadline,
    EnergyDelay,
    LeastCarbon,
    LeastCost,
    LeastEnergy,
    LeastMoney,
    PowerBudget,
    parse_objective,
    parse_seconds,
    parse_share,
)


@pytest.mark.parametrize(
    ("text", "objective"),
    [
        ("cost:0.5", LeastCost(0.5, 300)),
        ("cost", LeastCost(0.5, 300)),
        ("energy:5%", LeastEnergy(0.05)),
        ("energy:0.05", LeastEnergy(0.05)),
        ("deadline:90m", Deadline(5400)),
        ("deadline:90", Deadline(90)),
        ("money:0.30,2.50", LeastMoney(0.3, 2.5)),
        ("carbon:380", LeastCarbon(380, 0)),
        (" EDP ", EnergyDelay(1)),
        ("ed2p", EnergyDelay(2)),
        ("power:250", PowerBudget(250)),
    ],
)
def test_each_form_is_parsed(text, objective):
    assert parse_objective(text, max_power_w=300) == objective


@pytest.mark.parametrize(
    "text", ["", "speed", "cost:2", "cost:x", "energy:", "energy:-5%", "deadline:5y", "money:", "edp:3", "power:-1"]
)
def test_invalid_objective_texts_are_refused_with_the_forms(text):
    with pytest.raises(InputError) as caught:
        parse_objective(text, max_power_w=300)
    assert repr(text) in caught.value.message
    assert all(form in caught.value.hint for form in FORMS)


def test_shares_and_times():
    assert parse_share("7.5%") == pytest.approx(0.075)
    assert [parse_seconds(text) for text in ("2", "2s", "2 min", "1.5h", "1d")] == [2, 2, 120, 5400, 86400]
    assert [parse_seconds(text) for text in ("10ms", "0.5 ms", "80us", "80 µs")] == pytest.approx(
        [0.01, 0.0005, 80e-6, 80e-6]
    )
    for wrong in ("nan", "inf", "-1"):
        with pytest.raises(ValueError, match=r"."):
            parse_share(wrong)
    assert parse_share("100%") == 1.0
    assert parse_share("0.999") == 0.999


@pytest.mark.parametrize("text", ["5", "1", "12.5"])
def test_a_share_that_lacks_its_percent_sign_is_refused(text):
    for refused in (lambda: parse_share(text), lambda: parse_objective(f"energy:{text}", max_power_w=300)):
        with pytest.raises(InputError) as caught:
            refused()
        assert caught.value.hint == f"did you mean {text}%?"
