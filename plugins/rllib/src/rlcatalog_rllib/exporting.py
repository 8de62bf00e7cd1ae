"""From a trained algorithm to a policy that needs no Ray."""

from __future__ import annotations

from typing import Any

from ray.rllib.core import DEFAULT_MODULE_ID

from rlcatalog import Policy
from rlcatalog.config import warn_deprecated
from rlcatalog.errors import ModelContractError
from rlcatalog.models import set_weights_of
from rlcatalog_rllib.recipe import build_policy
from rlcatalog_rllib.spaces import original_space


def to_policy(algo: Any) -> Policy:
    """Return the policy an algorithm has learned; `policy.save(directory)` keeps it.

    Args:
        algo: An algorithm that `configure` set up; or its module, for one without a filter.

    Raises:
        ModelContractError: Its module is not the catalog's.
    """
    is_algorithm = hasattr(algo, "get_module")
    module = algo.get_module() if is_algorithm else algo  # in one of the runners' processes where this one has none
    if not hasattr(module, "recipe"):
        raise ModelContractError(
            "to_policy() takes an algorithm that rlcatalog_rllib.configure set up; its module is"
            f" {type(module).__name__}."
        )
    policy = build_policy(module.recipe, original_space(module.observation_space), module.action_space)
    if is_algorithm:
        weights = algo.learner_group.get_weights([DEFAULT_MODULE_ID])[DEFAULT_MODULE_ID]
    else:
        weights = module.get_state()
    own = {name.removeprefix("model."): value for name, value in weights.items() if name.startswith("model.")}
    set_weights_of(policy.model, own)
    if policy.filter is not None:
        state = _connector_state(algo) if is_algorithm else None
        if state is None:
            raise ModelContractError("to_policy() needs the algorithm: the filter's statistics are not in the module.")
        policy.filter.set_state(state["filter"])
    return policy


def export(algo: Any) -> Policy:
    """Return what `to_policy` does; the old name.

    Args:
        algo: The algorithm, or its module.
    """
    warn_deprecated("rlcatalog_rllib.export is now called to_policy.")
    return to_policy(algo)


def _connector_state(algo: Any) -> Any:
    """Return the state of the connector that encodes observations, on the driver."""
    runner = algo.env_runner
    connector = algo.env_to_module_connector if runner is None else runner._env_to_module
    return connector.get_state().get("EncodeObservations")
