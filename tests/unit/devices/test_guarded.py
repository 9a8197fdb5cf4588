"""A guarded GPU claims, journals, restores and gives way."""

import json
import os
import signal

import pytest

from fakes import FakeGpu
from wattune.core.errors import ConfigError, DeviceBusy, SettingRefused
from wattune.core.setting import Setting
from wattune.devices.guarded import GuardedGpu, held_signals, leaving_by_exception
from wattune.devices.journal import Entry, Journal


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "state")


def guarded(journal, gpu=None):
    return GuardedGpu(gpu or FakeGpu(), journal, "nvml:GPU-fake")


def test_reading_claims_nothing(journal):
    gpu = guarded(journal)
    gpu.read()
    gpu.count()
    gpu.restore()
    assert not journal.folder.exists()


def test_the_journal_is_written_before_the_gpu_is_set(journal):
    class Suspicious(FakeGpu):
        def apply(self, setting):
            assert set(setting.knobs) <= set(journal.entries()[0].touched)
            super().apply(setting)

    fake = Suspicious()
    gpu = guarded(journal, fake)
    gpu.apply(Setting(1005))
    gpu.apply(Setting(900, power_limit_w=200))
    assert journal.entries()[0].touched == ("power_limit", "sm_clock")
    gpu.restore()
    assert fake.history[-1] == ("undo", ("power_limit", "sm_clock"), {"power_limit_w": 400.0})
    assert journal.entries() == ()
    gpu.restore()
    assert sum(isinstance(step, tuple) for step in fake.history) == 1


def test_a_refused_setting_leaves_no_claim(journal):
    gpu = guarded(journal)
    with pytest.raises(SettingRefused):
        gpu.apply(Setting(1000))
    assert journal.entries() == ()


def test_a_second_process_cannot_claim_the_gpu(journal):
    first, second = guarded(journal), guarded(journal)
    first.apply(Setting(900))
    with pytest.raises(DeviceBusy, match=str(os.getpid())) as caught:
        second.apply(Setting(1005))
    assert caught.value.hint
    first.restore()
    second.apply(Setting(1005))
    second.restore()


def test_without_a_journal_the_gpu_is_not_set(tmp_path):
    (tmp_path / "state").write_text("a file where a folder should be")
    fake = FakeGpu()
    with pytest.raises(ConfigError, match="state folder"):
        guarded(Journal(tmp_path / "state"), fake).apply(Setting(900))
    assert fake.history == []


def test_an_entry_is_abandoned_once_its_lock_is_free(journal):
    claim = journal.claim("GPU-1", label="x")
    from wattune.devices.journal import boot_id

    claim.write(Entry("GPU-1", "nvml:GPU-1", ("sm_clock",), {"power_limit_w": None}, 1, boot_id()))
    with journal.abandoned("GPU-1") as left:
        assert left is None
    claim.release()
    with journal.abandoned("GPU-1") as left:
        assert left[1].touched == ("sm_clock",)


def test_entries_of_an_earlier_boot_are_erased(journal):
    claim = journal.claim("GPU-1", label="x")
    claim.write(Entry("GPU-1", "nvml:GPU-1", ("sm_clock",), {}, 1, "another boot"))
    claim.release()
    with journal.abandoned("GPU-1") as left:
        assert left is None
    assert journal.entries() == ()


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"uuid": "x"})])
def test_a_damaged_journal_is_named(journal, text):
    journal.folder.mkdir(parents=True)
    (journal.folder / "GPU-1.json").write_text(text)
    with pytest.raises(ConfigError, match=r"GPU-1\.json is damaged"):
        journal.entries()


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
