"""All names of Ray that are not part of its public interface and that rlcatalog uses.

No other module of rlcatalog uses such a name, because each of them may change in any release.

They were tried with Ray 2.50.0 and 2.60.0. If another version lacks a name, the function that needs
it raises `NotServedError` (see `rlcatalog.private_names`), unless the comment beside the name says
otherwise. `plugins/rllib/tests/test_rllib_private_api.py` checks that the names still do what is
relied on.

Methods such as `_forward_inference` are not listed. RLlib documents that modules override them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.tune.registry import ENV_CREATOR

from rlcatalog.errors import NotServedError
from rlcatalog.private_names import PrivateNames

RAY = PrivateNames("ray", tried="2.60.0")

# --- environments ---------------------------------------------------------------------------------

_REGISTRY = RAY.name(
    "ray.tune.registry:_global_registry", "find environments registered with Ray Tune"
)


def registered_env(name: str) -> Callable[[Any], Any] | None:
    """Return the function that was registered under a name with `ray.tune.register_env`, or None.

    Ray can only register environments publicly, not look them up. Without it, environments cannot
    be created from an id, because the id might be such a name.
    """
    if not _REGISTRY.contains(ENV_CREATOR, name):
        return None
    create: Callable[[Any], Any] = _REGISTRY.get(ENV_CREATOR, name)
    return create


# --- an algorithm's config ------------------------------------------------------------------------


def _read(config: AlgorithmConfig, name: str) -> Any:
    """Return a private attribute of Ray's config.

    Raises:
        NotServedError: This version of Ray lacks the attribute.
    """
    if not hasattr(config, name):  # another version of Ray
        raise RAY.error(f"AlgorithmConfig.{name}", "read the settings of an algorithm's config")
    return getattr(config, name)


def default_model_config(config: AlgorithmConfig) -> Mapping[str, Any]:
    """Return the model settings that an algorithm's class adds by itself.

    The public `model_config` combines them with those of the user, who may have set the same value.
    """
    settings: Mapping[str, Any] = _read(config, "_model_config_auto_includes")
    return settings


def given_model_config(config: AlgorithmConfig) -> Any:
    """Return the argument of `rl_module(model_config=...)`: a dict or a `DefaultModelConfig`.

    The public `model_config` adds the algorithm's own settings.
    """
    return _read(config, "_model_config")


def given_module_spec(config: AlgorithmConfig) -> Any:
    """Return the argument of `rl_module(rl_module_spec=...)`, or None.

    The public `rl_module_spec` fills its gaps with the algorithm's own module.
    """
    return _read(config, "_rl_module_spec")


def given_env_to_module(config: AlgorithmConfig) -> Any:
    """Return the argument of `env_runners(env_to_module_connector=...)`, or None.

    Ray has only a public method that calls it, and adds connectors to the result.
    """
    return _read(config, "_env_to_module_connector")


def given_module_to_env(config: AlgorithmConfig) -> Any:
    """Return the argument of `env_runners(module_to_env_connector=...)`, or None; see
    `given_env_to_module`.
    """
    return _read(config, "_module_to_env_connector")


def given_learner_connector(config: AlgorithmConfig) -> Any:
    """Return the argument of `training(learner_connector=...)`, or None; see
    `given_env_to_module`.
    """
    return _read(config, "_learner_connector")


# --- processes ------------------------------------------------------------------------------------

#: Ray's key-value store, which outlives an actor's process. Ray has no public store without an
#: actor of its own. Without it, the deaths of environment runners are not counted, so that Ray
#: restarts a runner that always dies up to a thousand times.
get_value: Callable[[bytes], bytes | None] = RAY.name(
    "ray.experimental.internal_kv:_internal_kv_get", "count how often a process died"
)
put_value: Callable[[bytes, bytes], Any] = RAY.name(
    "ray.experimental.internal_kv:_internal_kv_put", "count how often a process died"
)
delete_value: Callable[[bytes], Any] = RAY.name(
    "ray.experimental.internal_kv:_internal_kv_del", "count how often a process died"
)


def error_log() -> str:
    """Return the path of the file with this process's output on stderr, which explains why the
    process died.

    Without Ray's function, the result is `"unknown"`.
    """
    try:
        path: str = RAY.name(
            "ray._private.worker:global_worker.get_err_file_path", "find a process's log"
        )()
    except NotServedError:
        return "unknown"
    return path
