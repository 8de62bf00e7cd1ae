"""Options with one value are given once, in every installed command.

Crosses: all packages.
"""

from __future__ import annotations

import pytest
import typer

from rlcatalog import default_catalog
from rlcatalog_cli import main
from rlcatalog_cli.app import OWN_COMMANDS, make_app

COMMANDS = sorted({*OWN_COMMANDS, *default_catalog().registry.names(["command"])})


def make_command(name):
    """Return a command of typer, as the program parses it."""
    return typer.main.get_command(make_app([name])).commands[name]


def find_options(*, repeatable):
    """Return cases (command, option as typed, its values, its long form) of the options that may be
    repeated, or of the others.
    """
    cases = []
    for name in COMMANDS:
        for option in make_command(name).params:
            if option.param_type_name != "option" or option.multiple is not repeatable:
                continue
            values = [] if option.is_flag else ["1"]
            long_form = max(option.opts, key=len)
            for typed in option.opts:
                case = pytest.param(name, typed, values, long_form, id=f"{name} {typed}")
                cases.append(case)
    return cases


def run_and_read_error(capsys, *line):
    """Run a line that ends with a usage error, and return its text without frame and breaks."""
    with pytest.raises(SystemExit) as ended:
        main([*line])
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_commands_and_options_are_found():
    assert {"list", "explain", "check", "new", "train", "evaluate"} <= set(COMMANDS)
    assert len(find_options(repeatable=False)) > 20
    assert len(find_options(repeatable=True)) > 4


@pytest.mark.parametrize(
    ("command", "option", "values", "long_form"), find_options(repeatable=False)
)
def test_repeated_option_is_an_error(command, option, values, long_form, capsys):
    error = run_and_read_error(capsys, command, option, *values, option, *values)
    assert f"{long_form} is given 2 times" in error


def test_error_counts_how_often_an_option_is_given(capsys):
    error = run_and_read_error(capsys, "train", "-n", "1", "--steps", "2", "-n", "3")
    assert "--steps is given 3 times" in error


@pytest.mark.parametrize(
    ("command", "option", "values", "long_form"), find_options(repeatable=True)
)
def test_repeatable_option_collects_its_values(command, option, values, long_form):
    line = [option, "a=1", option, "b=2"]
    context = make_command(command).make_context(command, line, resilient_parsing=True)
    assert ["a=1", "b=2"] in list(context.params.values())


def test_option_and_its_negation_are_one_option(capsys):
    error = run_and_read_error(capsys, "evaluate", "--explore", "--no-explore", "nowhere")
    assert "--explore is given 2 times" in error


def test_help_may_be_repeated(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["explain", "--help", "--help"])
    assert ended.value.code == 0
    assert "ENV_ID" in capsys.readouterr().out
