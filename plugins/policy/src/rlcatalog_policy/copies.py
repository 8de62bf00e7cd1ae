"""New models, copies and pickles of a policy, built from the same parts with new or copied
weights and statistics.

A pickle has the same content as a saved policy: it names the parts. As in any pickle, classes
of the running program are stored by their import paths.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.choice import PartAddresses
from rlcatalog.errors import SavedPolicyError
from rlcatalog.frameworks import Array
from rlcatalog.internals import build_chosen_model, without_entries
from rlcatalog.models import ModelV2, code_of, copying_instances
from rlcatalog.plugins import Part
from rlcatalog.spaces import SpaceInfo
from rlcatalog_policy.tensors import describe_other_dtypes

if TYPE_CHECKING:
    from rlcatalog_policy.policy import Policy


def new_model(policy: Policy) -> ModelV2:
    """Build a new model from a policy's parts, with freshly initialised weights."""
    return build_chosen_model(
        policy.resolution, policy.encoded_space, policy.action_space, policy.dist_class
    )


def copy_policy(policy: Policy, memo: dict[int, Any]) -> Policy:
    """Return a policy with the same parts, weights and statistics, on the same device.

    Args:
        policy: The policy.
        memo: Copies made so far, by `id`; if the model has a copy here, it is used.
    """
    # `copy.deepcopy` may have copied the model already, as a part of another object.
    model_copy = memo.get(id(policy.model))
    # If the config contains a module instance, the new policy must not share it.
    with copying_instances():
        copy = type(policy)(
            policy.catalog,
            policy.resolution,
            policy.observation_space,
            policy.action_space,
            model_copy,
        )
    memo[id(policy.model)] = copy.model
    _restore_numbers(copy, _numbers(policy))
    return copy.to(policy.device)


def copy_without_critic(policy: Policy) -> Policy:
    """Return a copy of a policy without its critic of its own, on the CPU.

    The observations of the copy have only the entries that the policy sees, and the copy estimates
    no values. It can act and be copied, but neither be saved nor pickled.

    Args:
        policy: A policy with a critic of its own.

    Raises:
        NotServedError: The filter cannot move the statistics of some values.
    """
    visible = policy.resolution.visible
    info = SpaceInfo.read(policy.observation_space)
    columns = np.arange(policy.preprocessor.size)
    if visible is not None:
        info = without_entries(info, visible.hidden)
        columns = np.concatenate([np.arange(start, stop) for start, stop in visible.columns])
    # Building a model draws its first weights, which must not change the policy's next samples.
    random_state = policy.random_state()
    with copying_instances():
        copy = type(policy)(
            policy.catalog, policy.resolution.without_critic(), info.space, policy.action_space
        )
    policy.set_random_state(random_state)
    _set_weights(copy, _copy_weights(policy.acting_model))
    if policy.filter is not None and policy.filter.saved_state():
        assert copy.filter is not None
        copy.filter.take_statistics(policy.filter, columns, np.arange(len(columns)))
    return copy


def pickle_policy(policy: Policy) -> dict[str, Any]:
    """Return the data for pickling a policy, from which it can be rebuilt.

    Raises:
        SavedPolicyError: A class of the running program cannot be imported, or was never
            registered.
    """
    resolution = policy.resolution
    addresses = [part.address for part in _own_parts(policy)]
    unique_addresses = list(dict.fromkeys(addresses))
    return {
        "catalog": policy.catalog.pickled(unique_addresses),
        "pins": PartAddresses.of(resolution).as_dict(),
        "config": resolution.config_to_repeat(),
        "framework": policy.framework,
        "spaces": (policy.observation_space, policy.action_space),
        "numbers": _numbers(policy),
    }


def unpickle_policy(cls: type[Policy], state: dict[str, Any]) -> Policy:
    """Rebuild a policy from the result of `pickle_policy`."""
    # `Catalog.pickled` returned a function that restores the catalog, and its arguments.
    restore_catalog, arguments = state["catalog"]
    catalog = restore_catalog(*arguments)
    observation_space, action_space = state["spaces"]
    pins = PartAddresses.from_dict(state["pins"])
    pins.check(catalog.registry)  # a missing plugin is named before its config keys are
    resolution = catalog.resolve(
        observation_space, action_space, state["config"], state["framework"], pins=pins
    )
    policy = cls(catalog, resolution, observation_space, action_space)
    _restore_numbers(policy, state["numbers"])
    return policy


def _own_parts(policy: Policy) -> Iterator[Part]:
    """Yield a policy's parts from the running program; raise an error if one cannot be found
    again later.
    """
    registry = policy.catalog.registry
    for part in (*policy.resolution.parts(), *policy.resolution.inner_nets):
        if not part.in_process:
            continue
        classes = {code_of(code) for code in part.objects.values()}  # one for each framework
        for cls in classes:
            name_of_class = f"{part.kind} {part.name!r}: the class {cls.__qualname__}"
            try:
                pickle.dumps(cls)  # raises an error if the class cannot be imported
            except (pickle.PicklingError, AttributeError):
                raise SavedPolicyError(
                    f"{name_of_class} cannot be imported from {cls.__module__}, so a policy with it"
                    " cannot be pickled. Define it at the top level of a module. copy.deepcopy"
                    " needs no change."
                ) from None
            if part not in list(registry):
                call = "ModelCatalog.register_custom_model(name, cls)"
                if part.slot == "memory":
                    call = "rlcatalog.register_model(name, cls, slot='memory')"
                raise SavedPolicyError(
                    f"{name_of_class} is in the config itself, so a policy with it cannot be"
                    f" pickled. Register it ({call}) and write its name into the config."
                )
        yield part


def _numbers(policy: Policy) -> dict[str, Any]:
    """Return copies of the weights and statistics."""
    statistics = None
    if policy.filter is not None:
        statistics = policy.filter.saved_state()
    return {"weights": _copy_weights(policy.model), "filter": statistics}


def _restore_numbers(policy: Policy, numbers: dict[str, Any]) -> None:
    """Set the weights and statistics that `_numbers` returned."""
    _set_weights(policy, numbers["weights"])
    if policy.filter is not None:
        policy.filter.set_state(numbers["filter"])


def _copy_weights(model: ModelV2) -> dict[str, Array]:
    """Return copies of a model's weights."""
    return {name: array.copy() for name, array in model.get_weights().items()}


def _set_weights(policy: Policy, weights: dict[str, Array]) -> None:
    """Set the weights of a policy's model; raise an error if they have other dtypes."""
    dtypes = {name: array.dtype for name, array in weights.items()}
    other_dtypes = describe_other_dtypes(dtypes, policy.model.get_weights())
    if other_dtypes:
        raise SavedPolicyError(
            f"weights with a different dtype than the model is built with: {other_dtypes}."
        )
    policy.model.set_weights(weights)
