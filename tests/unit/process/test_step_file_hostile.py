"""The shared file in the hands of others: it is neither believed nor followed, and ends no program."""

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hooked_program import write_packages
from processes import wait_until
from wattune.process.injected import wattune_hook as injected
from wattune.process.output import PrintedLines
from wattune.process.step_file import OPTIMIZER, StepFile, StepFollower

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

STEPS = """
import os, sys
from torch.optim.optimizer import Optimizer
one = Optimizer()

def step(times=1):
    for _ in range(times):
        one.step()

def pause():
    print("pauses", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def start(tmp_path):
    """Start a program that steps, and that nobody may read too."""
    packages = write_packages(tmp_path / "packages")

    def started(file, source, **options):
        pipe = subprocess.PIPE
        environment = file.environment({**os.environ, "PYTHONPATH": str(packages)})
        command = [sys.executable, "-c", STEPS + source]
        return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options)

    return started


def end(process):
    """Let a paused program go on to its end; return what it printed since."""
    out, err = process.communicate("go\n", timeout=120)
    assert (process.returncode, err) == (0, "")
    return out


def counts(file):
    return [(one.source, one.count) for one in file.slots()]


@pytest.fixture
def file():
    with StepFile.made() as made:
        yield made


def test_a_program_outlives_a_file_that_is_cut_short_and_its_later_steps_count(file, start):
    with start(file, "step(5)\npause()\nstep(2)\nprint('printed')\nstep(3)") as process:
        assert process.stdout.readline() == "pauses\n"
        os.truncate(file.path, 0)
        assert (file.slots(), file.texts(), file.failure) == ((), (), None)
        assert PrintedLines((), file).new() == {}
        assert end(process) == "printed\n"
    assert counts(file) == [(OPTIMIZER, 10)]


def test_no_slot_is_taken_in_a_file_that_is_cut_short(file, start):
    os.truncate(file.path, injected.HEAD + injected.SLOT // 2)
    with start(file, "pause()\nstep(2)") as process:
        end(process)
    assert (counts(file), file.failure) == ([], "OSError: the file of steps was cut short")


def test_a_program_that_closes_all_descriptors_and_opens_its_own_keeps_its_files(file, tmp_path, start):
    source = f"""
step(2)
os.closerange(3, 100)
own = [os.open(f"{tmp_path}/{{number}}", os.O_RDWR | os.O_CREAT) for number in range(20)]
step(3)
print("printed")
"""
    with start(file, "pause()" + source) as process:
        assert process.stdout.readline() == "pauses\n"
        end(process)
    assert [(tmp_path / str(number)).read_bytes() for number in range(20)] == [b""] * 20
    assert (counts(file), file.failure) == ([(OPTIMIZER, 5)], None)


def test_all_of_many_short_steps_are_counted_with_their_times(file, start):
    with start(file, "import time\nstep(30_000)\nprint(time.monotonic())\npause()") as process:
        ended_s = float(process.stdout.readline())
        assert process.stdout.readline() == "pauses\n"
        (seen,) = file.slots()  # the last few may still be missing, and then the time is that of an earlier step
        assert injected.AT_ONCE <= seen.count <= 30_000
        end(process)
    (found,) = file.slots()
    assert (found.count, found.time_s >= seen.time_s) == (30_000, True)
    assert found.time_s <= ended_s


@pytest.mark.parametrize("kind", ["file", "link", "second name", "pipe", "folder"])
def test_what_takes_the_place_of_the_file_is_neither_written_nor_waited_for(tmp_path, kind, start, monkeypatch):
    monkeypatch.setattr("wattune.core.run_folder.MEMORY", str(tmp_path))
    target = tmp_path / "target"
    with StepFile.made() as file:
        target.write_bytes(bytes(injected.FILE_SIZE))
        place = file.path
        process = start(file, "pause()\nstep(5)\nimport subprocess\nprint(subprocess.call([sys.executable, '-c', '']))")
        assert process.stdout.readline() == "pauses\n"
    place.parent.mkdir()
    match kind:
        case "file":
            place.write_bytes(target.read_bytes())
        case "link":
            place.symlink_to(target)
        case "second name":
            place.hardlink_to(target)
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
    with process:
        # The variable of what it starts names the file of the run, as does its own.
        assert end(process) == "0\n"
    assert target.read_bytes() == bytes(injected.FILE_SIZE)
    if kind == "file":
        assert place.read_bytes() == bytes(injected.FILE_SIZE)
    subprocess.run(["rm", "-r", place.parent], check=True)


def as_nobody(work):
    """Run in a forked child without privilege and return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            code = work() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@as_root
def test_a_file_that_root_makes_for_another_user_is_of_that_user_and_private():
    with StepFile.made(owner=NOBODY) as file:
        for path in (file.path, file.path.parent):
            assert os.stat(path).st_uid == NOBODY
            assert not os.stat(path).st_mode & 0o077

        def child():
            steps = injected.Steps(injected.SharedFile.named(file.place))
            steps.count(injected.OPTIMIZER, 4)

        assert as_nobody(child) == 0
        assert counts(file) == [(OPTIMIZER, 4)]
        # A process of root's does not write what another user may change under it.
        with pytest.raises(OSError, match="was replaced"):
            child()
        assert counts(file) == [(OPTIMIZER, 4)]
    assert not file.path.parent.exists()


@given(st.integers(0, 2**32), st.integers(0, injected.RINGS_START + 2 * injected.RING))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_whatever_is_in_the_file_is_read_without_an_error(file, seed, cut):
    """Bytes, and whole numbers of every size: all are of the program, which may be anybody's."""
    import random

    generator = random.Random(seed)
    head = generator.randbytes(injected.HEAD)
    slots = b"".join(
        generator.choice((1, 2, os.getpid(), 1 << 31, 1 << 47, (1 << 64) - 1, generator.getrandbits(64))).to_bytes(
            8, "little"
        )
        for _ in range((injected.RINGS_START - injected.HEAD) // 8)
    )
    data = head + slots + generator.randbytes(2 * injected.RING)
    os.truncate(file.descriptor, 0)
    os.pwrite(file.descriptor, data[:cut], 0)
    follower, lines = StepFollower(file), PrintedLines((), file)
    for _ in range(2):
        steps = follower.take()
        assert steps is None or (0 < steps.count < 1 << 48 and steps.age_s >= 0)
        follower.failure()
        lines.new()
        lines.new(ended=True)
        os.pwrite(file.descriptor, generator.randbytes(64), injected.HEAD)


# what is left behind


def forked_run(owner=None):
    """Make a file in a process that is then killed; return its path."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        with StepFile.made(owner) as file:
            os.write(write, str(file.path).encode())
            signal.pause()
    path = os.read(read, 4096).decode()
    os.close(read)
    os.close(write)
    return pid, path


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_the_next_run_removes_what_a_killed_one_left_and_nothing_of_living_ones():
    (dead, left), (living, kept) = forked_run(), forked_run()
    kill(dead)
    assert os.path.exists(left)
    with StepFile.made():
        assert not os.path.exists(os.path.dirname(left))
        assert os.path.exists(kept)
    kill(living)
    with StepFile.made():
        wait_until(lambda: not os.path.exists(os.path.dirname(kept)))


@as_root
def test_root_removes_what_it_left_for_another_user_and_nothing_outside(tmp_path):
    dead, left = forked_run(owner=NOBODY)
    kill(dead)
    outside = tmp_path / "steps"
    outside.write_text("mine")
    os.unlink(left)
    os.symlink(outside, left)
    with StepFile.made():
        assert not os.path.exists(os.path.dirname(left))
    assert outside.read_text() == "mine"
