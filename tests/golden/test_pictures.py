from __future__ import annotations

import pytest
from pictures import HERE, pictures


@pytest.mark.parametrize("name", list(pictures()))
def test_a_picture_is_as_it_was(name: str) -> None:
    assert pictures()[name] == (HERE / name).read_text(encoding="utf-8")
