"""A rule for a running program, written down as it goes: give an order, look at the window, give the next order.

Such a procedure is a generator. A policy has no memory but the windows that it is shown, so it goes through its
procedure from the start each time; what the procedure does between two windows should therefore be quick.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from wattune.core.run_window import Order, Purpose, Window
from wattune.core.setting import Setting

_Result = TypeVar("_Result")

Procedure = Generator[Order, Window, _Result]
"""Gives orders, takes the windows that came of them, and comes back with something."""

_IDLE_HOLD_S = 60.0


def next_order(procedure: Procedure[None], seen: tuple[Window, ...]) -> Order:
    """The order that follows the windows seen; a procedure that is over holds its last setting."""
    order = next(procedure)
    try:
        for window in seen:
            order = procedure.send(window)
    except StopIteration:
        return holding(order.setting, why=order.why)
    return order


def holding(setting: Setting, *, seconds: float = _IDLE_HOLD_S, why: str = "") -> Order:
    """An order to hold a setting for so long."""
    return Order(setting=setting, purpose=Purpose.HOLD, least_s=seconds, most_s=seconds, why=why)


def forever(setting: Setting, *, why: str) -> Procedure[None]:
    """The procedure that holds one setting, whatever it sees."""
    while True:
        yield holding(setting, why=why)
