"""Config keys for parametric actions, and the parts of an observation that the head reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from rlcatalog.actions import mask_key
from rlcatalog.config import KernelConfig, read_config
from rlcatalog.errors import ConfigError
from rlcatalog.models import DensePlan, plan_dense_layers
from rlcatalog.spaces import SpaceInfo


class ParametricConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for parametric actions."""

    use_parametric: Annotated[
        bool | None,
        Meta(
            description="read action masks and embeddings. None: only if the observation has them"
            " and no custom_model is set, since a custom model reads them itself; True: also"
            " around a custom_model"
        ),
    ] = None
    action_embeddings_key: Annotated[
        str, Meta(description="key of the available actions' embeddings in Dict observations")
    ] = "avail_actions"


class HeadInputs(NamedTuple):
    """Parts of an observation that the head reads.

    Attributes:
        actions: Number of actions in a Discrete space; 0 for other action spaces.
        mask_key: Key of the action mask, or None if models do not see a mask.
        embeddings_key: Key of the embeddings, or None.
        size: Width of one embedding.
        is_list: Whether the embeddings are a list whose length is the number of available actions.
    """

    actions: int
    mask_key: str | None
    embeddings_key: str | None = None
    size: int = 0
    is_list: bool = False

    @property
    def claims(self) -> list[str]:
        """Keys that the head removes from the observation."""
        return [key for key in (self.mask_key, self.embeddings_key) if key is not None]


def embeddings_key(
    obs: SpaceInfo, action: SpaceInfo | None, config: Mapping[str, Any], mask: str | None
) -> str | None:
    """Return the key of the action embeddings in an observation space, or None.

    Args:
        obs: The observation space.
        action: The action space; only a Discrete can have embeddings.
        config: The flat model config.
        mask: Key of the action mask (never treated as embeddings), or None.
    """
    key = read_config(config, ParametricConfig).action_embeddings_key
    if action is None or action.kind != "discrete":
        return None
    if obs.kind != "dict" or key not in obs.keys or key == mask:
        return None
    return key


def layout(obs: SpaceInfo, action: SpaceInfo, config: Mapping[str, Any]) -> HeadInputs:
    """Return the parts of an observation that a head reads, based on the spaces.

    Args:
        obs: The observation space as models see it.
        action: The action space.
        config: The flat model config; missing keys take their defaults.

    Raises:
        ConfigError: The entry under the embeddings' key is not a list of embeddings, one per
            action.
    """
    mask = mask_key(obs, action, read_config(config, KernelConfig).action_mask_key)
    # The key may be a path to a mask inside an entry, but the head takes whole entries.
    if mask not in obs.keys:
        mask = None
    actions = 0
    if action.kind == "discrete":
        actions = int(action.n or 0)
    key = embeddings_key(obs, action, config, mask)
    if key is None:
        return HeadInputs(actions, mask)
    entry = obs.children[obs.keys.index(key)]
    if _is_list_of_vectors(entry):
        _check_length(entry, action, actions, config)
        (size,) = entry.children[0].shape or ()
        return HeadInputs(actions, mask, embeddings_key=key, size=int(size), is_list=True)
    if entry.kind == "box" and entry.rank == 2 and entry.shape is not None:
        rows, size = entry.shape
        if rows == actions:
            return HeadInputs(actions, mask, embeddings_key=key, size=size)
    raise ConfigError(
        f"{entry.path}: {entry.describe()} is not a list of embeddings for {action.describe()}:"
        f" expected a Box of shape ({actions}, E), or Repeated(Box(E,), {actions}). If it is an"
        f" action mask, set the model config key 'action_mask_key' to {key!r}; otherwise set"
        " 'action_embeddings_key' to a different key."
    )


def _is_list_of_vectors(entry: SpaceInfo) -> bool:
    if entry.kind not in ("repeated", "sequence"):
        return False
    item = entry.children[0]
    return item.kind == "box" and item.rank == 1


def _check_length(
    entry: SpaceInfo, action: SpaceInfo, actions: int, config: Mapping[str, Any]
) -> None:
    """Raise an error unless a list of embeddings contains at most one for each action.

    Args:
        entry: The list's space.
        action: The action space.
        actions: Number of actions.
        config: The flat model config.
    """
    if entry.kind == "repeated":
        limit = entry.n
        advice = ""
    else:
        # A Sequence has no maximum; the config sets it for the preprocessor.
        limit = config.get("sequence_max_len")
        advice = f" Set the model config key 'sequence_max_len' to {actions}."
    if limit == actions:
        return
    count = "any number of embeddings" if limit is None else f"at most {limit} embeddings"
    raise ConfigError(
        f"{entry.path}: {entry.describe()} contains {count} for the {actions} actions of"
        f" {action.describe()}; expected at most {actions}.{advice}"
    )


def plan_layers(
    config: Mapping[str, Any], inputs: HeadInputs, width: int, num_outputs: int | None
) -> DensePlan:
    """Return the head's last layers: for the logits (or, with embeddings, the intent) and for the
    value.

    Args:
        config: The flat model config; missing keys take their defaults.
        inputs: Inputs of the head.
        width: Width of the trunk's output.
        num_outputs: Width of the output, or None to return features.

    Raises:
        ConfigError: `no_final_linear` is set, or there are embeddings but the model does not output
            one logit per action.
    """
    if read_config(config, KernelConfig).no_final_linear:
        raise ConfigError(
            "no_final_linear does not work with parametric actions: the logits need a linear layer"
            " after the trunk's hidden layers. Remove no_final_linear, or set use_parametric to"
            " False."
        )
    if inputs.embeddings_key is None:
        return plan_dense_layers(config, width, hidden=[], num_outputs=num_outputs)
    if num_outputs is None:
        raise ConfigError(
            f"obs[{inputs.embeddings_key!r}]: embeddings define one output per action, but features"
            " were requested (num_outputs=None), for example by a dueling interface. Request"
            f" num_outputs={inputs.actions}, or set use_parametric to False to show the embeddings"
            " to the trunk."
        )
    if num_outputs != inputs.actions:
        raise ConfigError(
            f"obs[{inputs.embeddings_key!r}]: embeddings define one output per action, but"
            f" {num_outputs} were requested for {inputs.actions} actions. Choose a different action"
            " distribution, or set use_parametric to False."
        )
    # The layer's output, the intent, is as wide as an embedding.
    return plan_dense_layers(config, width, hidden=[], num_outputs=inputs.size)
