"""What a long command shows of itself, in a terminal and elsewhere."""

import io
import re

import pytest

from rlcatalog_cli import progress
from rlcatalog_cli.isolation import print_answer, redirect_stdout
from rlcatalog_cli.progress import show_items, show_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def test_elsewhere_each_tenth_is_a_line(clock, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # has other libraries write colours into files
    out = io.StringIO()
    with show_progress("training on CartPole-v1", 20_000, stream=out) as update:
        for done in range(500, 20_001, 500):
            clock[0] += 0.25
            update(done, None if done < 4000 else done / 100)
    lines = out.getvalue().splitlines()
    assert lines[0] == (
        "training on CartPole-v1: 10 %, 2,000 of 20,000 steps, mean return -, 2,000 steps/s,"
        " 0:00:09 left"
    )
    assert [int(re.search(r"(\d+) %", line)[1]) for line in lines] == list(range(10, 101, 10))
    assert lines[4].endswith(
        "50 %, 10,000 of 20,000 steps, mean return 100.0, 2,000 steps/s, 0:00:05 left"
    )
    assert lines[-1].endswith("mean return 200.0, 2,000 steps/s, 0:00:00 left")
    assert out.getvalue().replace("\n", "").isprintable()


def test_long_iterations_pass_tenths_at_once_and_the_last_may_go_beyond(clock):
    out = io.StringIO()
    with show_progress("playing", 3, unit="episodes", stream=out) as update:
        for done in (1, 2, 4):
            clock[0] += 8
            update(done, 1.0)
    assert [line.partition(" episodes")[0] for line in out.getvalue().splitlines()] == [
        "playing: 33 %, 1 of 3",
        "playing: 66 %, 2 of 3",
        "playing: 100 %, 4 of 3",
    ]
    assert "0.12 episodes/s, 0:00:16 left" in out.getvalue()


def test_what_was_done_before_counts_for_the_way_and_not_for_the_speed(clock):
    out = io.StringIO()
    with show_progress("training", 1000, done=600, stream=out) as update:
        clock[0] = 2.0
        update(620, 0.0)
        update(800, 0.0)
    assert (
        out.getvalue()
        == "training: 80 %, 800 of 1,000 steps, mean return 0.0, 100 steps/s, 0:00:02 left\n"
    )


def test_a_terminal_gets_a_bar(monkeypatch, clock):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    with show_progress("training on CartPole-v1", 1000, stream=out) as update:
        clock[0] = 0.5
        update(500, 21.25)
    found = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())
    assert "\x1b[" in out.getvalue()
    assert re.search(
        r"training on CartPole-v1 .*50% mean return 21\.2, 1,000 steps/s [-\d]:[-\d]{2}:[-\d]{2}"
        r" left",
        found,
    )


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_cannot_draw_gets_lines(term, monkeypatch):
    monkeypatch.setenv("TERM", term)
    out = Terminal()
    with show_progress("training", 10, stream=out) as update:
        update(10, 1.0)
    assert out.getvalue().startswith("training: 100 %, 10 of 10 steps")


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_quiet_is_quiet(stream):
    out = stream()
    with show_progress("training", 10, quiet=True, stream=out) as update:
        update(10, 1.0)
    assert out.getvalue() == ""


def show_two_checks(stream):
    """Show two checks, the second of which does not end."""
    with show_items("check", 2, stream=stream) as items:
        items.begin("width")
        items.print("passed [width]")
        items.begin("dtype")


def test_items_elsewhere_are_their_lines(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # has other libraries write colours into files
    out = io.StringIO()
    show_two_checks(out)
    assert out.getvalue() == "passed [width]\n"


def test_items_in_a_terminal_have_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    show_two_checks(out)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())
    assert re.search(r"check 1 of 2 \S+ +width", plain)
    assert "passed [width]\n" in plain
    assert re.search(r"check 2 of 2 \S+ +dtype", plain)
    # At the end, the bar is removed: the cursor moves up and the line is erased.
    assert out.getvalue().endswith("\x1b[1A\x1b[2K")


def test_items_are_written_where_results_are(capfd):
    with redirect_stdout(), show_items("check", 1) as items:
        print("a plugin prints")
        items.begin("width")
        items.print("passed width")
        print_answer("result\n")
    assert capfd.readouterr() == ("passed width\nresult\n", "a plugin prints\n")
