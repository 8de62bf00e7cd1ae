"""Conversion of a trained algorithm into a policy that does not need Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_ENV_TO_MODULE_CONNECTOR, DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModule

from rlcatalog import Policy
from rlcatalog.errors import ModelContractError, UnknownNameError
from rlcatalog.models import set_weights_of
from rlcatalog_rllib.recipe import build_policy
from rlcatalog_rllib.rl_module import CatalogModule


def to_policy(algo: Algorithm | RLModule, module_id: str | None = None) -> Policy:
    """Convert a trained algorithm of RLlib to a policy of rlcatalog.

    The policy acts on the environment's observations, and can be saved and exported:
    `to_policy(algo).save(directory)`. `rlcatalog.load(directory)` then does not need Ray.

    Args:
        algo: An algorithm that was set up by `configure`. If the policy has no filter, you can also
            pass its module.
        module_id: Id of the policy to convert, if there are several agents.

    Raises:
        UnknownNameError: There is no policy `module_id`, or `module_id` is None and there are
            several policies.
        ModelContractError: The module was not built from catalog parts.
    """
    if isinstance(algo, Algorithm):
        return _policy_of_algorithm(algo, module_id)
    policy = _build_policy_of_module(algo)
    _set_model_weights(policy, algo.get_state())
    if policy.filter is not None:
        raise _filter_is_missing()
    return policy


def _policy_of_algorithm(algo: Algorithm, module_id: str | None) -> Policy:
    """Return the policy that an algorithm has trained for a module."""
    config: Any = algo.config
    learners: Any = algo.learner_group
    name = _module_id(config, module_id)
    if algo.env_runner_group is not None:
        module = algo.get_module(name)  # from a remote runner if the driver has no runner
    else:  # BC and MARWIL may have no runners at all
        module = config.get_multi_rl_module_spec().build()[name]
    policy = _build_policy_of_module(module)
    _set_model_weights(policy, learners.get_weights([name])[name])
    if policy.filter is not None:
        state = _connector_state(algo, name)
        if state is None:
            raise _filter_is_missing()
        policy.filter.set_state(state["filter"])
    return policy


def _build_policy_of_module(module: RLModule | None) -> Policy:
    """Build the policy for a module's recipe and spaces, with new weights.

    Raises:
        ModelContractError: The module was not built from catalog parts.
    """
    if not isinstance(module, CatalogModule):
        raise ModelContractError(
            "to_policy() needs an algorithm set up by rlcatalog_rllib.configure; this one's module"
            f" is {type(module).__name__}."
        )
    return build_policy(module.recipe, module.policy.observation_space, module.policy.action_space)


def _set_model_weights(policy: Policy, module_weights: Mapping[str, Any]) -> None:
    """Copy the weights of a module's model to the policy's model."""
    prefix = "model."
    weights = {}
    for name, value in module_weights.items():
        if name.startswith(prefix):
            weights[name.removeprefix(prefix)] = value
    set_weights_of(policy.model, weights)


def _filter_is_missing() -> ModelContractError:
    return ModelContractError(
        "to_policy() needs the algorithm: its module lacks the filter's statistics."
    )


def _module_id(config: AlgorithmConfig, module_id: str | None) -> str:
    """Return the id of the policy to convert.

    Args:
        config: The algorithm's config.
        module_id: The argument of `to_policy`.

    Raises:
        UnknownNameError: There is no such policy, or None does not say which.
    """
    known = sorted(config.policies) if config.is_multi_agent else [DEFAULT_MODULE_ID]
    if module_id is None and len(known) == 1:
        return str(known[0])
    if module_id in known:
        return str(module_id)
    if module_id is None:
        problem = "its policies are several"
    else:
        problem = f"it has no policy {module_id!r}"
    raise UnknownNameError(
        f"to_policy(algo, module_id): {problem}. Name one of: {', '.join(map(repr, known))}."
    )


def _connector_state(algo: Algorithm, module_id: str) -> Any:
    """Return the state of the driver's connector that encodes observations for a module."""
    pipeline: Any = algo.env_to_module_connector
    if algo.env_runner is None:
        pipeline_state = pipeline.get_state()
    else:
        name = COMPONENT_ENV_TO_MODULE_CONNECTOR
        pipeline_state = algo.env_runner.get_state(components=name)[name]
    for connector in ("EncodeAgents", "EncodeObservations"):
        connector_state = pipeline_state.get(connector)
        if connector_state:
            return connector_state.get(module_id)
    return None
