"""Calls before and after a method of somebody else's object, which never change what it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any


def hooked(
    inner: Callable[..., Any],
    *,
    is_training: Callable[[], bool],
    before: Callable[..., None],
    after: Callable[..., None],
    fail: Callable[[BaseException], None],
) -> Callable[..., Any]:
    """Return a function with calls before and after it while it trains; what these raise never reaches the training."""

    def called(hook: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            hook(*arguments)
        except Exception as error:  # whatever it is
            fail(error)

    @wraps(inner)
    def hooked(*arguments: Any, **options: Any) -> Any:
        if not is_training():
            return inner(*arguments, **options)
        called(before, arguments)
        result = inner(*arguments, **options)
        called(after, arguments)
        return result

    return hooked


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an object an attribute of its own within the block."""
    own = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
