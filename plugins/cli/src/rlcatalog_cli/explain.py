"""`rlcatalog explain`: what a lookup chooses for an environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from rlcatalog.catalog import Catalog, default_catalog, make_env
from rlcatalog_cli.isolation import print_json, redirect_stdout
from rlcatalog_cli.options import AS_JSON, ModelKeys, key_values

_ENV = typer.Argument(metavar="ENV_ID", help="A Gymnasium environment, such as CartPole-v1.")
_FRAMEWORK = typer.Option(metavar="NAME", help="torch or tf.")
_ALL = typer.Option("--all", help="Also the parts that were not chosen, and why, and the config keys read.")


def explain(
    env_id: Annotated[str, _ENV],
    framework: Annotated[str | None, _FRAMEWORK] = None,
    model: ModelKeys = None,
    everything: Annotated[bool, _ALL] = False,
    svg: Annotated[Path | None, typer.Option(metavar="PATH", help="Draw it as well, into this file.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Say which parts fit an environment, why, and the shapes along the way."""
    with redirect_stdout(), open_env(env_id, model or []) as (catalog, config, env):
        explanation = catalog.explain(config=config, framework=framework, env=env)
        found, text = explanation.as_dict(), explanation.text(all=everything)
        if svg is not None:
            svg.write_text(explanation.svg(), encoding="utf-8")
    if as_json:
        print_json(found)
        return
    print(text)
    if svg is not None:
        print(f"picture: {svg}")


@contextmanager
def open_env(env_id: str, model: list[str]) -> Iterator[tuple[Catalog, dict[str, Any], Any]]:
    """Make an environment for a command: the catalog, the config that the options give, the environment."""
    catalog = default_catalog()
    config = key_values(model, "--model")
    catalog.parse_config(config)  # a wrong key is found before an environment is made
    env = make_env(env_id)
    try:
        yield catalog, config, env
    finally:
        env.close()
