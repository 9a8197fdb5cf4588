"""Options that name a file to write leave a device or a pipe what it is."""

import os
import stat
import threading

import pytest

from wattune.cli.main import run

MODEL = ("--model", "llama-3.2-3b", "--tp", "8", "--microbatch-size", "8", "--sequence", "4096")
NULL = os.makedev(1, 3)
COMMANDS = [
    ("measure", "--no-store", "--device", "sim:a100", "--trace", "{}", "--", "true"),
    ("measure", "--no-store", "--device", "sim:a100", "--device", "sim:v100", "--trace", "{}", "--", "true"),
    ("sweep", "--device", "sim:a100", "--points", "2", "--iterations", "1", "--csv", "{}"),
    ("sweep", "--device", "sim:a100", "--points", "2", "--iterations", "1", "--report", "{}"),
    ("export", "--out", "{}"),
    ("export", "--format", "json", "--out", "{}"),
    ("layers", "roofline", "--model", "vgg16", "--gpu", "a4000", "--svg", "{}"),
]


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("STORE", "STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"WATTUNE_{name}", str(tmp_path / "home" / name.lower()))
    return tmp_path


def with_file(arguments, file):
    return [argument.format(file) if argument == "{}" else argument for argument in arguments]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices")
@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_device_stays_a_device(home, arguments, capfd):
    device = home / "null"
    os.mknod(device, 0o666 | stat.S_IFCHR, NULL)
    code = run(with_file(arguments, device))
    assert code == 0 or "Permission denied" in capfd.readouterr().err  # mounted without devices
    assert stat.S_ISCHR(device.stat().st_mode)
    assert device.stat().st_rdev == NULL
    assert {name for name in os.listdir(home) if name != "home"} == {"null"}


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_pipe_gets_the_file(home, arguments):
    pipe, read = home / "pipe", []
    os.mkfifo(pipe)
    opened = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    keep = os.open(pipe, os.O_WRONLY)  # so that the reader waits for the command
    os.set_blocking(opened, True)

    def collect():
        with os.fdopen(opened, "rb") as stream:
            read.append(stream.read())

    reader = threading.Thread(target=collect)
    reader.start()
    code = run(with_file(arguments, pipe))
    os.close(keep)
    reader.join()
    assert code == 0
    assert len(read[0]) > 10
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("option", ["--trials", "--resume"])
def test_files_that_are_continued_must_be_plain(home, option, capfd):
    os.mkfifo(home / "pipe")
    if option == "--trials":
        start = ("kernels", "measure", *MODEL, "--device", "sim:a100-40gb")
    else:
        start = ("layers", "measure", "--model", "vgg16", "--device", "sim:a4000", "--out", str(home / "out.csv"))
    assert run([*start, option, str(home / "pipe")]) == 1
    assert "is no plain file" in capfd.readouterr().err
