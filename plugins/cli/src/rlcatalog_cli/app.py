"""The command line: built-in commands, and commands from installed plugins."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from rlcatalog.internals import PluginRecord, explanation_sheet
from rlcatalog.plugins import Part
from rlcatalog_cli.imports import import_modules
from rlcatalog_cli.isolation import catalog_of_survivors, print_json, redirect_stdout
from rlcatalog_cli.listing import framework_names, list_sheet
from rlcatalog_cli.notices import hide_tensorflow_notices
from rlcatalog_cli.options import (
    AS_JSON,
    Command,
    ConfigFile,
    FrameworkName,
    ModelKeys,
    Modules,
    model_config,
)
from rlcatalog_cli.sheets import print_sheet

if TYPE_CHECKING:
    # A name of the kernel that only annotations need.
    from rlcatalog.internals import Registry

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
    with redirect_stdout():  # what plugins print while they are imported
        catalog = catalog_of_survivors() if isolate else default_catalog()
    parts = catalog.parts(kind)
    installed_kinds = sorted({part.kind for part in catalog.parts()})
    if kind is not None and kind not in installed_kinds:
        raise UnknownNameError(
            f"No parts of kind {shown(kind)} are installed. Kinds:"
            f" {', '.join(installed_kinds) or 'none'}."
        )
    if as_json:
        print_json(
            {
                "plugins": [_plugin_as_dict(record) for record in catalog.plugins],
                "parts": [_part_as_dict(part) for part in parts],
            }
        )
    else:
        print_sheet(list_sheet(catalog.plugins, parts, kind))


def _plugin_as_dict(record: PluginRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "status": record.status,
        "error": record.error,
    }


def _part_as_dict(part: Part) -> dict[str, Any]:
    return {
        "kind": part.kind,
        "name": part.name,
        "distribution": part.distribution,
        "version": part.version,
        "frameworks": framework_names(part),
        "summary": part.declaration.summary,
    }


def explain(
    env_id: Annotated[
        str, typer.Argument(metavar="ENV_ID", help="A Gymnasium environment, such as CartPole-v1.")
    ],
    framework: FrameworkName = None,
    model: ModelKeys = None,
    config_file: ConfigFile = None,
    modules: Modules = None,
    everything: Annotated[bool, _ALL] = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Also draw the explanation as an SVG file.")
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Show which parts fit an environment, why they fit, and the shapes between them."""
    config = model_config(config_file, model)
    with redirect_stdout(), open_env(env_id, config, modules or []) as (catalog, env):
        explanation = catalog.explain(config=config, framework=framework, env=env)
        data = explanation.as_dict()
        if svg is not None:
            picture = explanation.svg(all=everything)
            with output_errors(svg):
                svg.write_text(picture, encoding="utf-8")
    if as_json:
        print_json(data)
        return
    print_sheet(explanation_sheet(data, all=everything))
    if svg is not None:
        print(f"picture: {svg}")


@contextmanager
def open_env(
    env_id: str, config: Mapping[str, Any], modules: Sequence[str] = ()
) -> Iterator[tuple[Catalog, Any]]:
    """Create an environment for a command; yield the catalog and the environment.

    Args:
        env_id: The environment.
        config: The model config, which is checked first.
        modules: Modules to import before.
    """
    import_modules(modules)
    catalog = default_catalog()
    catalog.parse_config(config)  # report a wrong key before making an environment
    env = make_env(env_id)
    try:
        yield catalog, env
    finally:
        close_env(env)


def _print_version(is_option_given: bool) -> None:
    # Typer calls this for every command, with or without the option.
    if is_option_given:
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
    # Typer shows this docstring as the help; `_print_version` acts on the option.


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
    app.callback()(program)  # the options before a command, such as --version
    for name, function in OWN_COMMANDS.items():
        app.command(name, cls=Command)(function)
    command_name = _called_command(argv)
    is_version_asked = command_name is None and "--version" in argv
    if command_name in OWN_COMMANDS or is_version_asked:
        return app  # these commands look for plugins themselves
    with redirect_stdout():
        registry = default_catalog().registry
    if command_name is not None:
        _check_command(registry, command_name)
    for part in registry.active("command"):
        name = registry.name_of(part)
        if name in OWN_COMMANDS:
            continue
        is_called = command_name in (name, part.address)
        if command_name is not None and is_called:
            app.command(command_name, cls=Command)(part.load("cli"))
        else:
            # For the list of commands alone, which needs no code of the plugin.
            app.command(name, help=escape(one_line(part.declaration.summary)))(_do_nothing)
    return app


def _called_command(argv: Sequence[str]) -> str | None:
    """Return the name of the command in the program's arguments, or None if there is none."""
    for argument in argv:
        if not argument.startswith("-"):
            return argument
    return None


def _check_command(registry: Registry, name: str) -> None:
    """Raise an error unless a command exists.

    Raises:
        CatalogError: There is no such command, or its plugin cannot be used.
    """
    # Each name once: this package declares its own commands as a plugin, too.
    names = list(dict.fromkeys([*OWN_COMMANDS, *registry.names(["command"])]))
    if name in names:
        return
    try:
        registry.get("command", name)  # an address, or a name that needs an error of its own
    except UnknownNameError:
        raise UnknownNameError(
            f"Unknown command {shown(name)}.{nearest(name, names)} Known: {', '.join(names)}."
        ) from None


def _do_nothing() -> None:
    pass


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; print rlcatalog's errors and I/O errors, and exit with status 1."""
    owns_process = argv is None  # and not called from a program or a test
    arguments = sys.argv[1:] if argv is None else list(argv)
    if hasattr(sys.stdout, "reconfigure"):  # Python's; a program may have replaced it
        # Characters that the terminal cannot show must not raise an error. Python sets this for
        # stderr, but not for stdout.
        sys.stdout.reconfigure(errors="backslashreplace")
    prints_json = "--json" in arguments and "--help" not in arguments
    redirection: AbstractContextManager[None] = nullcontext()
    if prints_json:
        redirection = redirect_stdout(for_good=owns_process)
    showwarning_before = warnings.showwarning
    warnings.showwarning = _show_warning
    try:
        with hide_tensorflow_notices(), redirection:
            run_command = make_app(arguments)
            run_command(arguments, prog_name="rlcatalog")
    except (CatalogError, OSError) as error:
        lines = f"error: {error}".splitlines()
        print("\n".join(one_line(line, _LONGEST) for line in lines), file=sys.stderr)
        sys.exit(1)
    finally:
        warnings.showwarning = showwarning_before


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    # `list` shows failed plugins in full; here, print a single line that does not look like a
    # traceback.
    place = f"{filename}:{lineno}: "
    if issubclass(category, CatalogWarning | DeprecationWarning):
        place = ""
    print(f"warning: {place}{message}", file=sys.stderr)
