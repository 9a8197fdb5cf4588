"""Each thing that may be wrong with a machine gets a line and the command that fixes it."""

from dataclasses import replace

import pytest

from wattune.cli.doctor import Facts, diagnose, gather, once_for_all_gpus
from wattune.core.errors import ConfigError, DeviceNotFound, StoreError
from wattune.devices.entry import Entry
from wattune.devices.journal import Journal, boot_id
from wattune.devices.locks import Holder
from wattune.devices.nvml.describe import DriverExam, GpuExam

GOOD_GPU = GpuExam(0, "A100", limit_settable="yes", persistent=True)
GOOD = Facts(
    driver=DriverExam(version="570.1", gpus=(GOOD_GPU,)),
    visible=None,
    in_container=False,
    has_sys_admin=True,
    rapl_present=True,
    rapl_readable=True,
    compiler="/usr/bin/cc",
    abandoned=(),
    held=(),
    state_problem=None,
    store_failure=None,
)


def holder(state):
    return Holder(4711, state=state, age_s=300.0, user=0, owner=0).named("GPU-1")


def with_gpu(facts=GOOD, **changes):
    return replace(facts, driver=replace(facts.driver, gpus=(replace(GOOD_GPU, **changes),)))


def test_a_good_machine_has_no_problems():
    findings = diagnose(GOOD)
    assert {finding.level for finding in findings} == {"ok"}
    assert [finding.topic for finding in findings] == ["driver", "GPU 0", "CPU energy", "emulator", "journal", "store"]


@pytest.mark.parametrize(
    ("facts", "topic", "level", "line", "fix"),
    [
        (
            replace(GOOD, driver=DriverExam(failure=DeviceNotFound("no driver", hint="install it"))),
            "driver",
            "problem",
            "no driver",
            "install it",
        ),
        (replace(GOOD, driver=DriverExam(version="570.1")), "driver", "problem", "finds no GPU", "lspci"),
        (with_gpu(lost="GPU is lost"), "GPU 0", "problem", "does not answer", "--gpu-reset"),
        (replace(GOOD, has_sys_admin=False), "GPU 0", "problem", "no permission", "sudo"),
        (
            replace(GOOD, in_container=True, has_sys_admin=False),
            "GPU 0",
            "problem",
            "lacks SYS_ADMIN",
            "--cap-add SYS_ADMIN",
        ),
        (with_gpu(limit_settable="not supported"), "GPU 0", "note", "laptop", "--knob sm-clock"),
        (with_gpu(mig=True), "GPU 0", "note", "MIG", "-mig 0"),
        (with_gpu(persistent=False), "GPU 0", "note", "persistence mode", "-pm 1"),
        (with_gpu(has_counter=False), "GPU 0", "note", "no energy counter", "10 s"),
        (replace(GOOD, visible=""), "visible GPUs", "problem", "every GPU is hidden", "unset CUDA_VISIBLE_DEVICES"),
        (replace(GOOD, rapl_readable=False), "CPU energy", "note", "only root may read", "chmod a+r"),
        (
            replace(GOOD, rapl_readable=False, rapl_present=False),
            "CPU energy",
            "note",
            "not measured",
            "modprobe intel_rapl_msr",
        ),
        (replace(GOOD, compiler=None), "emulator", "note", "no C compiler", "apt install gcc"),
        (replace(GOOD, abandoned=("nvml:GPU-1",)), "journal", "problem", "nvml:GPU-1", "wattune restore"),
        (
            replace(GOOD, abandoned=ConfigError("the journal is damaged", hint="remove it")),
            "journal",
            "problem",
            "damaged",
            "remove it",
        ),
        (replace(GOOD, state_problem="/var is full"), "journal", "problem", "/var is full", "WATTUNE_STATE"),
        (replace(GOOD, held=(holder("stopped"),)), "claim", "problem", "(stopped, for 5 min)", "kill -CONT 4711"),
        (
            replace(GOOD, store_failure=StoreError("the disk is full", hint="free some space")),
            "store",
            "problem",
            "the disk is full",
            "free some space",
        ),
    ],
)
def test_each_fault_gets_a_line_and_a_fix(facts, topic, level, line, fix):
    faults = [finding for finding in diagnose(facts) if finding.level != "ok"]
    assert [(fault.topic, fault.level) for fault in faults] == [(topic, level)]
    assert line in faults[0].line
    assert fix in faults[0].fix


def test_a_running_holder_is_no_fault():
    findings = diagnose(replace(GOOD, held=(holder("running"),)))
    (claim,) = (finding for finding in findings if finding.topic == "claim")
    assert (claim.level, claim.line) == ("ok", "GPU-1 is held by process 4711 (running, for 5 min)")


def facts_of(journal):
    return gather(journal, visible=None, store_failure=None)


def test_the_journal_of_a_dead_process_is_reported_and_kept(tmp_path, emulated_node):
    emulated_node("a100")
    journal = Journal(tmp_path / "state")
    claim = journal.claim("GPU-1", label="GPU-1")
    entry = Entry("GPU-1", "nvml:GPU-1", pid=1, boot_id=boot_id(), found={}, ours={"sm_clock": (900,)})
    claim.write(entry)
    assert facts_of(journal).abandoned == ()
    claim.close()
    before = files(tmp_path / "state")
    facts = facts_of(journal)
    assert facts.abandoned == ("nvml:GPU-1",)
    assert facts.driver.emulated
    assert files(tmp_path / "state") == before


def files(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_a_damaged_journal_is_reported(tmp_path, emulated_node):
    emulated_node("a100")
    (tmp_path / "GPU-1.journal").write_text("{")
    assert facts_of(Journal(tmp_path)).abandoned == ("GPU-1",)


def test_a_read_only_or_full_disk_is_reported(tmp_path, emulated_node, monkeypatch):
    import os

    emulated_node("a100")
    real = os.statvfs(tmp_path)

    class Disk:
        f_flag, f_blocks, f_bavail, f_files, f_favail = real.f_flag, 100, 0, 100, 100

    monkeypatch.setattr("wattune.cli.doctor.os.statvfs", lambda _: Disk)
    assert "is full" in facts_of(Journal(tmp_path / "state")).state_problem
    Disk.f_flag |= os.ST_RDONLY
    assert "read-only" in facts_of(Journal(tmp_path / "state")).state_problem


def test_what_is_alike_on_eight_gpus_is_one_line():
    gpus = tuple(replace(GOOD_GPU, index=index, persistent=index == 3) for index in range(8))
    facts = replace(GOOD, driver=replace(GOOD.driver, gpus=gpus), has_sys_admin=False)
    findings = diagnose(facts)
    assert sum("no permission" in finding.line for finding in findings) == 8
    shown = [finding for finding in once_for_all_gpus(findings) if finding.topic.startswith("GPU")]
    assert [finding.topic for finding in shown] == ["GPUs 0, 1, 2, 3, 4, 5, 6, 7", "GPUs 0, 1, 2, 4, 5, 6, 7"]
    assert shown[1].fix == "sudo nvidia-smi -i 0,1,2,4,5,6,7 -pm 1"
