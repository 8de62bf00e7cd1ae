"""Progress of long commands, in a terminal and in files."""

import io
import re

import pytest

from rlcatalog_cli import progress
from rlcatalog_cli.isolation import print_answer, redirect_stdout
from rlcatalog_cli.progress import show_items, show_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.seconds = 0.0

    def read(self):
        return self.seconds


@pytest.fixture
def clock(monkeypatch):
    """The clock by which the progress measures its speed."""
    clock = Clock()
    monkeypatch.setattr(progress.time, "perf_counter", clock.read)
    return clock


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 80 columns that can draw."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


def remove_escapes(text):
    """Return text without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


# --- progress in files ----------------------------------------------------------------------------


def train_20_000_steps(stream, clock):
    """Show a training at 2,000 steps per second, whose mean return is known from step 4,000."""
    with show_progress("training on CartPole-v1", 20_000, stream=stream) as progress:
        for steps in range(500, 20_001, 500):
            clock.seconds += 0.25
            mean_return = None if steps < 4000 else steps / 100
            progress.update(steps, mean_return)


def test_progress_in_a_file_has_a_line_per_tenth(clock):
    file = io.StringIO()

    train_20_000_steps(file, clock)

    percentages = [int(number) for number in re.findall(r"(\d+) %", file.getvalue())]
    assert percentages == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


def test_progress_line_has_steps_return_speed_and_time_left(clock):
    file = io.StringIO()

    # 2,000 steps per second, with a mean return of steps / 100 from step 4,000 on.
    train_20_000_steps(file, clock)

    lines = file.getvalue().splitlines()
    assert lines[0] == (
        "training on CartPole-v1: 10 %, 2,000 of 20,000 steps, mean return -, 2,000 steps/s,"
        " 0:00:09 left"
    )
    assert lines[4] == (
        "training on CartPole-v1: 50 %, 10,000 of 20,000 steps, mean return 100.0, 2,000 steps/s,"
        " 0:00:05 left"
    )
    assert lines[-1].endswith("mean return 200.0, 2,000 steps/s, 0:00:00 left")


def test_progress_in_a_file_has_no_colours(clock, monkeypatch):
    # Other libraries write colours into files if this is set.
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()

    train_20_000_steps(file, clock)

    assert file.getvalue().replace("\n", "").isprintable()


def play_three_episodes(stream, clock):
    """Show three episodes of 8 seconds each, of which the last one counts for two."""
    with show_progress("playing", 3, unit="episodes", stream=stream) as progress:
        for episodes in (1, 2, 4):
            clock.seconds += 8
            progress.update(episodes, 1.0)


def test_progress_may_pass_several_tenths_at_once(clock):
    file = io.StringIO()

    play_three_episodes(file, clock)

    counts = [line.partition(" episodes")[0] for line in file.getvalue().splitlines()]
    assert counts == ["playing: 33 %, 1 of 3", "playing: 66 %, 2 of 3", "playing: 100 %, 4 of 3"]


def test_progress_of_slow_episodes_has_decimals(clock):
    file = io.StringIO()

    play_three_episodes(file, clock)

    first_line = file.getvalue().splitlines()[0]
    assert first_line.endswith("0.12 episodes/s, 0:00:16 left")  # 1 of 3 after 8 seconds


def test_progress_of_a_resumed_run_measures_only_its_own_speed(clock):
    file = io.StringIO()

    with show_progress("training", 1000, done=600, stream=file) as progress:
        clock.seconds = 2.0
        progress.update(620, 0.0)  # steps done, and their mean return
        progress.update(800, 0.0)

    # 200 steps since the start, at 600, in 2 seconds, and 200 to go.
    assert file.getvalue() == (
        "training: 80 %, 800 of 1,000 steps, mean return 0.0, 100 steps/s, 0:00:02 left\n"
    )


# --- progress in a terminal -----------------------------------------------------------------------


def test_progress_in_a_terminal_is_a_bar(terminal, clock):
    with show_progress("training on CartPole-v1", 1000, stream=terminal) as progress:
        clock.seconds = 0.5
        progress.update(500, 21.25)

    text = remove_escapes(terminal.getvalue())
    assert re.search("training on CartPole-v1 .*50% mean return 21.2, 1,000 steps/s", text)
    # The time left is -:--:-- until the bar is drawn again.
    assert re.search(r"1,000 steps/s [-\d]:[-\d]{2}:[-\d]{2} left", text)
    assert text != terminal.getvalue()  # it has colours and moves the cursor


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_progress_in_a_terminal_that_cannot_draw_is_lines(terminal, term, monkeypatch):
    monkeypatch.setenv("TERM", term)

    with show_progress("training", 10, stream=terminal) as progress:
        progress.update(10, 1.0)

    assert terminal.getvalue().startswith("training: 100 %, 10 of 10 steps")


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["file", "terminal"])
def test_quiet_progress_writes_nothing(stream):
    with show_progress("training", 10, quiet=True, stream=stream) as progress:
        progress.update(10, 1.0)

    assert stream.getvalue() == ""


# --- items ----------------------------------------------------------------------------------------


def show_two_checks(stream):
    """Show two checks, the second of which does not end."""
    with show_items("check", 2, stream=stream) as items:
        items.begin("width")
        items.print("passed [width]")
        items.begin("dtype")


def test_items_in_a_file_are_their_lines(monkeypatch):
    # Other libraries write colours into files if this is set.
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()

    show_two_checks(file)

    assert file.getvalue() == "passed [width]\n"


def test_items_in_a_terminal_have_a_bar(terminal):
    show_two_checks(terminal)

    text = remove_escapes(terminal.getvalue())
    assert re.search(r"check 1 of 2 \S+ +width", text)
    assert "passed [width]\n" in text
    assert re.search(r"check 2 of 2 \S+ +dtype", text)


def test_bar_of_items_is_removed_at_the_end(terminal):
    show_two_checks(terminal)

    move_up = "\x1b[1A"
    erase_line = "\x1b[2K"
    assert terminal.getvalue().endswith(move_up + erase_line)


def test_items_are_written_to_standard_output(capfd):
    with redirect_stdout(), show_items("check", 1) as items:
        print("a plugin prints")
        items.begin("width")
        items.print("passed width")
        print_answer("result\n")

    stdout, stderr = capfd.readouterr()
    assert stdout == "passed width\nresult\n"
    assert stderr == "a plugin prints\n"
