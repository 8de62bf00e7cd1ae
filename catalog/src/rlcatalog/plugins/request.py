"""`Request`: the input to a lookup, which `match` and `describe` functions receive."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from rlcatalog.spaces import SpaceInfo, embedding_size, is_image

if TYPE_CHECKING:
    import gymnasium

    # Upward, for checkers alone: authors' functions may ask the preprocessor for anything. It needs
    # this file, because it is created from a request's part.
    from rlcatalog.observations import Preprocessor
    from rlcatalog.plugins.part import Part
    from rlcatalog.plugins.registry import Registry
    from rlcatalog.spaces.info import Space

    Env = gymnasium.Env[Any, Any]
else:
    # `inspect.signature` evaluates a struct's annotations, and would miss these names.
    Env = Preprocessor = Any


class PartsCatalog(Protocol):
    """The part of `rlcatalog.catalog.Catalog` that parts use."""

    @property
    def registry(self) -> Registry:
        """All parts by name."""

    def parse_config(self, config: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Check and complete a model config."""

    def config_keys(self, part: Part, framework: str | None = None) -> list[str]:
        """Return the config keys that a part reads."""

    def trunk(self, request: Request, name: str | Callable[..., Any] | None = None) -> Part:
        """Choose the trunk for a part of an observation."""

    def preprocessor_for(
        self,
        space: Space | SpaceInfo,
        options: Mapping[str, Any] | None = None,
        *,
        check: str | None = None,
    ) -> Preprocessor:
        """Create the preprocessor for a space."""

    def action_dist(
        self,
        action_space: Space,
        config: Mapping[str, Any] | None = None,
        dist_type: str | type | None = None,
        framework: str | None = None,
    ) -> tuple[Any, int]:
        """Return the distribution class for an action space, and its number of inputs."""


class Request(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """Input of one lookup.

    Attributes:
        obs: The environment's observation space (for preprocessors, the space or subspace to
            encode).
        action: The action space, or None if it is irrelevant.
        config: The model config, complete and checked: it has a value for every key of the
            installed packages.
        framework: `"torch"`, `"tf"`, or None if any framework is acceptable.
        encoded_shape: Shape of one preprocessed observation, or None before preprocessing.
        num_outputs: Number of model outputs, or None for a trunk.
        trunk_width: Width of the trunk's output, for memories and heads; None if known only after
            building.
        env: The environment, for requests to environment wrappers.
        preprocessor: The preprocessor of the observations, if known.
        catalog: The catalog of this lookup, for models that contain others (see `Catalog.trunk`).
        mask_key: Key, or path of keys, of an action mask in the environment's Dict observations, or
            None. `obs` contains its entry only if models see the mask.
        is_named: Whether the config names the part that is asked. A part that works, but leaves
            these spaces to others, fits if it is named. Its switch, if it has one, is then on in
            `config`.
        is_repeated: Whether the parts that the config names were chosen before, for example when
            a policy was saved. They are then not asked again whether they fit.
    """

    obs: SpaceInfo
    action: SpaceInfo | None = None
    config: Mapping[str, Any] = {}
    framework: str | None = None
    encoded_shape: tuple[int, ...] | None = None
    num_outputs: int | None = None
    trunk_width: int | None = None
    env: Env | None = None
    preprocessor: Preprocessor | None = None
    catalog: PartsCatalog | None = None
    mask_key: str | None = None
    is_named: bool = False
    is_repeated: bool = False

    def replace(self, **changes: Any) -> Request:
        """Return a request with some attributes changed."""
        return msgspec.structs.replace(self, **changes)

    def space_for(self, kind: str) -> SpaceInfo:
        """Return the space that matters to a kind of part."""
        if kind == "action_dist" and self.action is not None:
            return self.action
        return self.obs

    @property
    def is_image(self) -> bool:
        """Whether a model sees one image, or one stack of images; see `rlcatalog.spaces.is_image`.

        Integers that stand for categories (`_disable_preprocessor_api`) do not form an image.
        """
        rank = len(self.encoded_shape or ())
        if self.preprocessor is None or rank not in (3, 4):
            return rank == 3
        encoded = SpaceInfo.read(self.preprocessor.observation_space)
        return is_image(encoded, self.config.get("image_layout"))

    @property
    def images(self) -> list[SpaceInfo]:
        """The images among the leaves of the observation."""
        layout = self.config.get("image_layout")
        return [node for node in self.obs.walk() if is_image(node, layout)]

    @property
    def embedded(self) -> list[SpaceInfo]:
        """The leaves of the observation whose ids the config key `embeddings` embeds."""
        embeddings = self.config.get("embeddings")
        if embeddings is None:
            return []
        nodes = self.obs.walk()
        return [node for node in nodes if embedding_size(embeddings, node) is not None]

    @property
    def embedded_items(self) -> list[SpaceInfo]:
        """The leaves of `embedded` that are in the items of a list, a Repeated or Sequence."""
        leaf_by_path = {}
        for node in self.obs.walk():
            if node.kind in ("repeated", "sequence"):
                for leaf in self.replace(obs=node).embedded:
                    leaf_by_path[leaf.path] = leaf
        return list(leaf_by_path.values())

    @property
    def sees_parts(self) -> bool:
        """Whether a model sees the separate entries of a Dict or Tuple, which a preprocessor may
        have joined.
        """
        return self.obs.is_composite and (self.preprocessor is None or self.preprocessor.structured)

    @property
    def encoded_size(self) -> int:
        """Number of values in one preprocessed observation."""
        return math.prod(self.encoded_shape or ())
