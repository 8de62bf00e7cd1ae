"""The command `rlcatalog summary`, which shows a model's layers for an environment."""

from __future__ import annotations

from typing import Annotated

import typer

from rlcatalog_cli import (
    AS_JSON,
    ConfigFile,
    FrameworkName,
    ModelKeys,
    Modules,
    model_config,
    open_env,
    print_json,
    print_sheet,
    redirect_stdout,
)
from rlcatalog_policy.building import build
from rlcatalog_policy.summary import summarize_layers


def summary(
    env_id: Annotated[
        str, typer.Argument(metavar="ENV_ID", help="A Gymnasium environment, such as CartPole-v1.")
    ],
    framework: FrameworkName = None,
    model: ModelKeys = None,
    config_file: ConfigFile = None,
    modules: Modules = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Print the model's layers for an environment, with their shapes and numbers of weights."""
    # What plugins print goes to standard error, so that standard output is the answer alone.
    config = model_config(config_file, model)
    with redirect_stdout(), open_env(env_id, config, modules or []) as (catalog, env):
        env_properties = catalog.read_env(env, config)
        resolution = catalog.resolve(
            env_properties.observation_space, env_properties.action_space, config, framework
        )
        layers = summarize_layers(resolution)
        if layers is None:
            # A part does not declare its weights, so a model is built to count them.
            policy = build(
                env_properties.observation_space,
                env_properties.action_space,
                config,
                framework,
                catalog=catalog,
            )
            layers = policy.summary()
    if as_json:
        print_json({"env": env_id, **layers.as_dict()})
    else:
        print_sheet(layers.sheet())
