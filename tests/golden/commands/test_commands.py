"""What every command prints: at 80 columns, as JSON, its exit code, and its pages reduced to their text.

`cases.toml` lists the cases, and `expected` has what they print, one file per command.
`python tests/golden/commands/test_commands.py [COMMAND…]` writes these files again; check the difference.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import json
import os
import re
import shlex
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import click
import pytest

from wattune._version import __version__
from wattune.cli.main import COMMANDS, main, wattune
from wattune.devices.entry import Entry
from wattune.devices.journal import Journal, boot_id
from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.emulator.library import build_library
from wattune.emulator.node import Node, emulated
from wattune.physics.catalog import load_model

HERE = Path(__file__).parent
FILES, EXPECTED = HERE / "files", HERE / "expected"
CASES = {
    f"{command} {name}": case
    for command, cases in tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8")).items()
    for name, case in cases.items()
}
LONGEST = 5
"""The most items of a list in JSON that are written out."""
WIDTH = 118


def cache_folder():
    return Path(tempfile.gettempdir()) / f"wattune-tests-{os.getuid()}"


# running


def record(case, folder):
    """Run the lines of a case in a folder, and return what they print, as it is compared."""
    shutil.copytree(FILES, folder, dirs_exist_ok=True)
    parts = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(surroundings(folder, case))
        if "node" in case:
            stack.enter_context(node_of(case, folder))
        if case.get("store"):
            fill_store(folder / "history.db")
        for line in case["lines"]:
            pid = stack.enter_context(background(case["background"])) if "{pid}" in line else 0
            words = shlex.split(line.replace("{pid}", str(pid)))
            code, out, err = in_this_process(words)
            parts += [f"$ wattune {line}", f"exit code {code}", *outputs(case, out, err, folder)]
        parts += [page for name in case.get("pages", ()) for page in ("page " + name, page_text(case, name, folder))]
    return "\n".join(parts)


@contextlib.contextmanager
def surroundings(folder, case):
    """Set the environment of a command, of which nothing is the user's, and restore it."""
    before = dict(os.environ)
    own = {name: value for name, value in before.items() if not name.startswith(("WATTUNE_", "CUDA_", "LC_", "XDG_"))}
    own |= {
        "WATTUNE_STORE": str(folder / "history.db"),
        "WATTUNE_STATE": str(folder / "state"),
        "WATTUNE_LOCKS": str(folder / "locks"),
        "WATTUNE_CONFIG": str(folder / "config.toml"),
        "WATTUNE_CACHE": str(cache_folder()),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "COLUMNS": "80",
        "LINES": "40",
        "TERM": "dumb",
        "PATH": f"{Path(sys.executable).parent}:{before['PATH']}",
        **case.get("environment", {}),
    }
    try:
        os.environ.clear()
        os.environ.update(own)
        time.tzset()
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        time.tzset()


@contextlib.contextmanager
def node_of(case, folder):
    """Make NVML in this process use GPUs of an emulated node; a setup may leave something on the first."""
    gpus = [EmulatedGpu.of(load_model(name), index) for index, name in enumerate(case["node"])]
    clock = "wall" if case.get("real") else "virtual"
    (folder / "node").mkdir()
    with Node.create(folder / "node" / "gpus", gpus, library=build_library(cache_folder()), clock=clock) as node:
        os.environ["LD_LIBRARY_PATH"] = str(node.library.parent)
        with emulated(node):
            if case.get("abandoned"):
                abandon(folder, gpus[0].spec.uuid)
            yield


def abandon(folder, uuid):
    """Leave what a process leaves that was killed after it limited a GPU, found at 300 W, to what it has now."""
    claim = Journal(folder / "state", folder / "locks").claim(uuid, label=uuid)
    left = {"found": {"power_limit": 300_000}, "ours": {"power_limit": (400_000,)}}
    claim.write(Entry(uuid, f"nvml:{uuid}", pid=4711, boot_id=boot_id(), **left))
    claim.close()


def fill_store(path):
    connection = sqlite3.connect(path)
    connection.executescript((HERE / "store.sql").read_text(encoding="utf-8"))
    connection.close()


@contextlib.contextmanager
def background(line):
    process = subprocess.Popen(shlex.split(line), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def in_this_process(words):
    """Run a command here, where what is slow to import is there already: its exit code, and both outputs.

    Programs that it starts write to the same files.
    """
    streams, code = (sys.stdout, sys.stderr), 0
    for stream in streams:
        stream.flush()
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in streams]
        for number, file in enumerate(files, 1):
            kept = os.dup(number)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, number)
            os.dup2(file.fileno(), number)
        try:
            main(words)
        except SystemExit as end:
            code = end.code
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            sys.stdout, sys.stderr = streams
        for file in files:
            file.seek(0)
        return code, *(file.read().decode() for file in files)


# what is compared


def outputs(case, out, err, folder):
    """The lines for standard output and standard error, each left out where it is empty."""
    for name, text in (("stdout", out), ("stderr", err)):
        if text.startswith("{"):
            width = 0 if case.get("loose") else WIDTH
            yield from (name, shown(reduced(json.loads(text), case, folder), width))
        elif text.strip():
            yield from (name, masked(text, case, folder))


def page_text(case, name, folder):
    """The text of a page without styles and hints: a line for each paragraph, row of a table or picture."""
    page = (folder / name).read_text(encoding="utf-8")
    page = re.sub(r"<(style|script|title)\b.*?</\1>", "", page, flags=re.DOTALL)
    page = re.sub(r"\s+", " ", page)
    page = re.sub(r"</(p|h\d|tr|li|div|figure|details|summary|svg)>", "\n", page)
    lines = (" ".join(html.unescape(re.sub(r"<[^>]*>", " ", line)).split()) for line in page.splitlines())
    return masked("\n".join(line for line in lines if line), case, folder)


def masked(text, case, folder):
    """Replace what differs between two runs or machines; where real time passes, every number that stands by itself.

    Charts, the width of columns, the length of bars and lines that follow their like do not count then.
    """
    text = text.replace(str(folder), "FOLDER").replace(str(cache_folder()), "CACHE").replace(sys.executable, "PYTHON")
    text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "HOST", text)
    text = text.replace(f"wattune {__version__}", "wattune VERSION")
    text = re.sub(r"Made on \S+ \S+ UTC", "Made on DATE UTC", text)
    text = re.sub(r"\S CPU energy: .*\n( +→ .*\n)?|CPU packages: .*\n?", "", text)
    text = re.sub(r"can be built with \S+", "can be built with COMPILER", text)
    text = re.sub(r"\d+ s, \d+ s of CPU|(?<=at once: )\S+ ms", "DURATION", text)
    text = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
    if not case.get("real"):
        return text
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+\d\d:\d\d)?", "DATE", text)
    text = re.sub(r"(?<![\w-])\d\d-\d\d( \d\d:\d\d)?(?![\w-])", "DATE", text)
    text = re.sub(r"(?<![\w-])(?=[a-f]*\d)[0-9a-f]{8}((-[0-9a-f]{4}){3}-[0-9a-f]{12})?(?![\w-])", "ID", text)
    text = re.sub(r"[▁▂▃▄▅▆▇█░▏▎▍▌▋▊▉⠀-⣿]+", "▇", text)
    text = re.sub(r"(?<![\w\[-])[-−+]?\d[\d.,:]*(?<![.,:])(e[-+]\d+)?", "#", text)
    text = re.sub(r"#(\s?)(ns|µs|ms|s|min|h)\b", r"#\1s", text)
    text = re.sub(r"#(\s?)(mJ|J|kJ|MJ|mWh|Wh|kWh)\b", r"#\1J", text)
    text = re.sub(r"#( #)+", "#", re.sub(r"[ ─━]{2,}", " ", text))
    lines = [line.strip() for line in text.splitlines() if not re.search("[│┤└]", line)]
    return "\n".join(line for place, line in enumerate(lines) if place == 0 or line != lines[place - 1])


KEPT = {"exit_code", "schema", "batch_size", "batch_sizes", "default_batch_size", "target"}
"""Fields whose numbers stay where real time passes."""
OF_THE_MACHINE = {"cpu_energy_j", "control_percent", "cpu_s", "elapsed_s"}
"""Fields that some machines cannot fill, and those with the speed of the machine."""


def reduced(value, case, folder):
    """A JSON value with six digits, and of long lists the first two, the last and a digest of all items.

    Where real time passes, a list becomes the different items in it, and any number may be missing: the speed of the
    machine decides what is known.
    """
    real = case.get("real")
    match value:
        case None | int() | float() if real and not isinstance(value, bool):
            return "number or null"
        case dict():
            return {
                key: "of the machine"
                if key in OF_THE_MACHINE
                else item
                if key in KEPT and not isinstance(item, dict)
                else reduced(item, case, folder)
                for key, item in value.items()
            }
        case list() if real:
            items = [reduced(item, case, folder) for item in value if not _of_the_machine(item)]
            return [item for place, item in enumerate(items) if item not in items[:place]]
        case list():
            items = [reduced(item, case, folder) for item in value]
            return items if len(items) <= LONGEST else [*items[:2], f"… {len(items)} items, {digest(items)}", items[-1]]
        case str():
            text = masked(value, case, folder)
            return text if len(text) <= 2 * WIDTH else f"{text[:WIDTH]}… {digest(value)}"
        case float():
            return float(f"{value:.6g}")
    return value


def _of_the_machine(item):
    return isinstance(item, dict) and item.get("topic") == "CPU energy"


def digest(value):
    return f"digest {hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]}"


def shown(value, width, indent=""):
    """A JSON value as text: what fits into the width is on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= width or not isinstance(value, dict | list) or not value:
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        items = [f"{deeper}{json.dumps(key)}: {shown(item, width, deeper)}" for key, item in value.items()]
    else:
        items = [f"{deeper}{shown(item, width, deeper)}" for item in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([first, ",\n".join(items), indent + last])


# help


def pages_of_help(command=wattune, words=()):
    """Each command with its sub-commands, as words."""
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from pages_of_help(command.get_command(context, name), (*words, name))


HELP = {"lines": [" ".join((*words, "--help")) for words in pages_of_help()]}


# the tests

PROGRESS = re.compile(r"wattune \(simulated\): (GPU #: )?# s: ")
TAKES_LONG = {"change", "job", "layers", "live", "meter", "period", "pipeline", "reliability"}
"""Benches without a quick run that gives exact figures, or without data."""


def expected(command):
    """What the cases of a command should print, by case."""
    text = (EXPECTED / f"{command}.txt").read_text(encoding="utf-8")
    parts = re.split(r"^##### (.*)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (part.rstrip("\n") for part in parts[1::2]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_a_command_prints_what_it_should(name, tmp_path):
    found, wanted = record(CASES[name], tmp_path), expected(name.split()[0])[name]
    if CASES[name].get("loose"):
        assert missing_lines(found, wanted) == [], found
    else:
        assert found == wanted


def missing_lines(found, wanted):
    """The lines that should be printed, in any order, and are not; signs alone and progress do not count."""
    lines = {line.rstrip(",") for line in found.splitlines()}
    counting = (line for line in wanted.splitlines() if re.search(r"\w", line) and not PROGRESS.match(line))
    return [line for line in counting if line.rstrip(",") not in lines]


def test_the_help_of_every_command_is_as_it_was(tmp_path):
    assert record(HELP, tmp_path) == expected("help")["help"]


def test_every_command_has_a_case_that_succeeds_and_one_that_fails():
    leaves = {words for words in pages_of_help() if not any(other[:-1] == words for other in pages_of_help())}
    codes = {words: set() for words in leaves}
    for command in COMMANDS:
        lines = "\n".join(expected(command).values())
        for line, code in re.findall(r"^\$ wattune (.*)\nexit code (\d+)$", lines, flags=re.MULTILINE):
            words = shlex.split(line)
            for own in leaves & {tuple(words[:1]), tuple(words[:2])}:
                codes[own].add(code != "0")
    lacking = {" ".join(words) for words, found in codes.items() if found != {True, False}}
    assert lacking == {f"bench {name}" for name in TAKES_LONG}


def test_every_file_is_used():
    assert {file.stem for file in EXPECTED.iterdir()} == {"help", *COMMANDS}
    assert {name for command in COMMANDS for name in expected(command)} == set(CASES)
    lines = (HERE / "cases.toml").read_text(encoding="utf-8")
    assert [file.name for file in FILES.iterdir() if file.name not in lines] == []


def write(command):
    """Write what the cases of a command print."""
    cases = {"help": HELP} if command == "help" else {name: CASES[name] for name in CASES if name.split()[0] == command}
    parts = [f"##### {name}\n{recorded(case)}\n" for name, case in cases.items()]
    (EXPECTED / f"{command}.txt").write_text("\n".join(parts), encoding="utf-8")


def recorded(case):
    """What a case prints; of one whose lines depend on the speed of the machine, those of each of three tries."""
    tries = []
    for _ in range(3 if case.get("loose") else 1):
        with tempfile.TemporaryDirectory() as folder:
            tries.append(record(case, Path(folder).resolve()))
    left_out = [
        line for one in tries for line in (*missing_lines(one, tries[0]), *filter(PROGRESS.match, one.splitlines()))
    ]
    return "\n".join(line for line in tries[0].splitlines() if line not in left_out)


if __name__ == "__main__":
    for command in sys.argv[1:] or ["help", *COMMANDS]:
        write(command)
