"""Conversion of a trained algorithm into a policy that does not need Ray."""

from __future__ import annotations

from typing import Any

from ray.rllib.core import COMPONENT_ENV_TO_MODULE_CONNECTOR, DEFAULT_MODULE_ID

from rlcatalog import Policy
from rlcatalog.errors import ModelContractError, UnknownNameError
from rlcatalog.models import set_weights_of
from rlcatalog_rllib.recipe import build_policy
from rlcatalog_rllib.spaces import original_space


def to_policy(algo: Any, module_id: str | None = None) -> Policy:
    """Return the policy that an algorithm has trained; `policy.save(directory)` saves it.

    Args:
        algo: An algorithm set up by `configure`, or, if it has no filter, its module.
        module_id: Id of the policy to convert, if there are several agents.

    Raises:
        UnknownNameError: There is no policy `module_id`, or `module_id` is None and there are
            several policies.
        ModelContractError: The module was not built from catalog parts.
    """
    is_algorithm = hasattr(algo, "get_module")
    name = _module_id(algo, module_id) if is_algorithm else DEFAULT_MODULE_ID
    module = algo
    # From a remote runner if the driver has no runner; BC and MARWIL may have no runners at all.
    if is_algorithm:
        runs = algo.env_runner_group is not None
        module = (
            algo.get_module(name) if runs else algo.config.get_multi_rl_module_spec().build()[name]
        )
    if not hasattr(module, "recipe"):
        raise ModelContractError(
            "to_policy() needs an algorithm set up by rlcatalog_rllib.configure; this one's module"
            f" is {type(module).__name__}."
        )
    policy = build_policy(
        module.recipe, original_space(module.observation_space), module.action_space
    )
    weights = algo.learner_group.get_weights([name])[name] if is_algorithm else module.get_state()
    own = {
        name.removeprefix("model."): value
        for name, value in weights.items()
        if name.startswith("model.")
    }
    set_weights_of(policy.model, own)
    if policy.filter is not None:
        state = _connector_state(algo, name) if is_algorithm else None
        if state is None:
            raise ModelContractError(
                "to_policy() needs the algorithm: its module lacks the filter's statistics."
            )
        policy.filter.set_state(state["filter"])
    return policy


def _module_id(algo: Any, asked: str | None) -> str:
    """Return the id of the policy to convert."""
    there = sorted(algo.config.policies) if algo.config.is_multi_agent else [DEFAULT_MODULE_ID]
    name = there[0] if asked is None and len(there) == 1 else asked
    if name in there:
        return str(name)
    what = "its policies are several" if asked is None else f"it has no policy {asked!r}"
    raise UnknownNameError(
        f"to_policy(algo, module_id): {what}. Name one of: {', '.join(map(repr, there))}."
    )


def _connector_state(algo: Any, module_id: str) -> Any:
    """Return the state of the driver's connector that encodes observations for a module."""
    runner, connector = algo.env_runner, COMPONENT_ENV_TO_MODULE_CONNECTOR
    if runner is None:
        state = algo.env_to_module_connector.get_state()
    else:
        state = runner.get_state(components=connector)[connector]
    return (state.get("EncodeAgents") or state.get("EncodeObservations") or {}).get(module_id)
