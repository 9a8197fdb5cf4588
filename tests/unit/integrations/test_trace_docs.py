"""The example of the page about tracing runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "trace-a-model.md"


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(example, {})
    printed = capsys.readouterr().out
    assert printed.startswith("all ")
    assert "simulated A100: " in printed
