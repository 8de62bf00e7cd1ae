"""The command line: `list` and `explain`, and whatever commands the installed plugins add."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from rlcatalog.catalog import default_catalog
from rlcatalog.cli.arguments import key_values, make_env
from rlcatalog.errors import CatalogError, CatalogWarning, UnknownNameError, nearest, one_line, shown
from rlcatalog.plugins import public_index

_JSON = typer.Option("--json", help="Print JSON for machines instead of tables.")
_MODEL = typer.Option("--model", metavar="KEY=VALUE", help="A key of the model config; may be given again.")


def list_parts(
    kind: Annotated[
        str | None, typer.Option(help="Only components of this kind: model, preprocessor, action_dist, …")
    ] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """List the plugins and what they provide."""
    catalog = default_catalog()
    components = [c for c in catalog.components(kind) if c.shadowed_by is None]
    if kind is not None and not components:
        kinds = sorted({c.kind for c in catalog.components()})
        if kind not in kinds:
            raise UnknownNameError(f"Nothing of kind {shown(kind)} is installed. Kinds: {', '.join(kinds) or 'none'}.")
    if as_json:
        plugins = [
            {"name": r.name, "distribution": r.distribution, "version": r.version, "status": r.status, "error": r.error}
            for r in catalog.plugins
        ]
        parts = [
            {
                "kind": c.kind,
                "name": c.name,
                "distribution": c.distribution,
                "version": c.version,
                "frameworks": list(c.frameworks),
                "summary": c.declaration.summary,
            }
            for c in components
        ]
        _print_json({"plugins": plugins, "components": parts})
        return
    from rlcatalog.cli.printing import print_list

    print_list(catalog.plugins, components)


def explain(
    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="A Gymnasium environment, such as CartPole-v1.")],
    framework: Annotated[str | None, typer.Option(help="torch or tf.")] = None,
    model: Annotated[list[str] | None, _MODEL] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Say which parts fit an environment, why, and the shapes along the way."""
    catalog = default_catalog()
    config = key_values(model or [], "--model")
    catalog.parse_config(config)  # a wrong key is found before an environment is made
    env = make_env(env_id)
    try:
        wrapped, wrappers = catalog.explain_wrapping(env, config)
        found = catalog.explain(wrapped.observation_space, wrapped.action_space, config, framework).as_dict()
    finally:
        env.close()
    found["env_wrappers"] = [
        {"name": v.component.name, "provider": v.component.provider, "applied": v.rank is not None, "reason": v.why}
        for v in wrappers
    ]
    if as_json:
        _print_json({"env": env_id, **found})
        return
    from rlcatalog.cli.printing import print_explanation

    print_explanation(env_id, found)


#: Characters of a line of an error: whatever was typed, the terminal stays readable.
_LONGEST = 2_000

#: The kernel's own commands.
_OWN: dict[str, Callable[..., None]] = {"list": list_parts, "explain": explain}


def make_app(argv: Sequence[str]) -> typer.Typer:
    """Return the program with the kernel's commands and the plugins'.

    A plugin's code is imported only where its command is called; the others are shown by their declaration.

    Args:
        argv: The arguments.

    Raises:
        CatalogError: The command called does not exist, or its plugin cannot be used.
    """
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        help="Model catalog for reinforcement learning: what is installed, what fits, and why.",
    )
    for name, function in _OWN.items():
        app.command(name)(function)
    registry = default_catalog().registry
    called = next((argument for argument in argv if not argument.startswith("-")), None)
    known = [*_OWN, *registry.names(["command"])]
    if called is not None and called not in known:
        registry.explain_missing(f"command {shown(called)}", public_index.provider_of("command", called))
        raise UnknownNameError(f"Unknown command {shown(called)}.{nearest(called, known)} Known: {', '.join(known)}.")
    for component in registry.active("command"):
        if component.name not in _OWN:
            if component.name == called:
                app.command(called)(component.load("cli"))
            else:
                app.command(component.name, help=component.declaration.summary)(_placeholder)
    return app


def _placeholder() -> None:
    pass


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; an error of ours, or of a file that cannot be used, is readable and exit status 1."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a name that cannot be written ends nothing
    previous, warnings.showwarning = warnings.showwarning, _show
    try:
        make_app(arguments)(arguments)
    except (CatalogError, OSError) as error:
        print("\n".join(one_line(line, _LONGEST) for line in f"error: {error}".splitlines()), file=sys.stderr)
        sys.exit(1)
    finally:
        warnings.showwarning = previous


def _show(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    # A plugin that failed stands in `list`; here it gets a line without the look of a traceback.
    place = "" if issubclass(category, CatalogWarning | DeprecationWarning) else f"{filename}:{lineno}: "
    print(f"warning: {place}{message}", file=sys.stderr)


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2))
