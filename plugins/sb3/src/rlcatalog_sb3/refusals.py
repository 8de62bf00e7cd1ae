"""What Stable-Baselines3's loops cannot carry, refused by the name of the config key that asks for it."""

from __future__ import annotations

from typing import Any

from rlcatalog import Policy
from rlcatalog.choice import Resolution
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError, nearest

#: Config keys that show a model the past → what they show.
_PAST = {
    "lstm_use_prev_action": "previous actions",
    "lstm_use_prev_reward": "previous rewards",
    "attention_use_n_prev_actions": "previous actions",
    "attention_use_n_prev_rewards": "previous rewards",
}


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


def refuse_memory(resolution: Resolution) -> None:
    """Refuse a memory for algorithms that carry no state.

    Raises:
        NotServedError: The config asks for one.
    """
    component = resolution.choices["memory"].component
    if component is not None:
        asked = [key for key in ("use_lstm", "use_attention") if resolution.config.values.get(key)]
        hint = " Use CatalogRecurrentPolicy with sb3_contrib's RecurrentPPO." if asked == ["use_lstm"] else ""
        raise NotServedError(
            f"{asked[0] if asked else component.name}: PPO and A2C of Stable-Baselines3 carry no state from step to"
            f" step.{hint}"
        )


def refuse_past(resolution: Resolution) -> None:
    """Refuse what RecurrentPPO does not hand to a policy: attention's memory, previous actions and rewards.

    Raises:
        NotServedError: The config asks for it; the message names the key.
    """
    values = resolution.config.values
    if values.get("use_attention"):
        raise NotServedError(
            "use_attention: sb3_contrib's RecurrentPPO carries the two states of an LSTM and nothing else. Set"
            " use_lstm, or train attention with rlcatalog-ppo or rlcatalog-rllib."
        )
    for key, what in _PAST.items():
        if values.get(key):
            raise NotServedError(f"{key}: sb3_contrib's RecurrentPPO shows a policy no {what}. Leave {key} out, or put"
                                 " them into the observation in an environment wrapper.")  # fmt: skip


def refuse_model(policy: Policy, *, recurrent: bool) -> None:
    """Refuse models that need more than a loop gives them.

    Args:
        policy: The policy that holds the model.
        recurrent: Whether the loop carries the states of an LSTM.

    Raises:
        NotServedError: The model asks for views or states, or has a loss of its own.
        ModelContractError: It has no value branch.
    """
    name = type(policy.model).__name__
    if not policy.has_value:
        raise ModelContractError(f"{name} has no value_function(), which PPO and A2C need.")
    if policy.views:
        asked = ", ".join(view.name for view in policy.views.all)
        raise NotServedError(f"{name} asks for the views {asked}; Stable-Baselines3 shows a policy the present alone.")
    if _adds_to_the_loss(policy.model):
        raise NotServedError(
            f"{name}.custom_loss: Stable-Baselines3's losses take no additions of a model's own. Train it with"
            " rlcatalog-ppo."
        )
    if not recurrent:
        if policy.memory:
            raise NotServedError(
                f"{name} is recurrent (get_initial_state() is not empty); PPO and A2C of Stable-Baselines3 carry no"
                " state. Use CatalogRecurrentPolicy with sb3_contrib's RecurrentPPO."
            )
        return
    if not policy.memory:
        raise ConfigError(
            f"CatalogRecurrentPolicy: {name} has no memory. Set use_lstm in model_config, or take CatalogPolicy"
            " and PPO."
        )
    shapes = [part.shape for part in policy.memory.initial]
    if len(shapes) != 2 or shapes[0] != shapes[1] or len(shapes[0]) != 1 or any(p.any() for p in policy.memory.initial):
        raise NotServedError(
            f"{name} carries states of shapes {shapes}; sb3_contrib's RecurrentPPO carries two vectors of one size that"
            " begin as zeros, as an LSTM's."
        )


def _adds_to_the_loss(model: Any) -> bool:
    """Whether a model, or one it holds, has a loss of its own: all others hand back the loss they are given."""
    loss = object()
    try:
        return model.custom_loss(loss, {}) is not loss
    except Exception:  # it computes something
        return True


def refuse_unused(arguments: dict[str, Any], name: str, accepted: tuple[str, ...]) -> None:
    """Refuse policy_kwargs that the catalog's parts have no use for.

    Raises:
        ConfigError: There are such.
    """
    for key in arguments:
        raise ConfigError(
            f"policy_kwargs: {name} takes no {key!r}.{nearest(key, accepted)} Accepted: {', '.join(accepted)}. Layers,"
            " activations and initial values are keys of model_config (fcnet_hiddens, conv_filters, ...)."
        )
