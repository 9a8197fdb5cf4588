"""Files for users: plain ones are replaced at once, everything else stays what it is."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
import threading

import pytest

from wattune.core.errors import InputError
from wattune.core.output_file import check_plain, check_writable, is_replaced, write_bytes, write_text

NULL = os.makedev(1, 3)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices")


@pytest.fixture
def mask():
    """Set the file mask of the process, and put it back."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664), (0, 0o666)])
def test_a_new_file_has_the_mode_of_the_mask(tmp_path, mask, umask, mode):
    mask(umask)
    write_text(tmp_path / "new", "text")
    assert mode_of(tmp_path / "new") == mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o666, 0o755])
def test_a_file_that_exists_keeps_its_mode(tmp_path, mask, mode):
    file = tmp_path / "old"
    file.write_text("before")
    file.chmod(mode)
    write_text(file, "after")
    assert (file.read_text(), mode_of(file)) == ("after", mode)
    assert os.listdir(tmp_path) == ["old"]


@needs_root
def test_root_leaves_a_file_to_its_owner(tmp_path):
    file = tmp_path / "old"
    file.write_text("before")
    os.chown(file, 1234, 2345)
    write_text(file, "after")
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 2345)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    for target in ("folder/there", "folder/not_yet"):
        link = tmp_path / "link"
        link.symlink_to(target)
        (tmp_path / "folder" / "there").write_text("before")
        check_writable(link)
        write_text(link, target)
        assert link.is_symlink()
        assert (tmp_path / target).read_text() == target
        link.unlink()


def test_a_failure_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    file = tmp_path / "old"
    file.write_text("before")

    def fail(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match=r"cannot write .*old: No space left on device"):
        write_text(file, "after")
    assert file.read_text() == "before"
    assert os.listdir(tmp_path) == ["old"]


@needs_root
def test_a_device_stays_a_device(tmp_path):
    device = tmp_path / "null"
    os.mknod(device, 0o600 | stat.S_IFCHR, NULL)
    check_writable(device)
    with contextlib.suppress(InputError):  # where the folder is mounted without devices, refusing is right too
        write_bytes(device, b"x" * 100_000)
    assert stat.S_ISCHR(device.stat().st_mode)
    assert device.stat().st_rdev == NULL
    assert os.listdir(tmp_path) == ["null"]


def test_a_pipe_is_written_through(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    check_writable(pipe)
    assert not is_replaced(pipe)
    opened = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    keep = os.open(pipe, os.O_WRONLY)  # without a writer the reader would end at once
    os.set_blocking(opened, True)

    def collect():
        with os.fdopen(opened, "rb") as stream:
            read.append(stream.read())

    reader = threading.Thread(target=collect)
    reader.start()
    write_bytes(pipe, b"y" * 200_000)
    os.close(keep)
    reader.join()
    assert read == [b"y" * 200_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_pipe_that_nobody_reads_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="cannot write"):
        write_bytes(tmp_path / "pipe", b"y")


def test_folders_and_sockets_are_refused_before_the_work(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path, what in ((tmp_path / "socket", "a socket"), (tmp_path, "a folder")):
            for act in (check_writable, lambda path: write_text(path, "text")):
                with pytest.raises(InputError, match=what):
                    act(path)


@needs_root
def test_a_disk_is_refused(tmp_path):
    os.mknod(tmp_path / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 250))
    with pytest.raises(InputError, match="a disk"):
        write_text(tmp_path / "disk", "text")


def test_what_is_continued_must_be_a_plain_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="no plain file"):
        check_plain(tmp_path / "pipe")
    check_plain(tmp_path / "new")


PRINTS = """
import sys
from pathlib import Path
from wattune.core.output_file import write_text
print("before")
write_text(Path(sys.argv[1]), "the file\\n")
print("after")
"""


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_in_a_file_keeps_what_else_is_printed(tmp_path, name):
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-c", PRINTS, name], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "before\nthe file\nafter\n"
    assert os.listdir(tmp_path) == ["out"]
