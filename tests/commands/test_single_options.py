"""An option that takes one value is given once, in every command that is installed.

Crosses: all packages.
"""

from __future__ import annotations

import pytest
import typer

from rlcatalog import default_catalog
from rlcatalog_cli import main
from rlcatalog_cli.app import OWN_COMMANDS, make_app

COMMANDS = sorted({*OWN_COMMANDS, *default_catalog().registry.names(["command"])})


def command_of(name):
    """Return a command as the program parses it."""
    return typer.main.get_command(make_app([name])).commands[name]


def options(*, repeatable):
    """Return `(command, option as typed, its values, its long form)` of all that may, or may not,
    be given again.
    """
    found = []
    for name in COMMANDS:
        for option in command_of(name).params:
            if option.param_type_name == "option" and option.multiple is repeatable:
                value = [] if option.is_flag else ["1"]
                long = max(option.opts, key=len)
                found += [
                    pytest.param(name, typed, value, long, id=f"{name} {typed}")
                    for typed in option.opts
                ]
    return found


def test_there_are_commands_and_options():
    assert {"list", "explain", "check", "new", "train", "evaluate"} <= set(COMMANDS)
    assert len(options(repeatable=False)) > 20
    assert len(options(repeatable=True)) > 4


@pytest.mark.parametrize(("command", "option", "value", "long"), options(repeatable=False))
def test_a_single_option_given_twice_is_refused_before_anything_runs(
    command, option, value, long, capsys
):
    for times in (2, 3):
        with pytest.raises(SystemExit) as ended:
            main([command, *([option, *value] * times)])
        assert ended.value.code == 2
        assert f"{long} is given {times} times" in " ".join(
            capsys.readouterr().err.replace("│", " ").split()
        )


@pytest.mark.parametrize(("command", "option", "value", "long"), options(repeatable=True))
def test_a_repeatable_option_may_be_given_again(command, option, value, long):
    context = command_of(command).make_context(
        command, [option, "a=1", option, "b=2"], resilient_parsing=True
    )
    assert ["a=1", "b=2"] in list(context.params.values())


def test_yes_and_no_of_one_option_are_the_same_option(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "--explore", "--no-explore", "nowhere"])
    assert ended.value.code == 2
    assert "--explore is given 2 times" in " ".join(
        capsys.readouterr().err.replace("│", " ").split()
    )


def test_help_is_shown_however_often_it_is_asked_for(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["explain", "--help", "--help"])
    assert ended.value.code == 0
    assert "ENV_ID" in capsys.readouterr().out
