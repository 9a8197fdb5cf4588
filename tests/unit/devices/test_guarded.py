"""A guarded GPU claims, journals, restores and gives way."""

import logging
import os
import signal
import threading

import pytest

from fakes import FakeGpu
from wattune.core.errors import ConfigError, DeviceBusy, DeviceError, NoPermission, SettingRefused
from wattune.core.setting import Setting
from wattune.devices.guarded import GuardedGpu, held_signals, leaving_by_exception
from wattune.devices.journal import Journal


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "state")


def guarded(journal, gpu=None):
    return GuardedGpu(gpu or FakeGpu(), journal, "nvml:GPU-fake")


def test_reading_claims_nothing(journal):
    gpu = guarded(journal)
    gpu.read()
    gpu.count()
    gpu.apply(Setting())
    gpu.restore()
    assert not os.path.exists(journal.folder)


def test_each_value_is_in_the_journal_before_it_is_set(journal):
    class Suspicious(FakeGpu):
        def apply(self, setting):
            entry = journal.entry("GPU-fake")
            assert all(value in entry.ours[knob] for knob, value in self.wanted(setting).items())
            assert all(value in entry.ours[knob] for knob, value in self.wanted(self.setting).items())
            super().apply(setting)

    fake = Suspicious()
    gpu = guarded(journal, fake)
    for setting in (Setting(1005), Setting(900, power_limit_w=200), Setting(1410), Setting(900)):
        gpu.apply(setting)
    assert journal.entry("GPU-fake").ours == {"sm_clock": (1410, 900)}  # the driver has the limit back
    assert journal.entry("GPU-fake").found == {"power_limit": 400_000}
    gpu.restore()
    assert fake.history[-1] == ("undo", {"sm_clock": (900,)}, {"power_limit": 400_000})
    assert journal.left() == ()
    assert os.listdir(journal.folder) == []
    gpu.restore()
    assert sum(isinstance(step, tuple) for step in fake.history) == 1


def test_values_of_settings_that_failed_may_hold_too(journal):
    fake = FakeGpu()
    gpu = guarded(journal, fake)
    gpu.apply(Setting(1005))
    fake.fails = DeviceError("the driver failed half way")
    with pytest.raises(DeviceError):
        gpu.apply(Setting(900))
    assert journal.entry("GPU-fake").ours == {"sm_clock": (1005, 900)}
    gpu.restore()
    assert fake.history[-1][1] == {"sm_clock": (1005, 900)}


def test_a_refused_setting_leaves_no_claim(journal):
    gpu = guarded(journal)
    with pytest.raises(SettingRefused):
        gpu.apply(Setting(1000))
    assert journal.left() == ()
    assert journal.holders() == ()


def test_without_permission_nothing_is_undone_in_vain(journal):
    class Forbidden(FakeGpu):
        def undo(self, ours, found, *, since_s):
            raise NoPermission("not allowed")

    gpu = guarded(journal, Forbidden(fails=NoPermission("not allowed")))
    with pytest.raises(NoPermission):
        gpu.apply(Setting(900))
    gpu.restore()
    assert journal.left() == ()


def test_a_second_process_cannot_claim_the_gpu(journal):
    first, second = guarded(journal), guarded(journal)
    first.apply(Setting(900))
    with pytest.raises(DeviceBusy, match=str(os.getpid())) as caught:
        second.apply(Setting(1005))
    assert caught.value.hint
    first.restore()
    second.apply(Setting(1005))
    second.restore()


def test_what_somebody_else_has_set_is_reported_at_the_end(journal, caplog):
    class Changed(FakeGpu):
        def undo(self, ours, found, *, since_s):
            return ("its power limit is 120 W, set by somebody else",)

    gpu = guarded(journal, Changed())
    gpu.apply(Setting(power_limit_w=150))
    with caplog.at_level(logging.WARNING):
        gpu.restore()
    assert "120 W" in caplog.text
    assert "left as it is" in caplog.text


def test_an_entry_whose_owner_died_is_undone_before_the_claim_holds(journal):
    dead = guarded(journal)
    dead.apply(Setting(900))
    dead.disarm()  # as if the kernel had closed its files
    fake = FakeGpu()
    gpu = guarded(journal, fake)
    gpu.apply(Setting(1005))
    assert fake.history[:2] == [("undo", {"sm_clock": (900,)}, {"power_limit": 400_000}), "remembered"]
    gpu.restore()


def test_a_restore_that_failed_can_be_tried_again_and_its_error_is_raised_once(journal):
    class Stuck(FakeGpu):
        stuck = True

        def undo(self, ours, found, *, since_s):
            if self.stuck:
                raise DeviceError("it does not answer")
            return super().undo(ours, found, since_s=since_s)

    fake = Stuck()
    gpu = guarded(journal, fake)
    gpu.apply(Setting(900))
    for _ in range(2):
        with pytest.raises(DeviceError):
            gpu.restore()
    assert [holder.pid for holder in journal.holders()] == [os.getpid()]
    fake.stuck = False
    gpu.restore()
    assert (fake.setting, journal.left(), journal.holders()) == (Setting(), (), ())
    gpu.apply(Setting(900))
    fake.stuck = True
    with pytest.raises(DeviceError):
        gpu.close()
    assert (len(journal.left()), journal.holders()) == (1, ())  # the claim is free for `wattune restore`
    fake.stuck = False
    gpu.apply(Setting(900))
    fake.stuck = True
    with pytest.raises(DeviceError):
        gpu.restore()
    gpu.close()
    assert (len(journal.left()), journal.holders()) == (1, ())


def test_without_a_journal_the_gpu_is_not_set(tmp_path):
    (tmp_path / "state").write_text("a file where a folder should be")
    fake = FakeGpu()
    with pytest.raises(ConfigError, match="cannot use the folder"):
        guarded(Journal(tmp_path / "state"), fake).apply(Setting(900))
    assert fake.history == []


def test_on_a_full_disk_the_gpu_is_not_set(journal, tmp_path, monkeypatch):
    import errno

    def no_room(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fake = FakeGpu()
    gpu = guarded(journal, fake)
    monkeypatch.setattr("wattune.core.folder.os.fsync", no_room)
    with pytest.raises(ConfigError, match="No space left on device; the GPU was not set") as caught:
        gpu.apply(Setting(900))
    assert "WATTUNE_STATE" in caught.value.hint
    assert fake.history == ["remembered"]
    assert os.listdir(journal.folder) == []
    monkeypatch.undo()
    gpu.apply(Setting(900))
    gpu.restore()


def test_a_disk_that_fills_up_later_does_not_matter(journal):
    """A later value is written over the first, which needs no room."""
    gpu = guarded(journal)
    gpu.apply(Setting(900))
    file = os.path.join(journal.folder, "GPU-fake.journal")
    before = os.stat(file)
    gpu.apply(Setting(1005, power_limit_w=123))
    after = os.stat(file)
    assert (after.st_ino, after.st_size, after.st_blocks) == (before.st_ino, before.st_size, before.st_blocks)
    gpu.restore()


def in_child(work):
    """Run in a forked child and return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_leaves_gpu_lock_and_journal_to_its_parent(journal):
    fake = FakeGpu()
    gpu = guarded(journal, fake)
    gpu.apply(Setting(900))

    def child():
        gpu.restore()
        if fake.history[-1] != Setting(900):
            return 1
        try:
            gpu.apply(Setting(1005))
        except DeviceError as error:
            return 0 if "forked child" in error.message else 2
        return 3

    assert in_child(child) == 0
    assert journal.entry("GPU-fake") is not None
    assert [holder.pid for holder in journal.holders()] == [os.getpid()]
    gpu.restore()


def test_a_forked_child_does_not_keep_the_lock_of_its_parent(journal):
    gpu = guarded(journal)
    gpu.apply(Setting(900))
    asked, answer = os.pipe()
    forked, ready = os.pipe()
    pid = os.fork()
    if pid == 0:  # a worker that outlives its parent's tuning
        os.close(answer)
        os.write(ready, b"!")
        os.read(asked, 1)
        os._exit(0)
    assert os.read(forked, 1)
    os.close(forked)
    os.close(ready)
    gpu.disarm()  # as if this process had died
    os.close(asked)
    again = guarded(journal)
    again.apply(Setting(1005))
    again.restore()
    os.close(answer)
    os.waitpid(pid, 0)


def test_handlers_of_signals_are_not_inherited_by_a_forked_child():
    def child():
        return 0 if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else 1

    with leaving_by_exception():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert in_child(child) == 0
        with held_signals():
            assert in_child(child) == 0


def test_a_child_that_another_thread_forks_has_no_handlers_of_ours_either():
    codes = []

    def thread():
        codes.append(in_child(lambda: 0 if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else 1))

    with leaving_by_exception():
        worker = threading.Thread(target=thread)
        worker.start()
        worker.join()
    assert codes == [0]


def test_held_signals_are_delivered_at_the_end():
    steps = []

    def interval():
        with held_signals():
            signal.raise_signal(signal.SIGINT)
            steps.append("finished")

    with pytest.raises(KeyboardInterrupt):
        interval()
    assert steps == ["finished"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_sigterm_raises_and_its_handler_is_restored():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught, leaving_by_exception():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
