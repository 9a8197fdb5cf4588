"""nvtop, a compiled program, on a terminal of its own."""

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import termios
import time

import peer_environment
import pytest
from played import LIMITS, SPEC, mhz_within

from processes import PATIENCE_S

pytestmark = pytest.mark.peers

ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\([0B]|\x1b[=>]")


@pytest.fixture
def nvtop(peers_folder):
    """The path of nvtop: the machine's own, or the one fetched from Debian."""
    found = shutil.which("nvtop") or (str(peer_environment.NVTOP) if peer_environment.NVTOP.exists() else None)
    if found is None:
        pytest.skip("nvtop is not on PATH, and no Debian package of it could be fetched (it is in contrib)")
    return found


class Terminal:
    """A command on a pseudo-terminal, and its output since the last redraw."""

    def __init__(self, command, environment):
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environment)
        self.drawn = b""
        self.rows = 40

    def redraw(self):
        """Change the window size, so that the program redraws everything."""
        self.rows = 81 - self.rows
        self.drawn = b""
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, 160, 0, 0))

    def wait_for(self, pattern):
        """The match of a pattern in what is drawn; redrawn every second, since updates write what changed only."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            self.redraw()
            redraw_s = time.monotonic() + 1
            while time.monotonic() < redraw_s:
                if select.select([self.file], [], [], 0.1)[0]:
                    self.drawn += os.read(self.file, 65536)
                text = ESCAPES.sub(b"", self.drawn).decode(errors="replace")
                if match := re.search(pattern, text):
                    return match
        raise AssertionError(f"{pattern} did not appear on the screen:\n{text}")

    def quit(self):
        """The exit code, after the key that ends nvtop."""
        os.write(self.file, b"q")
        while True:  # the last of the output has to be read, or the program waits for ever
            try:
                if not os.read(self.file, 65536):
                    break
            except OSError:  # the way a terminal of Linux ends
                break
        os.close(self.file)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_nvtop_shows_name_clocks_power_and_process(peers, nvtop):
    # Through a shell, because nvtop leaves itself out of its list of processes.
    command = peers.command_line(command=("sh", "-c", f"{nvtop} -d 2; exit $?"))
    terminal = Terminal(command, {**peers.environment, "TERM": "xterm"})
    terminal.wait_for(re.escape(SPEC.label))
    terminal.wait_for(rf"GPU\s+{mhz_within(LIMITS.max_w)}MHz\s+MEM\s+{SPEC.mem_clocks_mhz[0]}MHz")
    terminal.wait_for(r"POW\s+[1-9]\d\d / 400 W")  # three figures once the sensor has seen the load
    terminal.wait_for(r"0\s+Compute\s+\d+%\s+20480MiB")
    assert terminal.quit() == 0
