"""Steps that are counted inside of a program's own Python."""

import ast
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hooked_program import write_packages
from wattune.core.errors import InputError
from wattune.process.injected import wattune_hook as injected
from wattune.process.step_file import BAR, FOLDER, OPTIMIZER, CountedSteps, StepFile, StepFollower

_VERSIONS = os.pathsep.join([*map(str, Path.home().glob(".pyenv/versions/*/bin")), os.environ["PATH"]])
OTHERS = [found for minor in range(9, 15) if (found := shutil.which(f"python3.{minor}", path=_VERSIONS))]
"""Those of pyenv by their folders: its shims start only the versions that were chosen."""
OLD = [found for name in ("2.7", "3.6") if (found := shutil.which(f"python{name}", path=_VERSIONS))]
"""Versions that cannot read the hook."""


@pytest.fixture
def program(tmp_path):
    """Run source under the hook, with stand-ins of torch and tqdm; return its output and the counts."""
    packages = write_packages(tmp_path / "packages")

    def run(source, *, python=sys.executable, path=(), prepare=lambda _: None, finish=lambda _: None, code=0):
        script = tmp_path / "program.py"
        script.write_text(source)
        paths = os.pathsep.join(map(str, (*path, packages)))
        with StepFile.made() as file:
            prepare(file)
            environment = file.environment({**os.environ, "PYTHONPATH": paths})
            done = subprocess.run(
                [python, str(script)], env=environment, capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == code, done.stderr
            finish(file)
            return done, [(one.source, one.count) for one in file.slots()], file.failure

    return run


STEPS = """
from torch.optim.optimizer import Optimizer
one = Optimizer()
for _ in range(10):
    one.step()
"""


def works(python):
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("python", [sys.executable, *OTHERS])
def test_steps_are_counted_by_every_python(program, python):
    if not works(python):
        pytest.skip(f"{python} does not start")
    done, counts, failure = program(STEPS, python=python)
    assert counts == [(OPTIMIZER, 10)]
    assert (done.stdout, done.stderr, failure) == ("", "", None)


@pytest.mark.parametrize("python", OLD)
def test_an_old_python_runs_as_without_the_hook(program, python, tmp_path):
    if not works(python):
        pytest.skip(f"{python} does not start")
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.marked = 'by the user'\n")
    done, counts, failure = program("import sys; print(sys.marked)", python=python, path=[own])
    assert (done.stdout, done.stderr, counts, failure) == ("by the user\n", "", [], None)
    done, _, _ = program("print('no sitecustomize')", python=python)
    assert (done.stdout, done.stderr) == ("no sitecustomize\n", "")


def test_every_python_can_read_what_it_loads_at_its_start():
    source = (FOLDER / "sitecustomize.py").read_bytes()
    assert source.isascii()
    ast.parse(source, feature_version=(3, 4))


def test_a_hook_that_cannot_start_is_silent_and_an_event(file, monkeypatch):
    class TextIOWrapper:
        """A stream whose `write` cannot be replaced."""

        __slots__ = ()
        write = print

    monkeypatch.setenv(injected.VARIABLE, file.place)
    monkeypatch.setattr(sys, "stdout", TextIOWrapper())
    monkeypatch.setattr(sys, "meta_path", [])
    injected.start()
    assert "AttributeError" in file.failure


def test_the_hooks_of_two_installations_count_a_step_once(program, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "other")
    done, counts, failure = program(STEPS, path=[tmp_path / "other"])
    assert (done.stderr, counts, failure) == ("", [(OPTIMIZER, 10)], None)


def test_of_two_optimizers_the_first_counts_even_if_it_steps_seldom(program):
    source = STEPS + "other = Optimizer()\nfor _ in range(3):\n    one.step()\n    [other.step() for _ in range(5)]\n"
    assert program(source)[1] == [(OPTIMIZER, 13)]


def test_one_optimizer_per_parameter_counts_once_a_step(program):
    source = STEPS + "all = [one, *(Optimizer() for _ in range(300))]\nfor _ in range(4): [each.step() for each in all]"
    assert program(source)[1] == [(OPTIMIZER, 14)]


def test_an_optimizer_that_replaces_the_first_counts_from_then_on(program):
    source = STEPS + f"other = Optimizer()\nfor _ in range({injected.TAKES_OVER} + 20): other.step()"
    assert program(source)[1] == [(OPTIMIZER, 10 + 1 + 20)]


def test_of_nested_bars_the_inner_one_counts(program):
    source = "from tqdm.std import tqdm\nfor _ in tqdm(range(3)):\n    for _ in tqdm(range(20)): pass"
    assert program(source)[1] == [(BAR, 60)]


def test_bars_that_are_moved_by_hand_count_and_downloads_do_not(program):
    source = (
        "from tqdm.std import tqdm\n"
        "load = tqdm(); load.unit = 'B'; load.update(1000)\n"
        "bar = tqdm()\nfor _ in range(7): assert bar.update(2) == 2"
    )
    assert program(source)[1] == [(BAR, 14)]


def test_a_loop_over_a_bar_may_be_left(program):
    source = (
        "from tqdm.std import tqdm\n"
        "for _ in range(3):\n    for place in tqdm(range(20)):\n        if place == 5: break\n"
        "print(list(tqdm('ab')))"
    )
    done, counts, _ = program(source)
    assert done.stdout == "['a', 'b']\n"
    assert counts == [(BAR, 3 * 5 + 2)]


def test_forked_and_spawned_processes_count_for_themselves(program):
    source = (
        "import multiprocessing, os\n"
        + STEPS
        + "def work(count):\n    for _ in range(count): one.step()\n"
        + "if __name__ == '__main__':\n"
        + "    for name, count in (('fork', 3), ('spawn', 4)):\n"
        + "        child = multiprocessing.get_context(name).Process(target=work, args=(count,))\n"
        + "        child.start(); child.join()\n"
    )
    # The slot of a process that has ended is used again; a spawned process imports the module, and so steps 10 times.
    assert program(source)[1] == [(OPTIMIZER, 10), (OPTIMIZER, 14)]


def test_a_program_that_becomes_another_one_counts_in_its_place(program):
    becomes = "import os, sys\nif len(sys.argv) < 2: os.execv(sys.executable, [sys.executable, __file__, 'again'])\n"
    seen = []
    program(STEPS + becomes, finish=lambda file: seen.extend(file.slots()))
    assert [(one.count, one.replaced) for one in seen] == [(10, 1)]  # so the follower begins again


def test_the_workers_of_a_data_loader_do_not_count(program):
    source = (
        "import os, sys, types\n"
        + "worker = sys.modules['torch.utils.data._utils.worker'] = types.SimpleNamespace(_worker_info=None)\n"
        + "if not (child := os.fork()): worker._worker_info = 'the third of 4'\n"
        + STEPS
        + "from tqdm.std import tqdm\nlist(tqdm('ab'))\n"
        + "if child: os.waitpid(child, 0)\n"
    )
    assert program(source)[1] == [(OPTIMIZER, 10), (BAR, 2)]


def test_a_sitecustomize_of_the_user_still_runs(program, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.marked = 'by the user'\n")
    done, counts, _ = program(
        STEPS + "import sys, sitecustomize; print(sys.marked, sitecustomize.__file__)", path=[own]
    )
    assert done.stdout == f"by the user {own / 'sitecustomize.py'}\n"
    assert counts == [(OPTIMIZER, 10)]


def test_an_error_in_the_sitecustomize_of_the_user_is_reported_as_always(program, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    done, counts, _ = program(STEPS, path=[own])
    assert "ValueError: mine" in done.stderr
    assert counts == [(OPTIMIZER, 10)]


def test_the_path_of_the_program_is_as_without_the_hook(program):
    done, _, _ = program("import sys; print('\\n'.join(sys.path))")
    assert str(FOLDER) not in done.stdout.splitlines()


def test_a_torch_without_hooks_is_an_event_and_no_error(program, tmp_path):
    (tmp_path / "packages" / "torch" / "optim" / "optimizer.py").write_text(
        "class Optimizer:\n    def step(self): pass"
    )
    done, counts, failure = program(STEPS)
    assert (done.stderr, counts) == ("", [])
    assert "no hook for optimizer steps" in failure


def test_a_locked_file_does_not_stop_the_program(program):
    held = []

    def lock(file):
        held.append(file.path.open("r+b"))
        fcntl.flock(held[0], fcntl.LOCK_EX)

    done, counts, failure = program(STEPS, prepare=lock)
    held[0].close()
    assert (done.stderr, counts) == ("", [])
    assert "locked" in failure


def test_a_program_that_outlives_the_file_goes_on(program):
    done, counts, _ = program(STEPS + "print('done')", prepare=lambda file: file.path.unlink())
    assert (done.stdout, done.stderr, counts) == ("done\n", "", [])


def put(file, place, steps):
    """Write the slot of a process."""
    values = [steps.pid, injected.OPTIMIZER if steps.source == OPTIMIZER else injected.BAR]
    values += [steps.count, round(steps.time_s * 1e9), steps.replaced, 0, 0, 0]
    start = injected.HEAD + place * injected.SLOT
    os.pwrite(file.descriptor, b"".join(value.to_bytes(8, sys.byteorder) for value in values), start)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The folders in which the file may be made: none but those of the test."""
    folders = tmp_path / "memory", tmp_path / "temporary"
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr("wattune.core.run_folder.MEMORY", str(folders[0]))
    monkeypatch.setattr("tempfile.tempdir", str(folders[1]))
    return folders


@pytest.fixture
def file():
    with StepFile.made() as made:
        yield made


def steps(count, *, pid=None, source=OPTIMIZER, ago_s=0.0, replaced=0):
    return CountedSteps(pid or os.getpid(), source, count, time.monotonic() - ago_s, replaced)


def test_a_full_disk_is_no_place_for_the_file(places, monkeypatch):
    def full(descriptor, start, size):
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent.parent not in roomy:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.truncate(descriptor, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    memory, temporary = places
    roomy = {temporary}
    with StepFile.made() as made:
        assert made.path.parent.parent == temporary
    roomy = set()
    with pytest.raises(InputError, match="No space left"), StepFile.made():
        pass
    assert [*temporary.iterdir(), *memory.iterdir()] == []


def test_new_steps_are_those_since_the_last_call(file):
    follower = StepFollower(file)
    assert follower.take() is None
    put(file, 0, steps(5, ago_s=2.0))
    first = follower.take()
    assert (first.count, follower.source) == (5, OPTIMIZER)
    assert first.age_s >= 2.0
    assert follower.take() is None
    put(file, 0, steps(9))
    assert follower.take().count == 4
    assert not follower.unit_changed


def test_an_optimizer_comes_before_a_bar(file):
    follower = StepFollower(file)
    put(file, 0, steps(100, source=BAR))
    follower.take()
    put(file, 1, steps(3, pid=1))
    assert follower.take() is not None
    assert (follower.source, follower.unit_changed) == (OPTIMIZER, True)


def test_of_ranks_one_is_followed_until_it_ends(file):
    follower = StepFollower(file)
    gone = subprocess.Popen(["true"])
    gone.wait()
    put(file, 0, steps(50, pid=gone.pid, ago_s=1.5))
    put(file, 1, steps(40, ago_s=1.5))
    assert follower.take().count == 50
    put(file, 1, steps(45))
    follower.take()
    put(file, 1, steps(47))
    assert follower.take().count == 2


def test_a_silent_process_gives_way_to_one_that_steps(file):
    follower = StepFollower(file)
    put(file, 0, steps(50, ago_s=100.0))
    follower.take()
    put(file, 1, steps(4, pid=1))
    follower.take()
    put(file, 1, steps(6, pid=1))
    assert follower.take().count == 2


def test_a_replaced_optimizer_changes_the_unit(file):
    follower = StepFollower(file)
    put(file, 0, steps(5))
    follower.take()
    put(file, 0, steps(50, replaced=1))
    follower.take()
    assert follower.unit_changed


def test_a_failure_is_returned_once(file):
    follower = StepFollower(file)
    assert follower.failure() is None
    os.pwrite(file.descriptor, b"OSError: bad", 8)
    assert follower.failure() == "OSError: bad"
    assert follower.failure() is None
