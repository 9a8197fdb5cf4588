"""The report that `wattune doctor --bundle` writes: complete, and without names and secrets."""

import getpass
import json
import re
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from wattune.cli.doctor import command, redacted, shape
from wattune.devices.nvml.probe import READERS, probe

SECRETS = {"alice": "<user>", "node17.lab": "<host>", "/home/alice": "~"}


@pytest.fixture
def surroundings(monkeypatch, tmp_path):
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"WATTUNE_{name}", str(tmp_path / name.lower()))
    monkeypatch.setenv("WATTUNE_STORE", "postgresql://bob:hunter2@10.1.2.3/history?password=hunter3")
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    return tmp_path


def test_the_bundle_of_two_gpus(emulated_node, surroundings):
    node = emulated_node("a100", "v100")
    node.lose(1)
    file = surroundings / "bundle.json"
    done = CliRunner().invoke(command, ["--bundle", str(file)])
    assert done.exit_code == 0, done.output
    text = file.read_text()
    report = json.loads(text)
    assert report["driver"]["emulated"] is True
    assert report["variables"]["CUDA_VISIBLE_DEVICES"] == "1,0"
    first, second = report["gpus"]
    assert [answer["function"] for answer in first["calls"]] == [name for name, _ in READERS]
    assert {answer["outcome"] for answer in first["calls"]} <= {"ok", "NotSupported"}
    assert "fallen off the bus" in second["calls"]
    for secret in ("hunter2", "hunter3", "10.1.2.3"):
        assert secret not in text
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)
    assert not re.search(r"GPU-[0-9a-f]{8}-[0-9a-f]", text)
    if getpass.getuser() != "root":
        assert getpass.getuser() not in text


def test_a_bundle_without_a_driver(monkeypatch, surroundings, emulated_library):
    monkeypatch.delenv("WATTUNE_NODE", raising=False)
    file = surroundings / "bundle.json"
    assert CliRunner().invoke(command, ["--bundle", str(file)]).exit_code == 0
    assert "no NVIDIA driver" in json.loads(file.read_text())["driver"]["failure"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/alice/state and /home/bob/x", "~/state and /home/<user>/x"),
        ("alice@node17.lab, malice", "<user>@<host>, malice"),
        ("postgresql://u:p@w@db/x?sslpassword=abc&a=b", "postgresql://<redacted>@db/x?sslpassword=<redacted>&a=b"),
        ("GPU-9c2a6a78-5a27-5344-80f0-77c425c81692", "GPU-9c2a6a78-…"),
        ("api_token=xyz at 192.168.0.1", "api_token=<redacted> at <address>"),
        ("driver 570.86.15", "driver 570.86.15"),
    ],
)
def test_redaction(text, expected):
    assert redacted(text, SECRETS) == expected


@given(st.text(max_size=60), st.sampled_from(sorted(SECRETS)))
def test_no_secret_survives_between_blanks(text, secret):
    assert f" {secret} " not in redacted(f"{text} {secret} {text}", SECRETS)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", ""),
        ("0,1", "0,1"),
        ("GPU-abc,GPU-d", "a UUID,a UUID"),
        ("MIG-1", "a slice"),
        ("/x/y", "other text"),
    ],
)
def test_shapes_of_variables(value, expected):
    assert shape(value) == expected


def test_a_bundle_that_cannot_be_written_is_one_line(surroundings):
    done = CliRunner().invoke(command, ["--bundle", str(Path("/proc/nothing/bundle.json"))])
    assert done.exit_code != 0


def test_a_probe_sets_nothing(emulated_node):
    node = emulated_node("a100")
    assert {answer.outcome for answer in probe(0)} <= {"ok", "NotSupported"}
    assert node.setter_calls() == 0
