"""The command line: `list` and `explain`, and whatever commands the installed plugins add."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

from rlcatalog.catalog import default_catalog
from rlcatalog.cli_values import key_values
from rlcatalog.errors import CatalogError, PluginWarning, UnknownNameError
from rlcatalog.registry import Component

_JSON = typer.Option("--json", help="Print JSON for machines instead of tables.")
_MODEL = typer.Option("--model", metavar="KEY=VALUE", help="A key of the model config; may be given again.")


class _Commands(TyperGroup):
    """The kernel's commands and the plugins'."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        plugins = default_catalog().registry.names(["command"])
        return [*super().list_commands(ctx), *(name for name in plugins if name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return found or _PluginCommand(default_catalog().registry.get("command", cmd_name))


class _PluginCommand(click.Command):
    """A plugin's command: one line for the overview; its code is imported when it is called.

    Args:
        component: What the plugin declared.
    """

    def __init__(self, component: Component) -> None:
        super().__init__(component.name, help=component.declaration.summary)
        self._component = component

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: Any) -> click.Context:  # fmt: skip
        """Hand over to the real command."""
        inner = typer.Typer(add_completion=False)
        inner.command(self.name)(self._component.load("cli"))
        return typer.main.get_command(inner).make_context(info_name, args, parent, **extra)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    help="Model catalog for reinforcement learning: what is installed, what fits, and why.",
)


@app.callback()
def _root() -> None:
    # A callback keeps typer from folding a single command into the program itself.
    pass


@app.command("list")
def list_command(
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
            raise UnknownNameError(f"Nothing of kind {kind!r} is installed. Kinds: {', '.join(kinds) or 'none'}.")
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
                "frameworks": list(c.declaration.frameworks),
                "summary": c.declaration.summary,
            }
            for c in components
        ]
        _print_json({"plugins": plugins, "components": parts})
        return
    from rlcatalog.cli_tables import print_list

    print_list(catalog.plugins, components)


@app.command()
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
        wrapped = catalog.wrap_env(env, config)
        found = catalog.explain(wrapped.observation_space, wrapped.action_space, config, framework).as_dict()
    finally:
        env.close()
    if as_json:
        _print_json({"env": env_id, **found})
        return
    from rlcatalog.cli_tables import print_explanation

    print_explanation(env_id, found)


def make_env(env_id: str) -> Any:
    """Make a Gymnasium environment.

    Raises:
        UnknownNameError: Gymnasium does not know it, or cannot make it.
    """
    import gymnasium

    try:
        return gymnasium.make(env_id)
    except (gymnasium.error.Error, ImportError) as error:
        raise UnknownNameError(f"Environment {env_id!r} cannot be made: {type(error).__name__}: {error}") from error


def main() -> None:
    """Run the command line; an error of ours is one readable line and exit status 1."""

    # Plugins that failed stand in `list`; here they get a line each on standard error, without a traceback's look.
    def show(message: Warning | str, category: type[Warning], *rest: Any, **kwargs: Any) -> None:
        if issubclass(category, PluginWarning):
            print(f"warning: {message}", file=sys.stderr)
        else:
            previous(message, category, *rest, **kwargs)

    previous, warnings.showwarning = warnings.showwarning, show
    try:
        app()
    except CatalogError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        warnings.showwarning = previous


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2))
