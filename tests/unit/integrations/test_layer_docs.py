"""The programs of the page about plans of layers run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "play-a-layer-plan.md"


def test_the_programs_of_the_page_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("WATTUNE_STATE", "WATTUNE_STORE", "WATTUNE_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    names: dict[str, object] = {}
    for program in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(program, names)
    printed = capsys.readouterr().out
    assert "layers: ['forward/0', 'forward/1'" in printed
    assert "disabled: None" in printed
    assert "simulated: True layers: 9" in printed
    assert (tmp_path / "layers.csv").read_text().startswith("layer,sm_mhz,mem_mhz,time_s,energy_j")
