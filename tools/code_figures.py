"""Print figures about the size and the structure of the source tree, and how many files one command crosses.

    python tools/code_figures.py                  the tree this file belongs to
    python tools/code_figures.py --root DIR       another checkout
    python tools/code_figures.py --json           one JSON document

A file is "crossed" by a command when the command calls at least one function that is defined in it; importing the file
alone does not count. The commands run on simulated GPUs, in a process of their own, with this Python or, where it lacks
what wattune needs, with that of the tree's `.venv`.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

COMMANDS = {
    "measure": ["measure", "--device", "sim:a100", "--", sys.executable, "-c", "pass"],
    "run": ["run", "--device", "sim:a100", "--", sys.executable, "-c", "import time; time.sleep(9)"],
    "job run": [
        *("job", "run", "figures", "--device", "sim:a100", "--target", "0.5", "--default", "64"),
        *("--batch-sizes", "32,64", "--metric-pattern", r"accuracy ([\d.]+)", "--"),
        *(sys.executable, "-c", "print('accuracy 0.9', {batch_size})"),
    ],
    "pipeline plan": [
        *("pipeline", "plan", "--profile", "PROFILE", "--schedule", "1f1b", "--microbatches", "4"),
        *("--blocking-power", "60"),
    ],
}

PROFILE = "stage,instruction,frequency,time,energy\n" + "".join(
    f"{stage},{kind},{mhz},{time_s * 1410 / mhz:.4f},{time_s * (60 + 240 * (mhz / 1410) ** 2):.3f}\n"
    for stage in (0, 1)
    for kind, time_s in (("forward", 0.1), ("backward", 0.2))
    for mhz in (1410, 1200, 1005)
)

CROSSING = """
import sys, threading
seen, code = set(), None
def note(frame, event, argument):
    is_function = frame.f_code.co_flags & 1 and frame.f_code.co_name[0] != "<"  # not a module or the body of a class
    if event == "call" and is_function:
        seen.add(frame.f_code.co_filename)
threading.setprofile(note)
sys.setprofile(note)
from wattune.cli.main import run
try:
    code = run(sys.argv[2:])
finally:
    sys.setprofile(None)
    files = sorted(name for name in seen if "/wattune/" in name)
    open(sys.argv[1], "w").write("\\n".join([str(code), *files]))
"""


def main() -> None:
    """Print the figures of one tree."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    source = arguments.root / "src" / "wattune"
    figures = {
        **size_figures(arguments.root, source),
        **room_figures(source),
        **structure_figures(source),
        **crossing_figures(arguments.root),
    }
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:42} {value}")


def size_figures(root: Path, source: Path) -> dict[str, object]:
    """Count Python files and lines of the product, its benches and its tests, and the middle of files and functions."""
    python = _product(source)
    lengths = {path: len(path.read_text().splitlines()) for path in python}
    functions = [
        node.end_lineno - node.lineno + 1
        for path in python
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    ]
    proper = [lengths[path] for path in python if path.name != "__init__.py"]
    folders = Counter(path.parent for path in python if path.name != "__init__.py")
    largest, most = folders.most_common(1)[0]
    return {
        "files": len(python),
        "lines": sum(lengths.values()),
        "code lines": sum(_code_lines(path) for path in python),
        "lines of benches": _lines([*(source / "benchmarks").rglob("*.py"), *(root / "benches").rglob("*.py")]),
        "lines of tests": _lines((root / "tests").rglob("*.py")),
        "median lines of a file": statistics.median(proper),
        "median lines of a function": statistics.median(functions),
        "most files in one folder": f"{most} ({largest.relative_to(source)})",
    }


def room_figures(source: Path) -> dict[str, object]:
    """Count the lines and files of each room."""
    return {f"lines / files of {room}": f"{_lines(own)} / {len(own)}" for room, own in sorted(_rooms(source).items())}


def lines_of_rooms(root: Path) -> dict[str, int]:
    """Count the lines of each room of the package, of the benches and of the tests."""
    rooms = {room: _lines(own) for room, own in _rooms(root / "src" / "wattune").items()}
    return rooms | {name: _lines((root / name).rglob("*.py")) for name in ("benches", "tests")}


def _rooms(source: Path) -> dict[str, list[Path]]:
    rooms: dict[str, list[Path]] = defaultdict(list)
    for path in _product(source):
        rooms[_room_of(path.relative_to(source))].append(path)
    return rooms


def _room_of(path: Path) -> str:
    """Return the room of a file of the package: its first folder, or below `levels` its first two."""
    match path.parts[:-1]:
        case ["levels", level, *_]:
            return f"levels/{level}"
        case [room, *_] if room != "levels":
            return room
    return "package"


def _product(source: Path) -> list[Path]:
    """List the files of the package, without the benches that were once inside it."""
    return [path for path in source.rglob("*.py") if "benchmarks" not in path.relative_to(source).parts]


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def structure_figures(source: Path) -> dict[str, object]:
    """Count files with one importer, dataclasses, and class names that are used more than once."""
    modules = {_module(path, source): path for path in source.rglob("*.py")}
    importers: dict[str, set[str]] = defaultdict(set)
    classes: Counter[str] = Counter()
    dataclasses = 0
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            for imported in _imported(node, modules):
                if module != "wattune":
                    importers[imported].add(module)
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
                dataclasses += any("dataclass" in ast.unparse(one) for one in node.decorator_list)
    single = [name for name, path in modules.items() if path.name != "__init__.py" and len(importers[name]) == 1]
    repeated = sorted(name for name, count in classes.items() if count > 1)
    return {
        "files with one importer": len(single),
        "dataclasses": dataclasses,
        "class names used more than once": f"{len(repeated)} {' '.join(repeated)}".strip(),
    }


def crossing_figures(root: Path) -> dict[str, object]:
    """Count the files that each of a few commands crosses; say so where no Python can run them."""
    python = _python_of(root)
    if python is None:
        reason = "unknown: wattune's dependencies are not installed; run `make check` first, it makes .venv"
        return dict.fromkeys((f"files crossed by `{name}`" for name in COMMANDS), reason)
    return {f"files crossed by `{name}`": _crossed(root, python, words) for name, words in COMMANDS.items()}


def _python_of(root: Path) -> str | None:
    """Find a Python that can import the commands: this one, or that of the tree's environment."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    for python in (sys.executable, str(root / ".venv" / "bin" / "python")):
        command = [python, "-c", "import click, numpy, scipy, sqlalchemy, wattune.cli.main"]
        if Path(python).exists() and not subprocess.run(command, env=environment, capture_output=True).returncode:
            return python
    return None


def _crossed(root: Path, python: str, words: list[str]) -> object:
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder, "profile.csv")
        profile.write_text(PROFILE)
        listing = Path(folder, "files")
        environment = {
            **os.environ,
            "PYTHONPATH": str(root / "src"),
            "WATTUNE_STORE": f"sqlite:///{folder}/history.db",
            "XDG_STATE_HOME": folder,
            "XDG_DATA_HOME": folder,
        }
        command = [str(profile) if word == "PROFILE" else word for word in words]
        done = subprocess.run(
            [python, "-c", CROSSING, str(listing), *command],
            env=environment, cwd=folder, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        code, *files = listing.read_text().split("\n")
        if code != "0":
            return f"failed: {done.stderr.strip().splitlines()[-1:]}"
        return len(files)


def _code_lines(path: Path) -> int:
    """Count lines that are neither blank, nor comments, nor docstrings."""
    text = path.read_text()
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in prose
        for number, line in enumerate(text.splitlines(), start=1)
    )


def _module(path: Path, source: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(node: ast.AST, modules: dict[str, Path]) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names if alias.name in modules}
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        named = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
        return named or ({node.module} & modules.keys())
    return set()


if __name__ == "__main__":
    main()
