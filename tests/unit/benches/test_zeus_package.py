import sys

from wattune_bench.job.zeus_package import installed


def test_another_module_of_the_name_is_not_the_package(tmp_path, monkeypatch):
    (tmp_path / "zeus.py").write_text("")
    for name in [name for name in sys.modules if name.partition(".")[0] == "zeus"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    assert not installed()
    sys.modules.pop("zeus", None)
