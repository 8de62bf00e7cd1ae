"""Config keys for parametric actions, and the parts of an observation that the head reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from rlcatalog.actions import mask_key
from rlcatalog.config import KernelConfig, read_config
from rlcatalog.errors import ConfigError
from rlcatalog.models import OutputPlan, output_plan
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
        embeddings: Key of the embeddings, or None.
        size: Width of one embedding.
        listed: Whether the embeddings are a list whose length is the number of available actions.
        mask: Key of the action mask, or None if models do not see a mask.
    """

    actions: int
    embeddings: str | None
    size: int
    listed: bool
    mask: str | None

    @property
    def claims(self) -> list[str]:
        """Keys that the head removes from the observation."""
        return [key for key in (self.mask, self.embeddings) if key is not None]


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
    found = (
        action is not None
        and action.kind == "discrete"
        and obs.kind == "dict"
        and key in obs.keys
        and key != mask
    )
    return key if found else None


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
    if mask not in obs.keys:  # may be a path, but the head removes whole entries
        mask = None
    key = embeddings_key(obs, action, config, mask)
    n = int(action.n or 0) if action.kind == "discrete" else 0
    if key is None:
        return HeadInputs(n, None, 0, False, mask)
    found = obs.children[obs.keys.index(key)]
    listed = found.kind in ("repeated", "sequence")
    if listed and found.children[0].kind == "box" and found.children[0].rank == 1:
        limit = found.n if found.kind == "repeated" else config.get("sequence_max_len")
        if limit != n:
            most = (
                f"at most {limit} embeddings" if limit is not None else "any number of embeddings"
            )
            way = (
                ""
                if found.kind == "repeated"
                else f" Set the model config key 'sequence_max_len' to {n}."
            )
            raise ConfigError(
                f"{found.path}: {found.describe()} contains {most} for the {n} actions of"
                f" {action.describe()}; expected at most {n}.{way}"
            )
        return HeadInputs(n, key, int((found.children[0].shape or ())[0]), True, mask)
    if found.kind == "box" and found.rank == 2 and found.shape is not None and found.shape[0] == n:
        return HeadInputs(n, key, found.shape[1], False, mask)
    raise ConfigError(
        f"{found.path}: {found.describe()} is not a list of embeddings for {action.describe()}:"
        f" expected a Box of shape ({n}, E), or Repeated(Box(E,), {n}). If it is an action mask,"
        f" set the model config key 'action_mask_key' to {key!r}; otherwise set"
        " 'action_embeddings_key' to a different key."
    )


def plan(
    config: Mapping[str, Any], found: HeadInputs, width: int, num_outputs: int | None
) -> OutputPlan:
    """Return the head's last layers: for the logits (or, with embeddings, the intent) and for the
    value.

    Args:
        config: The flat model config; missing keys take their defaults.
        found: Inputs of the head.
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
    if found.embeddings is None:
        return output_plan(config, width, [], num_outputs)
    if num_outputs is None:
        raise ConfigError(
            f"obs[{found.embeddings!r}]: embeddings define one output per action, but features"
            " were requested (num_outputs=None), for example by a dueling interface. Request"
            f" num_outputs={found.actions}, or set use_parametric to False to show the embeddings"
            " to the trunk."
        )
    if num_outputs != found.actions:
        raise ConfigError(
            f"obs[{found.embeddings!r}]: embeddings define one output per action, but"
            f" {num_outputs} were requested for {found.actions} actions. Choose a different action"
            " distribution, or set use_parametric to False."
        )
    return output_plan(config, width, [], found.size)
