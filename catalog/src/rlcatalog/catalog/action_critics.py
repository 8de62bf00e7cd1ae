"""Models of critics for the values of actions, Q(s, a), as DQN and SAC learn them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlcatalog.actions import action_codec
from rlcatalog.catalog.default import default_catalog
from rlcatalog.catalog.model_building import build_model
from rlcatalog.choice import Resolution
from rlcatalog.choice.critic import policy_side
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.spaces.info import Space, SpaceInfo

if TYPE_CHECKING:
    from rlcatalog.catalog.catalog import Catalog
    from rlcatalog.frameworks import Array
    from rlcatalog.models import ModelV2
    from rlcatalog.observations import Preprocessor

#: The name of the action among the entries of a critic's observation.
ACTION = "action"


@dataclass(frozen=True)
class ActionBounds:
    """Bounds of continuous actions, with which a critic scales actions to [-1, 1].

    Attributes:
        middle: The middle between the bounds, float32 `[k]`.
        half_width: Half of their distance, float32 `[k]`; 1 where both bounds are equal.
    """

    middle: Array
    half_width: Array


@dataclass(frozen=True)
class CriticTrunk:
    """Trunk of a critic for the values of actions.

    Attributes:
        model: The trunk, without output layers. For continuous actions, its observations are rows
            that begin with the encoded observation and end with the action, scaled to [-1, 1].
        width: Number of its outputs.
        has_values: Whether a head of the model returns the values of all actions, so that no output
            layer follows. A head for action embeddings does.
        preprocessor: Encodes the environment's observations, without an action mask.
        num_choices: The number of actions of a Discrete, or None for continuous actions.
        bounds: The bounds of continuous actions, or None for a Discrete.
        resolution: The choices for the trunk.
    """

    model: ModelV2
    width: int
    has_values: bool
    preprocessor: Preprocessor
    num_choices: int | None
    bounds: ActionBounds | None
    resolution: Resolution

    def check_layers(self, num_outputs: int, *, dueling: bool) -> None:
        """Raise an error unless these output layers can follow the trunk.

        Args:
            num_outputs: Number of outputs for each action.
            dueling: Whether the critic is a dueling network.

        Raises:
            NotServedError: The critic cannot be a dueling network, or has one output for each
                action.
        """
        if dueling and (self.num_choices is None or num_outputs != 1):
            raise NotServedError(
                "dueling: a dueling network has one value for each action of a Discrete. Remove it."
            )
        if self.has_values and (dueling or num_outputs != 1):
            head = self.resolution.part("head").name
            raise NotServedError(
                f"the head {head!r} returns one value for each action, and no layer can follow it."
                " Remove dueling and num_outputs."
            )


def build_critic_trunk(
    observation_space: Space,
    action_space: Space,
    config: Mapping[str, Any] | None,
    framework: str,
    *,
    catalog: Catalog | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> CriticTrunk:
    """Build the trunk of a critic for the values of actions.

    A Discrete has one value for each action, so the trunk sees the observation alone. For a Box of
    floats, and for a Tuple or Dict of them, the action is one more entry of the observation.

    If the config contains a module instance, the trunk is a copy of it, because several critics and
    their target networks must not share weights.

    Args:
        observation_space: The environment's observation space.
        action_space: Its action space.
        config: The critic's model config.
        framework: `"torch"` or `"tf"`.
        catalog: The catalog for the parts. If None, the process's.
        defaults: Defaults that differ from the catalog's.

    Raises:
        CatalogError: The parts do not fit.
        NotServedError: The actions are neither a Discrete nor Boxes of floats with finite bounds,
            or the config selects what a critic for the values of actions cannot have.
    """
    if catalog is None:
        catalog = default_catalog()
    action = SpaceInfo.read(action_space, "action")
    num_choices = None
    bounds = None
    if action.kind == "discrete":
        num_choices = int(action_space.n)  # type: ignore[attr-defined]
        space_of_trunk = observation_space
        action_of_lookup = action_space
    else:
        bounds = _bounds_of(action)
        space_of_trunk = space_with_action(observation_space, len(bounds.middle))
        # A lookup needs an action space, on which a trunk does not depend. This one has neither an
        # action mask nor a distribution that the config of the policy could name.
        action_of_lookup = spaces.Box(-1.0, 1.0, bounds.middle.shape, np.float32)

    def build(resolution: Resolution) -> CriticTrunk:
        _refuse_critic_and_memory(resolution)
        whole = catalog.preprocessor_for(resolution.request.obs, resolution.config)
        preprocessor = whole
        has_values = _has_head_with_layers(resolution)
        if bounds is not None:
            if has_values:
                raise _not_supported("head", resolution.part("head").name)
            _check_is_vector(whole, resolution)
            preprocessor = catalog.preprocessor_for(observation_space, resolution.config)
        if has_values:
            model = _build_with_head(catalog, resolution, action_space, framework)
        else:
            model = _build_trunk(resolution, framework)
        return CriticTrunk(
            model, _check_model(model), has_values, preprocessor, num_choices, bounds, resolution
        )

    # If the trunk cannot be built with all defaults, the catalog calls the function again with
    # other parts or fewer defaults.
    return catalog.build_from_lookup(
        build, space_of_trunk, action_of_lookup, config, framework, defaults=defaults
    )


def space_with_action(observation_space: Space, action_size: int) -> spaces.Dict:
    """Return an observation space with the action, in [-1, 1], as its last entry."""
    entries: list[tuple[str, Space]] = [("obs", observation_space)]
    if isinstance(observation_space, spaces.Dict):
        entries = list(observation_space.spaces.items())
    name = ACTION
    while name in dict(entries):
        name += "_"  # the observation has an entry of this name already
    action = spaces.Box(-1.0, 1.0, (action_size,), np.float32)
    return spaces.Dict([*entries, (name, action)])


def _bounds_of(action: SpaceInfo) -> ActionBounds:
    """Return the bounds of continuous actions.

    Raises:
        NotServedError: The actions are not Boxes of floats with finite bounds.
    """
    if not action.consists_of_bounded_boxes:
        raise NotServedError(
            f"{action.describe()}: a critic estimates the values of a Discrete, or of a Box, Tuple"
            " or Dict of Boxes of floats with finite bounds. For other actions, use an algorithm"
            " that learns the values of observations, such as PPO or A2C."
        )
    low, high = action_codec(action, bounds="clip").limits
    half_width = (high - low) / 2
    half_width[half_width == 0] = 1  # such a value is always in the middle
    return ActionBounds(
        middle=((high + low) / 2).astype(np.float32), half_width=half_width.astype(np.float32)
    )


def _refuse_critic_and_memory(resolution: Resolution) -> None:
    """Reject parts that a critic for the values of actions cannot have.

    Raises:
        NotServedError: The config selects such a part.
    """
    if resolution.critic is not None:
        raise NotServedError("critic: a critic cannot have a critic of its own. Remove the key.")
    memory = resolution.choices["memory"].part
    if memory is not None:
        raise _not_supported("memory", memory.name)


def _has_head_with_layers(resolution: Resolution) -> bool:
    """Return whether a lookup chose a head that a critic needs."""
    head = resolution.choices["head"].part
    if head is None:
        return False
    # A mask alone also selects a head, which then reads no entry of the observation.
    has_only_mask = resolution.mask_key is not None and not resolution.claimed_entries
    is_named = resolution.config["custom_model"] == head.name or not head.is_indexed
    return is_named or not has_only_mask


def _not_supported(slot: str, name: str) -> NotServedError:
    return NotServedError(
        f"critic: the {slot} {name!r} is not supported, because a critic for these actions is only"
        " a trunk. Remove what selects it."
    )


def _check_is_vector(preprocessor: Preprocessor, resolution: Resolution) -> None:
    """Raise an error unless an observation with its action is encoded entry by entry, as a vector.

    Raises:
        NotServedError: It is not.
    """
    for key in ("custom_preprocessor", "_disable_preprocessor_api"):
        if resolution.config[key]:
            raise NotServedError(
                f"{key}: a critic for continuous actions needs a preprocessor that encodes each"
                " entry of its observation, because the action is one of them. Remove it."
            )
    if len(preprocessor.shape) != 1:
        raise NotServedError(
            f"{resolution.request.obs.describe()}: a critic for continuous actions needs a"
            " preprocessor that encodes its observation as a vector; found the shape"
            f" {preprocessor.shape}."
        )


def _build_trunk(resolution: Resolution, framework: str) -> ModelV2:
    # Importing models takes long, and lookups do not need them.
    from rlcatalog.models import copying_instances

    visible = resolution.unclaimed
    space = resolution.encoded_space
    if visible is not None:  # beside a mask, a single entry is seen without its Dict
        space = visible.space(space)
    with copying_instances():
        model = build_model(
            {"trunk": resolution.part("trunk")},
            space,
            action_space=None,
            num_outputs=None,  # the trunk's features
            config=resolution.config,
            framework=framework,
        )
    model._rlcatalog_bookkeeping.visible = visible
    return model


def _build_with_head(
    catalog: Catalog, resolution: Resolution, action_space: Space, framework: str
) -> ModelV2:
    """Build a trunk with a head, which returns the values of all actions of a Discrete."""
    # Importing models takes long, and lookups do not need them.
    from rlcatalog.models import copying_instances

    action_dist, _ = catalog.action_dist(action_space, framework=framework)
    with copying_instances():
        return build_model(
            resolution.parts_by_slot("trunk", "head"),
            resolution.encoded_space,
            action_space,
            resolution.num_outputs,
            policy_side(resolution.config),  # without a layer for the value of the observation
            framework,
            unclaimed=resolution.unclaimed,
            action_dist=action_dist,
        )


def _check_model(model: ModelV2) -> int:
    """Return the number of a model's outputs.

    Raises:
        ModelContractError: The width is unknown.
        NotServedError: The trunk reads more than the current observation.
    """
    name = type(model).__name__
    if not isinstance(model.num_outputs, int):
        raise ModelContractError(
            f"{name} did not set its width in self.num_outputs, so it cannot be the trunk of a"
            " critic."
        )
    views = [view for view in model.view_requirements if view != "obs"]
    if model.get_initial_state() or views:
        raise NotServedError(
            f"critic: {name} has a state or reads past steps, but a critic for the values of"
            " actions gets single observations. Use another model."
        )
    return model.num_outputs
