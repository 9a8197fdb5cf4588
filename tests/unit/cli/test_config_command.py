import json

import pytest

from wattune.cli.main import run

LONG = "/a/very/long/folder/that/does/not/fit/into/eighty/columns/of/a/terminal/and/goes/on/history.db"


@pytest.fixture
def settings(tmp_path, monkeypatch):
    for name in ("DEVICE", "STATE", "CACHE", "DATA"):
        monkeypatch.delenv(f"WATTUNE_{name}", raising=False)
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("WATTUNE_STORE", LONG)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "config.toml"


def test_it_shows_the_origin_of_each_setting(settings, capsys):
    settings.write_text('device = "sim:v100"\n')
    assert run(["config", "--json"]) == 0
    found = {setting["name"]: setting for setting in json.loads(capsys.readouterr().out)["settings"]}
    assert (found["device"]["value"], found["device"]["origin"]) == ("sim:v100", f"file {settings}")
    assert (found["store"]["value"], found["store"]["origin"]) == (LONG, "environment variable WATTUNE_STORE")
    assert (found["data"]["value"], found["data"]["origin"]) == (None, "default")


def test_a_path_is_never_cut(settings, capsys):
    assert run(["config"]) == 0
    out = capsys.readouterr().out
    assert f"{'store':19}{LONG}\n" in out
    assert f"{'data':19}not set\n" in out
    assert "default; set it with WATTUNE_DATA\n" in out


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize("password", ["secret", "sec:ret", "se@cret"])
def test_no_password_is_shown(settings, capsys, monkeypatch, form, password):
    monkeypatch.setenv("WATTUNE_STORE", f"postgresql://me:{password}@host:5432/db")
    assert run(["config", *form]) == 0
    out = capsys.readouterr().out
    assert "postgresql://me:***@host:5432/db" in out
    assert "cret" not in out


def test_a_url_without_a_password_is_shown_as_it_is(settings, capsys, monkeypatch):
    monkeypatch.setenv("WATTUNE_STORE", "postgresql://me@host/db")
    assert run(["config"]) == 0
    assert f"{'store':19}postgresql://me@host/db\n" in capsys.readouterr().out
