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
from wattune.process.injected.relay import AWAITED, INSTEAD
from wattune.process.output import OutputRelay, PrintedLines


def resize(terminal, rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_until(descriptor, wanted):
    seen = b""
    while wanted not in seen:
        assert select.select([descriptor], [], [], 30)[0], seen
        seen += os.read(descriptor, 4096)
    return seen


def lines_of(relay):
    lines = PrintedLines((), None, relay.text)
    return [line.text for found in lines.new(ended=True).values() for line in found]


@pytest.fixture
def terminal():
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def test_a_program_sees_a_terminal_of_the_right_size(terminal, tmp_path):
    ours, theirs = terminal
    resize(ours, 20, 70)
    script = "[ -t 1 ] && [ -t 2 ] && stty size <&2; read go <fifo; stty size <&2"
    with OutputRelay.made((theirs, theirs)) as relay:
        out, err = relay.places
        assert out == err
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        process = subprocess.Popen(["sh", "-c", script.replace("fifo", str(fifo))], stdout=out, stderr=err)
        assert read_until(ours, b"\n") == b"20 70\r\n"
        resize(ours, 30, 90)
        wait_until(lambda: fcntl.ioctl(out, termios.TIOCGWINSZ, bytes(4)) == struct.pack("HH", 30, 90))
        fifo.write_text("go\n")
        assert read_until(ours, b"\n") == b"30 90\r\n"
        relay.started()
        assert process.wait(30) == 0
        assert lines_of(relay) == ["20 70", "30 90"]


def test_the_program_goes_on_without_the_process_that_started_the_relay(tmp_path):
    """As after a kill -9: a process makes a relay, starts the program, and is gone."""
    read, write = os.pipe()
    first = os.fork()
    if not first:
        with OutputRelay.made((write, 2)) as relay:
            subprocess.Popen(["sh", "-c", "read go <go; echo went on"], stdout=relay.places[0], cwd=tmp_path)
            os.kill(os.getpid(), signal.SIGKILL)
    os.mkfifo(tmp_path / "go")
    os.waitpid(first, 0)
    os.close(write)
    (tmp_path / "go").write_text("go\n")
    assert read_until(read, b"\n") == b"went on\n"
    os.close(read)


def test_what_was_taken_instead_of_a_terminal_goes_there_once_nobody_reads_it(terminal):
    ours, theirs = terminal
    with OutputRelay.made((theirs, 2), mode=INSTEAD) as relay:
        assert relay.places[1] == 2  # no terminal
        os.write(relay.places[0], b"one\n")
        read_until(relay.text.descriptor, b"one\n")
        relay.text.close()
        os.write(relay.places[0], b"two\n")
        assert read_until(ours, b"\n") == b"two\r\n"


def test_a_file_gets_what_is_relayed_and_a_reader_that_closes_ends_the_program(tmp_path):
    read, write = os.pipe()
    with (tmp_path / "log").open("w") as log:
        with OutputRelay.made((write, log.fileno())) as relay:
            os.close(write)
            os.close(read)
            process = subprocess.Popen(
                ["sh", "-c", "echo one >&2; exec yes"], stdout=relay.places[0], stderr=relay.places[1]
            )
            relay.started()
            while process.poll() is None:
                list(relay.text.read(0.1))
            assert process.wait(30) == -signal.SIGPIPE
            list(relay.text.rest())
        assert (tmp_path / "log").read_text() == "one\n"


@pytest.mark.parametrize(("options", "waits"), [({}, False), ({"mode": AWAITED}, True)])
def test_a_program_waits_only_where_no_report_may_be_lost(tmp_path, options, waits):
    with (tmp_path / "log").open("w") as log, OutputRelay.made((log.fileno(), 2), **options) as relay:
        process = subprocess.Popen(["head", "-c", "4000000", "/dev/zero"], stdout=relay.places[0])
        relay.started()
        size = 0
        if waits:
            wait_until(lambda: select.select([relay.text.descriptor], [], [], 0)[0])
            assert process.poll() is None
            size = sum(len(written.data) for _, written in relay.text.rest())
        assert process.wait(30) == 0
        if not waits:  # nobody has read by now
            size = sum(len(written.data) for _, written in relay.text.rest())
    assert (tmp_path / "log").stat().st_size == 4_000_000
    assert (size == 4_000_000) is waits
