"""The command line: built-in commands, and commands from installed plugins."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from rlcatalog import __version__
from rlcatalog.catalog import Catalog, close_env, default_catalog, make_env
from rlcatalog.errors import (
    CatalogError,
    CatalogWarning,
    UnknownNameError,
    nearest,
    one_line,
    output_errors,
    shown,
)
from rlcatalog.internals import PluginRecord, Sheet, how_to_start
from rlcatalog.plugins import Part
from rlcatalog_cli.isolation import catalog_of_survivors, print_json, redirect_stdout
from rlcatalog_cli.notices import hide_tensorflow_notices
from rlcatalog_cli.options import AS_JSON, Command, ModelKeys, key_values

_ISOLATE = typer.Option(
    "--isolate",
    help="First load each plugin in a separate process, and report the plugins that crash it.",
)

_ALL = typer.Option(
    "--all",
    help="Also show the parts that were not chosen, with the reasons, and the config keys that are"
    " read.",
)


def list_parts(
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="List one kind of part: model, preprocessor, action_dist, …"
        ),
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    isolate: Annotated[bool, _ISOLATE] = False,
) -> None:
    """List the plugins and their parts."""
    with redirect_stdout():
        catalog = catalog_of_survivors() if isolate else default_catalog()
    parts = catalog.parts(kind)
    kinds = sorted({c.kind for c in catalog.parts()})
    if kind is not None and kind not in kinds:
        raise UnknownNameError(
            f"No parts of kind {shown(kind)} are installed. Kinds: {', '.join(kinds) or 'none'}."
        )
    if as_json:
        columns = ("name", "distribution", "version", "status", "error")
        plugins = [
            {column: getattr(record, column) for column in columns} for record in catalog.plugins
        ]
        rows = [
            {
                "kind": part.kind,
                "name": part.name,
                "distribution": part.distribution,
                "version": part.version,
                "frameworks": list(part.frameworks),
                "summary": part.declaration.summary,
            }
            for part in parts
        ]
        print_json({"plugins": plugins, "parts": rows})
        return
    print(list_sheet(catalog.plugins, parts).text())


def list_sheet(plugins: Sequence[PluginRecord], parts: Sequence[Part]) -> Sheet:
    """Return the data for `list`: the plugins, their parts, and the errors of failed plugins."""
    none = all(part.kind == "command" for part in parts)
    facts = [("note", f"No parts are installed. {how_to_start()}")] if none else []
    records = [
        (record.name, record.distribution, record.version, record.status) for record in plugins
    ]
    rows = [
        (c.kind, c.name, c.distribution, ", ".join(c.frameworks), c.declaration.summary)
        for c in parts
    ]
    tables: dict[str, list[tuple[str, ...]]] = {
        "plugins": [("plugin", "distribution", "version", "status"), *records],
        "parts": [("kind", "name", "distribution", "frameworks", "summary"), *rows],
    }
    errors = [
        (record.name, f"{record.status}: {record.error}")
        for record in plugins
        if record.error is not None
    ]
    return Sheet(
        f"rlcatalog {__version__}", facts, tables, errors, most=max(len(records), len(rows))
    )


def explain(
    env_id: Annotated[
        str, typer.Argument(metavar="ENV_ID", help="A Gymnasium environment, such as CartPole-v1.")
    ],
    framework: Annotated[str | None, typer.Option(metavar="NAME", help="torch or tf.")] = None,
    model: ModelKeys = None,
    everything: Annotated[bool, _ALL] = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Also draw the explanation as an SVG file.")
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Show which parts fit an environment, why they fit, and the shapes between them."""
    with redirect_stdout(), open_env(env_id, model or []) as (catalog, config, env):
        explanation = catalog.explain(config=config, framework=framework, env=env)
        found, text = explanation.as_dict(), explanation.text(all=everything)
        if svg is not None:
            picture = explanation.svg()
            with output_errors(svg):
                svg.write_text(picture, encoding="utf-8")
    if as_json:
        print_json(found)
        return
    print(text)
    if svg is not None:
        print(f"picture: {svg}")


@contextmanager
def open_env(env_id: str, model: list[str]) -> Iterator[tuple[Catalog, dict[str, Any], Any]]:
    """Create an environment for a command; yield the catalog, the config and the environment."""
    catalog = default_catalog()
    config = key_values(model, "--model")
    catalog.parse_config(config)  # report a wrong key before making an environment
    env = make_env(env_id)
    try:
        yield catalog, config, env
    finally:
        close_env(env)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"rlcatalog {__version__}")
        raise typer.Exit


def program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Model catalog for reinforcement learning: list the installed parts, and explain which fit an
    environment.
    """


#: Maximum length of a line in an error message, so that long arguments do not flood the terminal.
_LONGEST = 2_000

#: Commands that are available before any plugin is loaded, including this package's own.
OWN_COMMANDS: dict[str, Callable[..., None]] = {"list": list_parts, "explain": explain}


def make_app(argv: Sequence[str]) -> typer.Typer:
    """Return the program with its built-in commands and the commands from plugins.

    A plugin's code is imported only when its command is called; until then, its declaration
    suffices.

    Args:
        argv: The arguments.

    Raises:
        CatalogError: The called command does not exist, or its plugin cannot be used.
    """
    app = typer.Typer(no_args_is_help=True, add_completion=False)
    app.callback()(program)
    for name, function in OWN_COMMANDS.items():
        app.command(name, cls=Command)(function)
    called = next((argument for argument in argv if not argument.startswith("-")), None)
    if called in OWN_COMMANDS or (called is None and "--version" in argv):
        return app  # these commands look for plugins themselves
    with redirect_stdout():
        registry = default_catalog().registry
    known = list(dict.fromkeys([*OWN_COMMANDS, *registry.names(["command"])]))
    if called is not None and called not in known:
        try:
            registry.get("command", called)
        except UnknownNameError:
            text = (
                f"Unknown command {shown(called)}.{nearest(called, known)} Known:"
                f" {', '.join(known)}."
            )
            raise UnknownNameError(text) from None
    for part in registry.active("command"):
        if (name := registry.name_of(part)) in OWN_COMMANDS:
            continue
        if called is not None and called in (name, part.address):
            app.command(called, cls=Command)(part.load("cli"))
        else:
            app.command(name, help=escape(one_line(part.declaration.summary)))(lambda: None)
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; print rlcatalog's errors and I/O errors, and exit with status 1."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if hasattr(sys.stdout, "reconfigure"):
        # As for stderr: unencodable names must not raise.
        sys.stdout.reconfigure(errors="backslashreplace")
    previous, warnings.showwarning = warnings.showwarning, _show
    as_json = "--json" in arguments and "--help" not in arguments
    try:
        redirection = redirect_stdout(for_good=argv is None) if as_json else nullcontext()
        with hide_tensorflow_notices(), redirection:
            make_app(arguments)(arguments)
    except (CatalogError, OSError) as error:
        print(
            "\n".join(one_line(line, _LONGEST) for line in f"error: {error}".splitlines()),
            file=sys.stderr,
        )
        sys.exit(1)
    finally:
        warnings.showwarning = previous


def _show(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    # `list` shows failed plugins in full; here, print a single line that does not look like a
    # traceback.
    place = (
        ""
        if issubclass(category, CatalogWarning | DeprecationWarning)
        else f"{filename}:{lineno}: "
    )
    print(f"warning: {place}{message}", file=sys.stderr)
