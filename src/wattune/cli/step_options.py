"""The options that say how the steps of a program are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def step_options(function: F) -> F:
    """Add --step-pattern and --no-inject."""
    injects = click.option("--no-inject", is_flag=True, help="Do not count steps inside the program's Python.")
    pattern = click.option("--step-pattern", metavar="REGEX", help="The program prints this after each iteration.")
    return pattern(injects(function))
