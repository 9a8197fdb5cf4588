"""Journal and locks: one damaged, hostile or foreign file blocks nothing else and is never believed."""

import os
import signal
import stat
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processes import wait_until
from wattune.core.errors import ConfigError, DeviceBusy, DeviceError, NoPermission
from wattune.devices.claim import Damaged
from wattune.devices.entry import KNOBS, SIZE, Entry, judge, judge_lock, parse, text_of
from wattune.devices.journal import Journal, boot_id
from wattune.devices.watchdog import restore_left

UUID = "GPU-7eed76e4-c678-5189-87c9-7386ef62d977"


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "state", tmp_path / "locks")


@pytest.fixture(autouse=True)
def locks(tmp_path):
    (tmp_path / "locks").mkdir(mode=0o755)
    return tmp_path / "locks"


def an_entry(uuid=UUID, *, pid=1, boot=None, found=None, ours=None):
    return Entry(
        uuid,
        f"nvml:{uuid}",
        pid=pid,
        boot_id=boot_id() if boot is None else boot,
        found={"power_limit": 400_000} if found is None else found,
        ours={"power_limit": (200_000,)} if ours is None else ours,
    )


def abandon(journal, entry=None):
    """Leave what a dead process leaves."""
    entry = entry or an_entry()
    claim = journal.claim(entry.uuid, label="x")
    claim.write(entry)
    claim.close()


def undo_nothing(entry, since_s):
    return ()


def entry_file(journal):
    return os.path.join(journal.folder, f"{UUID}.journal")


# entries


@given(
    st.dictionaries(st.sampled_from(sorted(KNOBS)), st.integers(1, 99_999_999)),
    st.dictionaries(
        st.sampled_from(sorted(KNOBS)), st.lists(st.integers(1, 99_999_999), min_size=1, max_size=8), max_size=5
    ),
    st.integers(1, 4_194_304),
)
def test_an_entry_is_read_as_it_was_written(found, ours, pid):
    entry = an_entry(pid=pid, found=found, ours=ours)
    again = parse(text_of(entry))
    for name in Entry.__slots__:
        assert getattr(again, name) == getattr(entry, name)


@given(st.binary(max_size=2 * SIZE))
def test_bytes_are_an_entry_or_a_value_error(data):
    with pytest.raises(ValueError, match=r"."):
        parse(data)


WHOLE = {
    "found": {"power_limit": 400_000, "app_sm_clock": 1300, "app_mem_clock": 900},
    "ours": {"power_limit": (200_000, 150_000), "sm_clock": (1005,), "app_sm_clock": (800,), "app_mem_clock": (900,)},
}


def is_safe(entry, whole):
    """Return whether an entry has nothing but what the whole one has, and no knob without what it is given back to."""
    same = (entry.uuid, entry.device, entry.boot_id) == (whole.uuid, whole.device, whole.boot_id)
    known = entry.found.items() <= whole.found.items() and entry.ours.items() <= whole.ours.items()
    certain = all(knob in entry.found for knob in entry.ours if knob != "sm_clock")
    return same and known and certain and ("app_sm_clock" in entry.ours) == ("app_mem_clock" in entry.ours)


@given(st.integers(0, SIZE - 1), st.integers(1, 255))
@settings(max_examples=400)
def test_a_changed_byte_is_noticed_and_only_what_is_intact_is_used(place, flips):
    whole = an_entry(**WHOLE)
    text = bytearray(text_of(whole))
    text[place] ^= flips
    try:
        entry = parse(bytes(text))
    except ValueError:
        return
    assert entry.damage
    assert is_safe(entry, whole)


@given(st.integers(0, SIZE - 1))
def test_an_entry_that_was_cut_short_is_noticed(end):
    whole = an_entry(**WHOLE)
    try:
        entry = parse(text_of(whole)[:end])
    except ValueError:
        return
    assert entry.damage
    assert is_safe(entry, whole)


@given(st.integers(0, 12), st.integers(0, 12), st.sampled_from(["missing", "of another GPU", "of another boot"]))
def test_a_line_that_is_missing_or_of_another_entry_is_noticed(place, other, kind):
    whole = an_entry(**WHOLE)
    strange = {"of another GPU": an_entry("GPU-other", **WHOLE), "of another boot": an_entry(boot="other", **WHOLE)}
    lines = text_of(whole).split(b"\n")
    lines[place : place + 1] = [] if kind == "missing" else [text_of(strange[kind]).split(b"\n")[other]]
    text = b"\n".join(lines).ljust(SIZE)[:SIZE]
    if text == text_of(whole):  # the first line, which all entries share
        return
    try:
        entry = parse(text)
    except ValueError:
        return
    assert entry.damage
    assert is_safe(entry, whole)


def test_an_entry_of_an_earlier_version_is_not_believed():
    lines = [line.rpartition(b" ")[0] or line for line in text_of(an_entry()).rstrip().split(b"\n")]
    text = b"\n".join([b"wattune-journal 2", *lines[1:-1], b"end", b""]).ljust(SIZE)
    with pytest.raises(ValueError, match="another version of wattune wrote it"):
        parse(text)


@pytest.mark.parametrize(
    "line",
    [
        "found power_limit 1e9",
        "found power_limit -5",
        "found power_limit 999999999999",
        "found fan_speed 5",
        "found power_limit 1 2",
        "ours sm_clock",
        "ours sm_clock 1 2 3 4 5 6 7 8 9",
    ],
)
def test_a_line_that_does_not_belong_is_refused(line):
    from wattune.devices.entry import _sum

    whole = an_entry(found={}, ours={})
    lines = text_of(whole).decode().rstrip(" ").split("\n")
    text = "\n".join([*lines[:-2], f"{line} {_sum(line, whole.uuid, whole.boot_id)}", *lines[-2:]]).encode()
    with pytest.raises(ValueError, match=r"."):
        parse(text.ljust(SIZE))


def test_the_rule_by_which_knobs_are_undone():
    assert judge((150,), 300, 150) == "undo"
    assert judge((100, 150), 300, 100) == "undo"
    assert judge((150,), 300, 120) == "foreign"
    assert judge((150,), 300, 300) == "done"
    assert judge((150,), 300, None) == "undo"
    assert judge_lock((900, 1005), 1005) == "undo"
    assert judge_lock((900, 1005), 1006) == "undo"  # rounded by the driver
    assert judge_lock((900, 1005), 210) == "undo"
    assert judge_lock((900, 1005), None) == "undo"
    assert judge_lock((900, 1005), 1410) == "foreign"


# what dead processes left


def test_an_entry_is_left_once_its_lock_is_free(journal):
    claim = journal.claim(UUID, label="x")
    claim.write(an_entry(pid=os.getpid()))
    assert restore_left(journal, undo_nothing) == ()
    claim.close()
    (outcome,) = restore_left(journal, undo_nothing)
    assert (outcome.device, outcome.error) == (f"nvml:{UUID}", None)
    assert journal.left() == ()
    assert os.listdir(journal.lock_folder) == []


def test_entries_of_an_earlier_boot_are_erased(journal):
    abandon(journal, an_entry(boot="another"))
    assert restore_left(journal, undo_nothing) == ()
    assert journal.left() == ()


@pytest.mark.parametrize("data", [b"", b"{", b"\x00" * SIZE, b"x" * (SIZE + 1), text_of(an_entry("GPU-other"))])
def test_a_damaged_entry_is_kept_aside_and_blocks_no_other(journal, data):
    abandon(journal, an_entry("GPU-good"))
    abandon(journal)
    with open(entry_file(journal), "wb") as stream:
        stream.write(data)
    damaged, good = restore_left(journal, undo_nothing)
    assert isinstance(damaged.error, ConfigError)
    assert "is damaged" in damaged.error.message
    assert damaged.error.hint
    assert (good.device, good.error) == ("nvml:GPU-good", None)
    (kept,) = os.listdir(journal.folder)
    assert kept.startswith(f"{UUID}.damaged-")
    assert restore_left(journal, undo_nothing) == ()


def test_a_gpu_with_a_damaged_entry_can_be_claimed(journal):
    from fakes import FakeGpu
    from wattune.core.setting import Setting
    from wattune.devices.guarded import GuardedGpu

    abandon(journal, an_entry("GPU-fake"))
    with open(os.path.join(journal.folder, "GPU-fake.journal"), "w") as stream:
        stream.write("nonsense")
    gpu = GuardedGpu(FakeGpu(), journal, "nvml:GPU-fake")
    gpu.apply(Setting(900))
    gpu.restore()
    assert [name.partition("-")[0] for name in os.listdir(journal.folder)] == ["GPU"]


def test_claim_and_restore_wait_for_a_restorer(journal):
    """Whoever holds the lock of an entry that is not its own restores the GPU, and is done soon."""
    abandon(journal)
    restorer = subprocess.Popen(
        [sys.executable, "-c", RESTORER, journal.folder, journal.lock_folder, UUID],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with restorer:
        assert restorer.stdout.readline() == "holds\n"
        assert [holder.pid for holder in journal.holders()] == [restorer.pid]
        restorer.stdin.close()
        assert restore_left(journal, undo_nothing) == ()  # the other one has done it
        assert journal.left() == ()


RESTORER = """
import sys, time
from wattune.devices.journal import Journal
from wattune.devices.watchdog import restore_left

def undo(entry, since_s):
    print("holds", flush=True)
    sys.stdin.read()
    time.sleep(0.05)
    return ()

restore_left(Journal(*sys.argv[1:3]), undo)
"""


# hostile files


def test_a_symbolic_link_in_place_of_an_entry_is_not_followed(journal, tmp_path):
    abandon(journal)
    (tmp_path / "elsewhere").write_bytes(text_of(an_entry()))
    os.unlink(entry_file(journal))
    os.symlink(tmp_path / "elsewhere", entry_file(journal))
    (outcome,) = restore_left(journal, undo_nothing)
    assert "is damaged" in outcome.error.message
    assert (tmp_path / "elsewhere").read_bytes() == text_of(an_entry())


def test_a_second_name_of_a_file_is_not_believed(journal, tmp_path):
    abandon(journal)
    os.link(entry_file(journal), tmp_path / "second")
    claim = journal.claim(UUID, label="x")
    (left,) = claim.left()
    with pytest.raises(Damaged, match="second name"):
        left.read()
    claim.release()


def test_an_entry_that_others_may_write_is_not_believed(journal):
    abandon(journal)
    os.chmod(entry_file(journal), 0o666)
    (outcome,) = restore_left(journal, undo_nothing)
    assert "other users may write it" in outcome.error.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_entry_of_another_user_is_not_believed(journal):
    abandon(journal)
    os.chown(entry_file(journal), 65534, 65534)
    (outcome,) = restore_left(journal, undo_nothing)
    assert "another user" in outcome.error.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_folder_of_another_user_is_not_used(journal):
    abandon(journal)
    os.chown(journal.folder, 65534, 65534)
    with pytest.raises(ConfigError, match="another user") as caught:
        journal.claim(UUID, label="x")
    assert "WATTUNE_STATE" in caught.value.hint


def test_a_linked_state_folder_is_refused(journal, tmp_path):
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", journal.folder)
    with pytest.raises(ConfigError, match="symbolic link"):
        journal.claim(UUID, label="x")


def test_a_new_state_folder_is_closed_to_others_and_an_open_one_is_closed(journal):
    journal.claim(UUID, label="x").release()
    assert stat.S_IMODE(os.stat(journal.folder).st_mode) == 0o700
    os.chmod(journal.folder, 0o775)
    journal.claim(UUID, label="x").release()
    assert stat.S_IMODE(os.stat(journal.folder).st_mode) == 0o755


@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)])
def test_what_is_planted_in_place_of_a_lock_is_neither_followed_nor_waited_for(journal, locks, plant):
    plant(locks / f"wattune-{UUID}.lock")
    with pytest.raises(ConfigError, match="cannot use the lock") as caught:
        journal.claim(UUID, label="x")
    assert caught.value.hint


# users of one machine


def test_users_with_folders_of_their_own_see_each_others_claims(tmp_path, locks):
    first, second = Journal(tmp_path / "first", locks), Journal(tmp_path / "second", locks)
    claim = first.claim(UUID, label="the GPU")
    claim.write(an_entry(pid=os.getpid()))
    assert [(holder.name, holder.pid) for holder in second.holders()] == [(UUID, os.getpid())]
    claim.release()
    second.claim(UUID, label="the GPU").release()


def as_nobody(work):
    """Run in a forked child without privilege and return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            code = work() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def open_to_all(tmp_path, locks):
    """Let other users reach the folders of the test."""
    os.chmod(locks, 0o1777)
    folder = tmp_path
    while folder != folder.parent:
        if os.stat(folder).st_uid == os.geteuid() and folder.stat().st_mode & 0o001 == 0:
            os.chmod(folder, 0o755)
        folder = folder.parent


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_without_privilege_sees_roots_claim_and_cannot_take_it(journal, tmp_path, locks, open_to_all):
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    claim = journal.claim(UUID, label="the GPU")
    claim.write(an_entry(pid=os.getpid()))

    def child():
        theirs = Journal(tmp_path / "theirs" / "state", locks)
        if [holder.pid for holder in theirs.holders()] != [os.getppid()]:
            return 1
        if restore_left(Journal(tmp_path / "theirs" / "state", locks), undo_nothing) != ():
            return 2
        try:
            theirs.claim(UUID, label="the GPU")
        except DeviceBusy as error:
            return 0 if str(os.getppid()) in error.message else 3
        return 4

    assert as_nobody(child) == 0
    claim.close()  # root's process dies

    def later():
        try:
            Journal(tmp_path / "theirs" / "state", locks).claim(UUID, label="the GPU")
        except NoPermission as error:
            return 0 if "root's and has died" in error.message and "sudo wattune restore" in error.hint else 5
        return 6

    assert as_nobody(later) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_without_privilege_opens_gpus_although_the_state_folder_is_roots(journal, locks, open_to_all, tmp_path):
    from wattune.devices.open import Surroundings, open_gpus

    claim = journal.claim(UUID, label="the GPU")
    claim.write(an_entry(pid=os.getpid()))
    around = Surroundings(tmp_path / "state", lock_dir=locks)

    def child():
        with open_gpus(("sim:a100",), around) as gpus:
            gpus[0].count()
        return 0

    assert as_nobody(child) == 0
    claim.release()


def test_without_a_folder_for_all_users_the_state_folder_has_the_locks(tmp_path):
    journal = Journal(tmp_path / "state", tmp_path / "nowhere")
    claim = journal.claim(UUID, label="x")
    assert [holder.name for holder in journal.holders()] == [UUID]
    claim.release()
    assert os.listdir(tmp_path / "state") == []


# what a process with another folder left


def undone(journal):
    """Restore what is left; return what was undone as (found, ours), and the outcomes."""
    done = []
    outcomes = restore_left(journal, lambda entry, _: done.append((entry.found, entry.ours)) or ())
    return done, outcomes


def test_a_newer_claim_continues_what_an_older_one_with_another_folder_found(tmp_path, locks):
    from fakes import FakeGpu
    from wattune.core.setting import Setting
    from wattune.devices.guarded import GuardedGpu

    first, second = Journal(tmp_path / "first", locks), Journal(tmp_path / "second", locks)
    abandon(first, an_entry("GPU-fake", found={"power_limit": 400_000}, ours={"power_limit": (250_000,)}))
    fake = FakeGpu()
    gpu = GuardedGpu(fake, second, "nvml:GPU-fake")
    gpu.apply(Setting(900))
    assert fake.history[:2] == [("undo", {"power_limit": (250_000,)}, {"power_limit": 400_000}), "remembered"]
    assert (first.left(), second.left()) == ((), ("GPU-fake",))
    gpu.restore()
    assert [*os.listdir(first.folder), *os.listdir(second.folder), *os.listdir(locks)] == []


def test_restore_finds_what_was_left_in_another_folder_and_keeps_what_fails(tmp_path, locks):
    first, second = Journal(tmp_path / "first", locks), Journal(tmp_path / "second", locks)
    abandon(first)

    def failing(entry, since_s):
        raise DeviceError("the GPU does not answer")

    (outcome,) = restore_left(second, failing)
    assert (outcome.device, str(outcome.error)) == (f"nvml:{UUID}", "the GPU does not answer")
    done, (outcome,) = undone(second)
    assert done == [({"power_limit": 400_000}, {"power_limit": (200_000,)})]
    assert (outcome.error, outcome.user, first.left(), os.listdir(locks)) == (None, None, (), [])
    assert undone(second) == ([], ())


def test_what_was_left_in_another_folder_is_seen_without_a_claim(tmp_path, locks):
    first, second = Journal(tmp_path / "first", locks), Journal(tmp_path / "second", locks)
    claim = first.claim(UUID, label="x")
    claim.write(an_entry())
    assert first.abandoned() == second.abandoned() == {}  # its owner lives
    claim.close()
    assert [*first.abandoned()] == [*second.abandoned()] == [UUID]
    entry = second.abandoned()[UUID]
    assert entry is not None
    assert entry.ours == {"power_limit": (200_000,)}
    undone(second)
    assert first.abandoned() == second.abandoned() == {}


def test_a_folder_that_has_gone_is_reported_until_the_gpu_is_tuned_again(tmp_path, locks):
    abandon(Journal(tmp_path / "first", locks))
    os.rename(tmp_path / "first", tmp_path / "elsewhere")
    done, (outcome,) = undone(Journal(tmp_path / "second", locks))
    assert done == []
    assert f"its journal cannot be read: there is no folder {tmp_path}/first" in outcome.error.message
    assert outcome.error.hint
    second = Journal(tmp_path / "second", locks)
    assert len(undone(second)[1]) == 1
    claim = second.claim(UUID, label="x")
    claim.write(an_entry(pid=os.getpid()))
    claim.erase()
    claim.release()
    assert undone(second) == ([], ())


def test_of_two_entries_the_newer_one_is_undone_first(tmp_path, locks):
    first, second = Journal(tmp_path / "first", locks), Journal(tmp_path / "second", locks)
    abandon(second, an_entry(found={"power_limit": 400_000}, ours={"power_limit": (300_000,)}))
    os.unlink(locks / f"wattune-{UUID}.lock")  # an administrator has cleared the folder
    abandon(first, an_entry(found={"power_limit": 300_000}, ours={"power_limit": (250_000,)}))
    done, _ = undone(second)
    assert [found["power_limit"] for found, _ in done] == [300_000, 400_000]


def test_a_folder_that_two_paths_lead_to_is_one(tmp_path, locks):
    abandon(Journal(tmp_path / "state", locks))
    (tmp_path / "again").symlink_to(tmp_path)
    assert len(undone(Journal(tmp_path / "again" / "state", locks))[0]) == 1


def test_a_claim_that_fails_does_not_forget_where_the_entry_is(tmp_path, locks):
    first = Journal(tmp_path / "first", locks)
    abandon(first)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError):
        Journal(tmp_path / "file", locks).claim(UUID, label="x")
    assert len(undone(Journal(tmp_path / "second", locks))[0]) == 1


def test_a_damaged_entry_is_reported_and_what_is_intact_is_undone(journal):
    abandon(journal, an_entry(ours={"power_limit": (200_000,), "sm_clock": (1005,)}))
    with open(entry_file(journal), "r+b") as stream:
        text = stream.read()
        stream.seek(text.index(b"400000"))
        stream.write(b"9")
    done, (outcome,) = undone(journal)
    assert done == [({}, {"sm_clock": (1005,)})]
    assert "is damaged: a line is missing or was altered; restored by what is intact: core clock" in str(outcome.error)
    assert journal.left() == ()
    assert any(".damaged-" in name for name in os.listdir(journal.folder))


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def theirs(tmp_path, locks, open_to_all):
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    return Journal(tmp_path / "theirs" / "state", locks)


@as_root
def test_root_undoes_what_another_user_left_and_owns_the_gpu_then(journal, theirs):
    assert as_nobody(lambda: abandon(theirs)) == 0
    entry = journal.abandoned()[UUID]
    assert entry is not None
    assert entry.ours == {"power_limit": (200_000,)}
    claim = journal.claim(UUID, label="x")
    assert [left.user for left in claim.left()] == [65534]
    claim.release()
    done, (outcome,) = undone(journal)
    assert done == [({"power_limit": 400_000}, {"power_limit": (200_000,)})]
    assert (outcome.error, outcome.user) == (None, 65534)
    assert [*os.listdir(theirs.folder), *os.listdir(journal.folder), *os.listdir(journal.lock_folder)] == []


@as_root
def test_the_lock_that_root_takes_over_is_roots(journal, theirs):
    assert as_nobody(lambda: abandon(theirs)) == 0
    claim = journal.claim(UUID, label="x")
    for left in claim.left():
        left.erase()
    claim.write(an_entry(pid=os.getpid()))
    claim.close()  # root's process dies

    def child():
        if theirs.abandoned() != {UUID: None}:  # not theirs to read
            return 3
        if [str(outcome.error) for outcome in restore_left(theirs, undo_nothing)] != [
            f"the last process that tuned {UUID} was root's and has died"
        ]:
            return 1
        return 0 if theirs.left() == () else 2

    assert as_nobody(child) == 0
    assert len(undone(journal)[0]) == 1


@as_root
@pytest.mark.parametrize("trick", ["the folder of somebody else", "a link", "a second name", "writable by all"])
def test_root_believes_nothing_that_a_user_did_not_write_in_a_folder_of_its_own(journal, theirs, tmp_path, trick):
    other = Journal(tmp_path / "other", tmp_path / "none")
    abandon(other, an_entry(found={"power_limit": 100_000}))
    assert as_nobody(lambda: abandon(theirs)) == 0
    entry = f"{theirs.folder}/{UUID}.journal"
    match trick:
        case "the folder of somebody else":
            os.chown(other.folder, 1, 1)
            lock = os.open(f"{theirs.lock_folder}/wattune-{UUID}.lock", os.O_RDWR)
            os.truncate(lock, 0)
            os.write(lock, f"{other.folder}\n".encode())
            os.close(lock)
        case "a link":
            os.unlink(entry)
            os.symlink(f"{other.folder}/{UUID}.journal", entry)
        case "a second name":
            os.unlink(entry)
            os.link(f"{other.folder}/{UUID}.journal", entry)
        case "writable by all":
            os.chmod(entry, 0o666)
    done, (outcome,) = undone(journal)
    assert done == []
    assert isinstance(outcome.error, ConfigError)
    assert f"{UUID}.journal" in os.listdir(other.folder)


@as_root
def test_a_lock_with_a_second_name_is_not_written(journal, tmp_path, locks, open_to_all):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    os.link(victim, locks / f"wattune-{UUID}.lock")
    with pytest.raises(ConfigError, match="second name"):
        journal.claim(UUID, label="x")
    assert victim.read_text() == "mine"


# who holds a GPU

HOLDER = """
import os, sys
from wattune.devices.journal import Journal
claim = Journal(*sys.argv[1:3]).claim(sys.argv[3], label="x")
print("holds", flush=True)
sys.stdin.read()
"""


def test_a_stopped_holder_is_shown_with_its_state_and_age(journal):
    command = [sys.executable, "-c", HOLDER, journal.folder, journal.lock_folder, UUID]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "holds\n"
        (holder,) = journal.holders()
        assert (holder.pid, holder.state, holder.user) == (process.pid, "running", os.geteuid())
        assert holder.age_s >= 0
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: journal.holders()[0].state == "stopped")
        process.send_signal(signal.SIGCONT)
        process.stdin.close()
    assert journal.holders() == ()


def test_entries_are_protected_whoever_shares_their_folder(tmp_path):
    """Two containers share a state folder, and each has a folder of its own for locks."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = Journal(tmp_path / "state", tmp_path / "one"), Journal(tmp_path / "state", tmp_path / "two")
    claim = first.claim(UUID, label="x")
    claim.write(an_entry(pid=os.getpid()))
    assert restore_left(second, undo_nothing) == ()
    with pytest.raises(DeviceBusy):
        second.claim(UUID, label="x")
    claim.erase()
    claim.release()
    assert [os.listdir(tmp_path / name) for name in ("state", "one", "two")] == [[], [], []]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_lock_folder_that_only_root_may_write_still_shows_roots_claim(journal, tmp_path, locks, open_to_all):
    os.chmod(locks, 0o755)
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    theirs = Journal(tmp_path / "theirs" / "state", locks)

    def child():
        try:
            theirs.claim(UUID, label="the GPU").release()
        except DeviceBusy as error:
            return 1 if str(os.getppid()) in error.message else 2
        return 0

    assert as_nobody(child) == 0
    claim = journal.claim(UUID, label="the GPU")
    assert as_nobody(child) == 1
    claim.release()


def test_a_lock_without_an_entry_is_removed_by_the_next_start(journal):
    """Its owner died between the claim and the entry."""
    journal.claim(UUID, label="x").close()
    assert len(os.listdir(journal.lock_folder)) == len(os.listdir(journal.folder)) == 1
    held = journal.claim("GPU-held", label="x")
    assert restore_left(journal, undo_nothing) == ()
    assert os.listdir(journal.lock_folder) == os.listdir(journal.folder) == ["wattune-GPU-held.lock"]
    held.release()


def test_while_an_entry_stays_its_lock_keeps_other_users_out(journal):
    def failing(entry, since_s):
        raise DeviceError("the GPU does not answer")

    abandon(journal)
    (outcome,) = restore_left(journal, failing)
    assert isinstance(outcome.error, DeviceError)
    assert os.listdir(journal.lock_folder) == [f"wattune-{UUID}.lock"]
    assert journal.holders() == ()


def test_where_the_kernel_does_not_name_the_holder_the_entry_does(journal, monkeypatch):
    monkeypatch.setattr("wattune.devices.locks.LOCKS", os.devnull)
    claim = journal.claim(UUID, label="x")
    claim.write(an_entry(pid=os.getpid()))
    with pytest.raises(DeviceBusy, match=str(os.getpid())):
        journal.claim(UUID, label="x")
    claim.release()
