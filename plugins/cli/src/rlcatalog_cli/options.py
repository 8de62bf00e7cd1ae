"""Command options: shared options, `KEY=VALUE` options, and a check for repeated options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rlcatalog.catalog import default_catalog
from rlcatalog.errors import ConfigError, shown
from rlcatalog.frameworks import frameworks
from rlcatalog_cli.isolation import redirect_stdout

#: For commands that print tables or lines.
AS_JSON = typer.Option("--json", help="Print JSON.")
ModelKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--model", "-m", metavar="KEY=VALUE", help="Set a key of the model config; repeatable."
    ),
]
Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Import a module that registers environments or parts; repeatable.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Read the model config from this YAML file, below `model:`; --model overrides it.",
    ),
]


#: Stands for the names of the installed frameworks in the help of an option, where a declaration
#: cannot know them yet.
FRAMEWORKS = "{frameworks}"
FrameworkName = Annotated[
    str | None, typer.Option(metavar="NAME", help=f"An installed framework: {FRAMEWORKS}.")
]


class Command(TyperCommand):
    """Command that rejects repeated options, and whose help names the installed frameworks.

    Without the check, the parser would silently use the last one of repeated options.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        self.name_frameworks()
        super().format_help(ctx, formatter)

    def name_frameworks(self) -> None:
        """Write the names of the installed frameworks into the help of the options."""
        for parameter in self.params:
            help_text = getattr(parameter, "help", None)  # click's options alone have it
            if help_text is not None and FRAMEWORKS in help_text:
                parameter.help = help_text.replace(FRAMEWORKS, _installed_frameworks())  # type: ignore[attr-defined]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; reject repeated options before anything is converted or run."""
        # The parser consumes its list, and returns each parameter once per occurrence.
        _, _, parameters = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in parameters:
            count = parameters.count(parameter)
            if count > 1 and _takes_one_value(parameter):
                longest_name = max(parameter.opts, key=len)
                ctx.fail(
                    f"{longest_name} is given {count} times, but takes one value. Pass it once."
                )
        return super().parse_args(ctx, args)


def _installed_frameworks() -> str:
    """Return the names of the installed frameworks, for a help text."""
    with redirect_stdout():
        declared = {part.name for part in default_catalog().parts("framework")}
    names = []
    for name, spec in frameworks().items():  # in the order of preference
        if name in declared and spec.is_installed:
            names.append(name)
    return ", ".join(names) or "none"


def _takes_one_value(parameter: Any) -> bool:
    """Return whether a parameter is an option that takes one value and does not exit early, as
    `--help` does.

    Args:
        parameter: Click's parameter, whose class typer keeps in a private module.
    """
    if parameter.param_type_name != "option" or parameter.is_eager:
        return False
    counts_occurrences = getattr(parameter, "count", False)  # click's options alone have it
    takes_several_values = parameter.multiple or counts_occurrences
    return not takes_several_values


def model_config(file: Path | None, options: list[str] | None) -> dict[str, Any]:
    """Return the model config of a command's options.

    Args:
        file: The value of `--config`.
        options: The values of `--model`, which override those of the file.

    Raises:
        ConfigError: The file or an option cannot be read.
    """
    config: dict[str, Any] = {}
    if file is not None:
        from rlcatalog_cli.config_files import read_model_config  # imports PyYAML

        config = read_model_config(file)
    return config | key_values(options or [], "--model")


def key_values(options: list[str], option: str) -> dict[str, Any]:
    """Parse `KEY=VALUE` options; values are JSON (`[64, 64]`, `true`, `0.5`), and anything else is
    text.

    Args:
        options: The options' values.
        option: The option's name, for error messages.

    Raises:
        ConfigError: An option does not contain `=`, a key is repeated, or a value is nested too
            deeply.
    """
    values: dict[str, Any] = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError(f"{option}: expected KEY=VALUE, found {shown(text)}.")
        if key in values:
            raise ConfigError(f"{option}: {shown(key)} is given twice.")
        try:
            values[key] = _parse_value(value)
        except RecursionError:
            raise ConfigError(
                f"{option}: the value of {shown(key)} is nested too deeply."
            ) from None
    return values


#: Python's names for constants, which JSON writes in another way.
_PYTHON_CONSTANTS = {"True": True, "False": False, "None": None}


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return _PYTHON_CONSTANTS.get(text, text)
