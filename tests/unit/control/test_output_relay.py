"""A relay between a program that is not Python and its terminal or pipe."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios

import pytest

from processes import wait_until
from wattune.control.output_relay import OutputRelay
from wattune.control.reports.printed import PrintedLines
from wattune.control.step_file import StepFile


def resize(terminal, rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_until(descriptor, wanted):
    seen = b""
    while wanted not in seen:
        assert select.select([descriptor], [], [], 30)[0], seen
        seen += os.read(descriptor, 4096)
    return seen


def lines_of(file):
    return [line.text for lines in PrintedLines((), file).new().values() for line in lines]


@pytest.fixture
def terminal():
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def test_a_program_sees_a_terminal_of_the_right_size(terminal):
    ours, theirs = terminal
    resize(ours, 20, 70)
    script = "[ -t 1 ] && [ -t 2 ] && stty size <&2; read go <fifo; stty size <&2"
    with StepFile.made() as file, OutputRelay.made((theirs, theirs), file) as relay:
        out, err = relay.places
        assert out == err
        fifo = file.path.with_suffix(".fifo")
        os.mkfifo(fifo)
        process = subprocess.Popen(["sh", "-c", script.replace("fifo", str(fifo))], stdout=out, stderr=err)
        assert read_until(ours, b"\n") == b"20 70\r\n"
        resize(ours, 30, 90)
        wait_until(lambda: fcntl.ioctl(out, termios.TIOCGWINSZ, bytes(4)) == struct.pack("HH", 30, 90))
        fifo.write_text("go\n")
        assert read_until(ours, b"\n") == b"30 90\r\n"
        relay.started()
        assert process.wait(30) == 0
        fifo.unlink()
        wait_until(lambda: len(lines_of(file)) == 2)
        assert lines_of(file) == ["20 70", "30 90"]


def test_the_program_goes_on_without_the_process_that_started_the_relay(tmp_path):
    """As after a kill -9: a process makes a relay, starts the program, and is gone."""
    read, write = os.pipe()
    with StepFile.made() as file:
        first = os.fork()
        if not first:
            with OutputRelay.made((write, 2), file) as relay:
                subprocess.Popen(["sh", "-c", "read go <go; echo went on"], stdout=relay.places[0], cwd=tmp_path)
                os.kill(os.getpid(), signal.SIGKILL)
        os.mkfifo(tmp_path / "go")
        os.waitpid(first, 0)
        os.close(write)
        (tmp_path / "go").write_text("go\n")
        assert read_until(read, b"\n") == b"went on\n"
    os.close(read)


def test_files_are_left_alone_and_a_reader_that_closes_ends_the_program(tmp_path):
    read, write = os.pipe()
    with StepFile.made() as file, (tmp_path / "log").open("w") as log:
        with OutputRelay.made((write, log.fileno()), file) as relay:
            os.close(write)
            os.close(read)
            assert relay.places[1] == log.fileno()
            process = subprocess.Popen(["yes"], stdout=relay.places[0], stderr=relay.places[1])
            relay.started()
            assert process.wait(30) == -signal.SIGPIPE
        assert (tmp_path / "log").read_text() == ""
