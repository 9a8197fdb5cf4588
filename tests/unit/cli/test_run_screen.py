"""What people see of a program that is tuned while it runs."""

import io

import pytest
from rich.console import Console

from run_views import run_report, run_result, searched
from wattune.cli.main import run
from wattune.cli.run.screen import RunScreen, screen
from wattune.cli.run.tuning import print_closing
from wattune.control.state import Event
from wattune.core.reading import Reading
from wattune.levels.run.figures import RunFigures


def console(**options):
    return Console(file=io.StringIO(), highlight=False, width=80, height=24, **options)


def test_without_a_terminal_there_is_a_line_for_each_event_and_window():
    out, views = console(), [run_report(windows=searched()[:1], events=()), run_report()]
    with RunScreen(lambda: (views.pop(0) if len(views) > 1 else views[0],), out) as shown:
        pass
    text = out.file.getvalue()
    assert text.count("baseline at driver default") == 1
    assert text.count("wattune (simulated): 61.0 s: the GPU could not be read: it is busy") == 1
    assert "\x1b" not in text
    assert shown.trouble is None


def test_on_a_terminal_the_whole_screen_is_drawn_and_given_back():
    out = console(force_terminal=True, color_system=None)
    with RunScreen(lambda: (run_report(),), out) as shown:
        pass
    text = out.file.getvalue()
    assert "holding 1545 MHz" in text
    assert "\x1b[?1049h" in text
    assert text.rstrip().endswith("\x1b[?25h\x1b[?1049l")
    assert shown.trouble is None


def test_a_report_that_fails_does_not_end_the_program():
    def broken():
        raise ZeroDivisionError("broken")

    with RunScreen(broken, console()) as shown:
        pass
    assert shown.trouble == "ZeroDivisionError: broken"


def test_words_say_all_that_colours_do():
    plain, coloured = console(), console(force_terminal=True, color_system="standard")
    for out in (plain, coloured):
        out.print(screen(run_report(), width=80, height=24))
    assert "held" in plain.file.getvalue()
    assert "\x1b[" not in plain.file.getvalue()
    assert "\x1b[" in coloured.file.getvalue()


def test_the_closing_has_the_figures_the_settings_and_the_events_without_controls():
    out = console()
    print_closing(run_result(ended=True, events=(Event(3.0, "some \x1b[31m[bold]text"),)), out)
    text = out.file.getvalue()
    assert "wattune: NVIDIA GeForce RTX 3080 Ti (simulated): 21.4 kJ (5.94 Wh) in 84.0 s" in text
    assert "the slowdown limit of 5 % was met" in text
    assert "too slow" in text
    assert "at 3.0 s: some [31m[bold]text" in text
    assert "\x1b" not in text


def test_a_run_without_windows_is_printed_too():
    out = console()
    nothing = {"windows": (), "events": (), "first": None, "last": None}
    print_closing(run_result(ended=True, figures=RunFigures(), **nothing), out)
    assert "nothing was measured" in out.file.getvalue()
    assert "energy saved and time lost are unknown" in out.file.getvalue()


# several GPUs


def readings(count):
    return tuple(Reading(time_s=9.0, power_w=300.0 + n, sm_mhz=1275, temperature_c=60.0 + n) for n in range(count))


def test_gpus_that_are_tuned_as_one_are_each_shown():
    out = console()
    out.print(screen(run_report(gpus=4, latest=readings(4)), width=80, height=24))
    text = out.file.getvalue()
    assert all(f"GPU {n}  30{n} W  1275 MHz  6{n} °C" in text for n in range(4))
    assert len(text.rstrip("\n").splitlines()) <= 24


def test_gpus_that_are_tuned_each_by_itself_share_the_screen():
    for count, height in ((2, 24), (2, 60), (8, 24), (16, 12)):
        out = console()
        views = [run_report(gpus=1) for _ in range(count)]
        out.print(screen(*views, width=80, height=height))
        lines = out.file.getvalue().rstrip("\n").splitlines()
        assert len(lines) <= height
        assert all(len(line) <= 80 for line in lines)
        shown = [n for n in range(count) if any(line.startswith(f"GPU {n}: ") for line in lines)]
        assert shown == list(range(min(count, height - 2)))  # below the title, above the keys
        assert any("holding 1545 MHz" in line for line in lines)


def test_without_a_terminal_each_gpu_has_its_lines():
    out = console()
    with RunScreen(lambda: (run_report(), run_report()), out):
        pass
    text = out.file.getvalue()
    assert "wattune (simulated): GPU 0: " in text
    assert "wattune (simulated): GPU 1: " in text


# failures in what is shown


@pytest.fixture
def broken_closing(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("wattune.cli.run.tuning.print_closing", fail)


def tuned_run(tmp_path, monkeypatch, *command):
    for variable, place in (("STORE", "h.db"), ("STATE", "state"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    monkeypatch.chdir(tmp_path)
    return run(["run", "--device", "sim:a100", "--report", "page.html", "--", *command])


def test_a_bug_in_the_result_is_a_failure_and_the_rest_is_still_done(broken_closing, tmp_path, monkeypatch, capfd):
    assert tuned_run(tmp_path, monkeypatch, "true") == 1
    assert "the result of the tuning cannot be shown: ZeroDivisionError: a bug" in capfd.readouterr().err
    assert (tmp_path / "page.html").exists()
    assert (tmp_path / "h.db").exists()


def test_a_bug_in_the_result_does_not_take_the_place_of_the_exit_code(broken_closing, tmp_path, monkeypatch, capfd):
    assert tuned_run(tmp_path, monkeypatch, "sh", "-c", "exit 7") == 7


def test_an_output_that_takes_nothing_is_no_failure(tmp_path, monkeypatch, capfd):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("wattune.cli.run.tuning.print_closing", fail)
    assert tuned_run(tmp_path, monkeypatch, "true") == 0
    assert "No space left on device" in capfd.readouterr().err


def test_a_bug_in_the_lines_of_a_run_is_a_failure(tmp_path, monkeypatch, capfd):
    def fail(*_, **__):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("wattune.cli.run.screen.event_lines_of", fail)
    assert tuned_run(tmp_path, monkeypatch, "true") == 1
    assert "could not be shown while the program ran: ZeroDivisionError: a bug" in capfd.readouterr().err
