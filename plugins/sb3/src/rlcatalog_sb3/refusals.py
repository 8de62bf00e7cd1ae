"""Refusals: what Stable-Baselines3's loops cannot carry, by the names of the config keys that ask for it."""

from __future__ import annotations

import sys
from typing import Any

from gymnasium import spaces

from rlcatalog import Policy
from rlcatalog.choice import Resolution
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog_sb3.packing import is_packable

#: Algorithms with nets of their own for actions and values.
_OWN_NETS = frozenset({"DQN", "SAC", "TD3", "QRDQN", "TQC", "CrossQ"})


def refuse_algorithm(policy: Any, observation_space: Any) -> None:
    """Refuse to be built by an algorithm that acts or learns otherwise than PPO and A2C do.

    Stable-Baselines3 does not tell a policy who builds it, and finds out what it lacks after a buffer is filled; so the
    caller of the constructor is looked at.

    Args:
        policy: The policy, in its constructor.
        observation_space: The observation space it shows.

    Raises:
        NotServedError: Such an algorithm builds it.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_locals.get("self") is policy:
        frame = frame.f_back
    builder = type(frame.f_locals.get("self"))
    theirs = {
        cls.__name__ for cls in builder.__mro__ if cls.__module__.startswith(("stable_baselines3.", "sb3_contrib."))
    }
    name, own = builder.__name__, type(policy).__name__
    shown, env = "MlpPolicy", "env"
    if isinstance(observation_space, spaces.Dict):
        known = "MultiInputPolicy" in getattr(builder, "policy_aliases", {})
        shown, env = ("MultiInputPolicy", env) if known else (shown, "for_sb3(env)")
    way = (
        f'give it a trunk of the catalog: {name}("{shown}", {env}, policy_kwargs={{"features_extractor_class":'
        ' CatalogExtractor, "features_extractor_kwargs": {"model_config": {...}}}), with CatalogExtractor from'
        " rlcatalog_sb3."
    )
    if theirs & _OWN_NETS:
        raise NotServedError(f"{name} takes no {own}: its nets for actions and values are its own. Instead, {way}")
    if "RecurrentPPO" in theirs and not policy._recurrent:
        raise NotServedError(
            f"RecurrentPPO takes no {own}, which carries no state. Give it CatalogRecurrentPolicy, with use_lstm or"
            " another memory in model_config."
        )
    if policy._recurrent and theirs & {"A2C", "PPO"} and "RecurrentPPO" not in theirs:
        raise NotServedError(
            f"{name} takes no {own}: it carries no state from step to step. Train it with rlcatalog_sb3.RecurrentPPO."
        )
    if "TRPO" in theirs:
        raise NotServedError(
            f"TRPO takes no {own}: it needs distributions of torch.distributions, and the catalog's are none. Take"
            f" PPO(CatalogPolicy, env, target_kl=0.01), which bounds the divergence as well, or {way}"
        )


def refuse_filter(resolution: Resolution) -> None:
    """Refuse an observation filter: the loop stores observations unfiltered, and would train on other ones than acted.

    Raises:
        NotServedError: The config asks for one.
    """
    if resolution.choices["filter"].component is not None:
        name = resolution.config.values["observation_filter"]
        raise NotServedError(
            f"observation_filter={name!r}: Stable-Baselines3 stores observations as they come, so that running"
            " statistics would change between acting and training. Normalise with its own"
            " stable_baselines3.common.vec_env.VecNormalize around the vector environment."
        )


def asking(resolution: Resolution, slot: str) -> str:
    """Name what asks for the part in a slot: the keys of its own that the config sets, else the part."""
    component = resolution.component(slot)
    own = set(resolution.config_keys(component)) - set(component.declaration.reads)
    return ", ".join(key for key in resolution.config.given if key in own) or component.name


def refuse_model(policy: Policy, *, recurrent: bool) -> None:
    """Refuse models that need more than a loop gives them.

    Args:
        policy: The policy that holds the model.
        recurrent: Whether the loop carries the states of a memory.

    Raises:
        NotServedError: The model asks for views or states, or has a loss of its own.
        ModelContractError: It has no value branch.
        ConfigError: The loop carries states, and the model has none.
    """
    memory, name, where = policy.resolution.choices["memory"].component, policy.model_name, ""
    if memory is not None:
        name, where = f"the memory {memory.name!r}", f"{asking(policy.resolution, 'memory')}: "
    if recurrent and not policy.memory:
        raise ConfigError(
            "CatalogRecurrentPolicy: the model has no memory. Set use_lstm in model_config, or take CatalogPolicy"
            " and PPO."
        )
    served = is_packable(policy.memory.initial)
    if policy.memory and not recurrent:
        way = " Use CatalogRecurrentPolicy with rlcatalog_sb3.RecurrentPPO, on the command line --algo RecurrentPPO."
        hint = way if served else ""
        raise NotServedError(
            f"{where or f'{name} is recurrent (get_initial_state() is not empty): '}PPO and A2C of Stable-Baselines3"
            f" carry no state from step to step.{hint}"
        )
    if policy.memory and not served:
        shapes = [part.shape for part in policy.memory.initial]
        raise NotServedError(
            f"{where}RecurrentPPO carries vectors of floats that begin as zeros, as an LSTM's;"
            f" {name} carries states of shapes {shapes}. Train it with rlcatalog-ppo or rlcatalog-rllib."
        )
    if not policy.has_value:
        raise ModelContractError(f"{name} has no value_function(), which PPO and A2C need.")
    if policy.views:
        views = ", ".join(view.name for view in policy.views.all)
        raise NotServedError(
            f"{where}{name} asks for the views {views}; Stable-Baselines3 shows a policy the present alone. Leave out"
            " what asks for them, or put them into the observation in an environment wrapper."
        )
    if _adds_to_the_loss(policy.model):
        raise NotServedError(
            f"{name}.custom_loss: Stable-Baselines3's losses take no additions of a model's own. Train it with"
            " rlcatalog-ppo."
        )


def _adds_to_the_loss(model: Any) -> bool:
    """Whether a model, or one it holds, has a loss of its own: all others hand back the loss they are given."""
    loss = object()
    try:
        return model.custom_loss(loss, {}) is not loss
    except Exception:  # it computes something
        return True
