"""Writes the pages of `docs/reference`: errors, commands, parts, checks and the API, from what the
code says.

Run it after an error, a command, a declaration or a door has changed:
`python tools/reference_pages.py`, or with `--check` to only say whether they are up to date. What
to do about an error is in `docs/reference/ways_out.toml`; `error_messages.py` raises each error.
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import api_pages
import error_messages
import hook_pages
import typer
from config_table import public_index_catalog
from generated import ROOT, table, write

from rlcatalog import errors
from rlcatalog.choice import MODEL_SLOTS
from rlcatalog_cli.app import OWN_COMMANDS, make_app
from rlcatalog_testing.runner import OWN

TARGET = ROOT / "docs/reference"
#: Modules whose errors are shown to users.
MODULES = ("rlcatalog.errors", "rlcatalog_testing", "rlcatalog_compat.mirror")
_KINDS = {
    "preprocessor": "Preprocessors",
    "filter": "Filters",
    "env_adapter": "Environment adapters",
    "env_wrapper": "Environment wrappers",
    "model": "Models",
    "action_dist": "Action distributions",
    "action_codec": "Action codecs",
    "framework": "Frameworks",
    "exporter": "Export formats",
    "engine": "Engines",
    "check": "Conformance-kit checks",
    "command": "Commands",
}


# --- how the pages begin --------------------------------------------------------------------------

_ERRORS_TEXT = """\
If a program ends with an error of rlcatalog, the last line of the traceback begins with the name
of the error. Search this page for this name, or for words of the message. Each entry says when the
error is raised and what you can do, and shows a real message below the code that caused it.

You can import the classes of all errors from `rlcatalog.errors`, unless an entry names another
module. Every error derives from `CatalogError`, and every warning from `CatalogWarning`. Most
errors also derive from a built-in class. For example, an `UnknownNameError` is also a `KeyError`,
so `except KeyError` catches it."""
_COMMANDS_TEXT = """\
This page shows the same text for each command as `rlcatalog COMMAND --help`. If a command fails,
it prints a message, and its exit status is 1. If an argument is wrong, the exit status is 2.

Where an option takes `KEY=VALUE`, the value is JSON, such as `fcnet_hiddens=[64,64]` or
`use_lstm=true`. Anything else is read as text, so `fcnet_activation=relu` needs no quotes.

TensorFlow prints notices when it starts, for example about a missing GPU. The commands hide these
notices. To see them, set the environment variable `TF_CPP_MIN_LOG_LEVEL=0`."""
_PARTS_TEXT = """\
This page lists the parts of all packages in rlcatalog's repository. To see the parts that you have
installed, also from other packages, run `rlcatalog list`.

The column "chosen by" says how a part gets into a policy. rlcatalog chooses some parts by itself,
because of how well they fit. You have to name other parts in the config, or set a key that switches
them on ([How a part is chosen](../concepts/choice.md))."""
_CHECKS_TEXT = """\
[The conformance kit](../howto/test_a_plugin.md) runs these checks on the parts of a plugin. If a
check fails for your plugin, look it up on this page. The second column says what the check
requires, and the third column says what you can do.

`rlcatalog check PACKAGE` prints a line for each case, which is one check of one part in one
framework. The engines add more checks, which the [list of
parts](parts.md#conformance-kit-checks) names."""


# --- errors ---------------------------------------------------------------------------------------


def error_classes() -> dict[str, type[BaseException]]:
    """Return the errors and warnings that are raised on purpose, in the order of their source: name
    → class.
    """
    found: dict[str, type[BaseException]] = {}
    for name in MODULES:
        module = __import__(name, fromlist=["_"])
        for key in dir(module):
            value = getattr(module, key)
            if inspect.isclass(value) and issubclass(
                value, errors.CatalogError | errors.CatalogWarning
            ):
                found[value.__name__] = value
    return dict(sorted(found.items(), key=lambda item: (item[1].__module__, _line(item[1]))))


def _line(cls: type) -> int:
    return inspect.getsourcelines(cls)[1]


def errors_page() -> str:
    """Return the page of errors."""
    ways = tomllib.loads((TARGET / "ways_out.toml").read_text(encoding="utf-8"))
    text = ["# Errors", "", _ERRORS_TEXT, ""]
    for name, cls in error_classes().items():
        module = "" if cls.__module__ == "rlcatalog.errors" else f"{cls.__module__}."
        place = "rlcatalog_testing." if cls.__module__.startswith("rlcatalog_testing") else module
        bases = " and ".join(f"`{base.__name__}`" for base in cls.__bases__)
        doc, _, attributes = (inspect.getdoc(cls) or "").partition("\n\nAttributes:\n")
        text += [f"## `{name}`", "", " ".join(doc.split())]
        if attributes:
            # A line that is indented further continues the one before.
            entries = re.sub(r"\n {5,}", " ", attributes).splitlines()
            text[-1] += "".join(f" {_attribute(entry)}" for entry in entries)
        text += ["", f"**What to do.** {' '.join(ways[name].split())}", ""]
        if name in error_messages.EXAMPLES:
            text += ["```text", error_messages.session(name), "```", ""]
        text += [f"It {'is `' + place + name + '` and ' if place else ''}derives from {bases}.", ""]
    return "\n".join(text)


def _attribute(line: str) -> str:
    name, _, meaning = line.strip().partition(": ")
    return f"The attribute `{name}` contains {meaning[0].lower()}{meaning[1:]}"


# --- commands -------------------------------------------------------------------------------------


def commands() -> dict[str, tuple[str, Any]]:
    """Return command → the distribution that brings it, and what it takes."""
    catalog = public_index_catalog()
    owners = {part.name: part.distribution for part in catalog.parts("command")}
    found = {}
    for name in (*OWN_COMMANDS, *sorted(owners)):
        group: Any = typer.main.get_command(make_app([name, "--help"]))
        found[name] = (owners.get(name, "rlcatalog"), group.commands[name])
    return found


def commands_page() -> str:
    """Return the page of commands."""
    text = ["# Commands", "", _COMMANDS_TEXT, ""]
    for name, (owner, command) in commands().items():
        command.name_frameworks()
        context = command.context_class(command, info_name=f"rlcatalog {name}")
        usage = " ".join(command.collect_usage_pieces(context))
        help_text = inspect.cleandoc(command.help or "").replace("\n\n", "\n").splitlines()
        described = f"{' '.join(help_text)} The package `{owner}` provides this command."
        text += [f"## `{name}`", "", described, ""]
        text += ["```text", f"rlcatalog {name} {usage}", "```", ""]
        rows = list(_parameters(command, context))
        text += [table(("argument or option", "default", "meaning"), *rows), ""] if rows else []
    return "\n".join(text)


def _parameters(command: Any, context: Any) -> Iterator[tuple[str, str, str]]:
    for parameter in command.params:
        if parameter.param_type_name == "option":
            names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
            value = "" if parameter.is_flag else f" `{parameter.display_type_rich(context)}`"
        else:
            names, value = f"`{parameter.display_name_raw}`", ""
        default = parameter.default() if callable(parameter.default) else parameter.default
        empty = default is None or default is False or default in ((), [])
        shown = "required" if parameter.required else "—" if empty else f"`{default}`"
        yield names + value, shown, " ".join((parameter.help or "").split())


# --- parts ----------------------------------------------------------------------------------------


def parts_page() -> str:
    """Return the page of parts."""
    catalog = public_index_catalog()
    text = ["# Parts", "", _PARTS_TEXT, ""]
    for kind, title in _KINDS.items():
        rows = []
        for part in sorted(catalog.parts(kind), key=lambda part: part.name):
            switch = getattr(part.declaration, "switch", None)
            kinds = getattr(part.declaration, "kinds", None)
            by = (
                f"`{switch}`"
                if switch
                else "how well it fits"
                if part.declaration.match or kinds
                else "its name"
            )
            frameworks = (
                ", ".join(name for name in part.frameworks if name in ("torch", "tf")) or "any"
            )
            rows.append(
                (
                    f"`{part.name}`",
                    f"`{part.distribution}`",
                    frameworks,
                    by,
                    part.declaration.summary,
                )
            )
        chosen = kind in ("preprocessor", "model", "action_dist", "env_wrapper", "filter")
        head = ("name", "package", "frameworks", "chosen by", "what it is")
        text += [
            f"## {title}",
            "",
            table(*(row if chosen else row[:2] + row[4:] for row in [head, *rows])),
            "",
        ]
    return "\n".join(text)


# --- checks ---------------------------------------------------------------------------------------


def checks_page() -> str:
    """Return the page of the conformance kit's own checks."""
    groups = dict[str, list[tuple[str, str, str]]]()
    for check in OWN:
        asked = " ".join((inspect.getdoc(check.run) or "").split())
        row = f"`{check.name}`", asked, f"{check.hint[0].upper()}{check.hint[1:]}."
        groups.setdefault(_asked_of(check.kinds), []).append(row)
    text = ["# Checks", "", _CHECKS_TEXT, ""]
    for title in sorted(groups, key=lambda title: (title != "Any part", title)):
        head = ("check", "what it requires", "what to do")
        text += [f"## {title}", "", table(head, *groups[title]), ""]
    return "\n".join(text)


def _asked_of(kinds: Collection[str]) -> str:
    """Return the heading over a check of parts of these kinds; those of models are their slots."""
    if len(kinds) >= len(_KINDS) - 2:
        return "Any part"
    slots = [slot for slot in MODEL_SLOTS if slot in kinds]
    others = [title for kind, title in _KINDS.items() if kind in kinds]
    if set(slots) == set(MODEL_SLOTS):
        slots, others = [], ["Models", *others]
    if len(others) > 3:
        return "Parts of a policy"
    return ", ".join([*others, *(["Models: " + ", ".join(slots)] if slots else [])])


# --- the files ------------------------------------------------------------------------------------


def pages() -> dict[Path, str]:
    """Return every page: file → text."""
    return {
        TARGET / "errors.md": errors_page(),
        TARGET / "commands.md": commands_page(),
        TARGET / "parts.md": parts_page(),
        TARGET / "checks.md": checks_page(),
        **api_pages.pages(),
        **hook_pages.pages(),
    }


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` say whether they are up to date."""
    return write(pages(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
