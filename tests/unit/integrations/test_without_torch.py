from __future__ import annotations

import sys

import pytest


def test_without_pytorch_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("wattune.integrations.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'wattune\[torch\]'"):
        import wattune.integrations.torch  # noqa: F401
