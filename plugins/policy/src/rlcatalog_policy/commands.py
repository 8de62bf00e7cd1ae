"""The command `rlcatalog summary`, which shows a model's layers for an environment."""

from __future__ import annotations

from typing import Annotated

import typer

import rlcatalog
from rlcatalog_cli import AS_JSON, ModelKeys, open_env, print_json, redirect_stdout
from rlcatalog_policy.summary import summarize_layers


def summary(
    env_id: Annotated[
        str, typer.Argument(metavar="ENV_ID", help="A Gymnasium environment, such as CartPole-v1.")
    ],
    framework: Annotated[str | None, typer.Option(help="torch or tf.")] = None,
    model: ModelKeys = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Print the model's layers for an environment, with their shapes and numbers of weights."""
    with redirect_stdout(), open_env(env_id, model or []) as (catalog, config, env):
        spaces = catalog.spaces_of(env, config)[:2]
        layers = summarize_layers(catalog.resolve(*spaces, config, framework))
        if layers is None:  # a part does not announce its weights: build a model, and count them
            layers = rlcatalog.build(*spaces, config, framework, catalog=catalog).summary()
    if as_json:
        print_json({"env": env_id, **layers.as_dict()})
        return
    print(layers)
