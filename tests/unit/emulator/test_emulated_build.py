"""Compiling the library: once, safely, and with a word of advice where it cannot be."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from wattune.core.errors import DeviceError, NotSupported
from wattune.emulator import library as library_module
from wattune.emulator.library import FLAGS, SOURCE, build_library, clock_library, load_library


def test_it_compiles_without_a_warning(tmp_path):
    sources = sorted(file.name for file in SOURCE.glob("*.c"))
    done = subprocess.run(
        ["cc", *FLAGS, "-Werror", "-fsyntax-only", *sources], cwd=SOURCE, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0


def test_the_cache_is_used_the_second_time(tmp_path):
    first = build_library(tmp_path)
    made = first.stat().st_mtime_ns
    assert build_library(tmp_path, compiler=str(tmp_path / "no-compiler")) == first
    assert first.stat().st_mtime_ns == made
    assert clock_library(first).exists()
    assert [path.name for path in tmp_path.iterdir()] == [first.parent.name]


def test_many_may_build_at_once(tmp_path, emulated_library):
    # A quick stand-in for the compiler: what is tested is that nobody sees a half-made folder.
    compiler = tmp_path / "cc"
    compiler.write_text(
        f"#!{sys.executable}\nimport shutil, sys\n"
        f"shutil.copy({str(emulated_library)!r}, sys.argv[sys.argv.index('-o') + 1])\n"
    )
    compiler.chmod(0o755)
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: build_library(tmp_path / "cache", compiler=str(compiler)), range(8)))
    assert len(set(paths)) == 1
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_without_a_compiler_the_hint_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(library_module.shutil, "which", lambda _: None)
    with pytest.raises(NotSupported, match="no C compiler") as caught:
        build_library(tmp_path)
    assert "apt-get install gcc" in caught.value.hint


def test_a_compiler_that_cannot_be_run(tmp_path):
    with pytest.raises(NotSupported, match="cannot run the C compiler"):
        build_library(tmp_path, compiler=str(tmp_path / "no-compiler"))


def test_a_compiler_that_fails_is_quoted_in_one_line(tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'x.c:1: error: no such header' >&2\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(DeviceError, match=r"no such header") as caught:
        build_library(tmp_path / "cache", compiler=str(compiler))
    assert "\n" not in caught.value.message
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DeviceError, match="cannot write the emulated library") as caught:
        build_library(tmp_path / "file" / "cache")
    assert "WATTUNE_CACHE" in caught.value.hint


def test_another_library_is_not_taken_for_ours(tmp_path):
    with pytest.raises(DeviceError, match="is not the emulated NVML library"):
        load_library(clock_library(tmp_path / "none"))
