"""`ModelCatalog`: RLlib's static methods with RLlib's signatures, on the default catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlcatalog.actions import action_codec
from rlcatalog.catalog.default import default_catalog
from rlcatalog.spaces.info import Space, SpaceInfo

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.models import ModelV2
    from rlcatalog.observations import Preprocessor


class ModelCatalog:
    """Registry and factory of models, preprocessors and action distributions.

    Example:
        >>> env = gym.make("CartPole-v1")
        >>> space = ModelCatalog.get_preprocessor(env).observation_space
        >>> dist_class, size = ModelCatalog.get_action_dist(env.action_space, {}, framework="torch")
        >>> model = ModelCatalog.get_model_v2(space, env.action_space, size, {}, "torch")
        >>> type(model).__name__, dist_class.__name__, size
        ('FullyConnectedNetwork', 'Categorical', 2)
    """

    @staticmethod
    def get_action_dist(
        action_space: Space,
        config: Mapping[str, Any] | None = None,
        dist_type: str | type | None = None,
        framework: str | None = None,
        **kwargs: Any,  # noqa: ARG004  (RLlib's signature)
    ) -> tuple[Any, int]:
        """Return the distribution class for an action space, and the number of model outputs it
        needs.

        Args:
            action_space: The action space.
            config: The model config; `custom_action_dist` names a distribution.
            dist_type: Name or class of a distribution; `custom_action_dist` takes precedence.
            framework: `"torch"` or `"tf"`; None selects the framework of a custom class in the
                config, or otherwise the first installed one: torch, then tf.
            **kwargs: Accepted for RLlib's signature.
        """
        return default_catalog().action_dist(action_space, config, dist_type, framework)

    @staticmethod
    def get_action_shape(
        action_space: Space,
        framework: str | None = None,  # noqa: ARG004  (RLlib's signature)
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return the dtype and shape of a batch of stored actions, with None as the batch size.

        Args:
            action_space: The action space.
            framework: Accepted for compatibility with RLlib's signature; the result is a NumPy
                dtype.

        Returns:
            For Tuple and Dict, the flat form `[B, width]`: int32 if all children are Discrete,
            otherwise float32.

        Raises:
            UnsupportedSpaceError: Actions in this space have no fixed size.
        """
        return action_codec(SpaceInfo.read(action_space, "action")).stored_form

    @staticmethod
    def get_model_v2(
        obs_space: Space,
        action_space: Space,
        num_outputs: int | None,
        model_config: Mapping[str, Any] | None,
        framework: str | None = None,
        name: str = "default_model",
        model_interface: type | None = None,
        default_model: type | None = None,
        **model_kwargs: Any,
    ) -> ModelV2:
        """Build a model.

        Args:
            obs_space: The preprocessor's `observation_space`, or the environment's. A custom class
                gets a Dict or Tuple unchanged, and the model then takes structured observations.
            action_space: The environment's action space.
            num_outputs: Width of the output, or None for a trunk.
            model_config: The model config.
            framework: `"torch"` or `"tf"`; None selects the framework of a custom class in the
                config, or otherwise the first installed one: torch, then tf.
            name: The model's name.
            model_interface: A mixin that adds methods for an algorithm.
            default_model: A class to use if the config names no custom model.
            **model_kwargs: Keyword arguments for the model; `custom_model_config` takes precedence.
        """
        return default_catalog().model_v2(
            obs_space,
            action_space,
            num_outputs,
            model_config,
            framework,
            name,
            model_interface,
            default_model,
            model_kwargs,
        )

    @staticmethod
    def get_preprocessor(
        env: gymnasium.Env[Any, Any],
        options: Mapping[str, Any] | None = None,
        include_multi_binary: bool = False,
    ) -> Preprocessor:
        """Return the preprocessor for an environment's observations (see
        `get_preprocessor_for_space`).
        """
        return ModelCatalog.get_preprocessor_for_space(
            env.observation_space, options, include_multi_binary
        )

    @staticmethod
    def get_preprocessor_for_space(
        observation_space: Space,
        options: Mapping[str, Any] | None = None,
        include_multi_binary: bool = False,  # noqa: ARG004  (RLlib's signature)
    ) -> Preprocessor:
        """Return the preprocessor for a space.

        Args:
            observation_space: Any Gymnasium space.
            options: The model config.
            include_multi_binary: Accepted for compatibility with RLlib's signature; MultiBinary
                always has a preprocessor.
        """
        catalog = default_catalog()
        return catalog.preprocessor_for(observation_space, catalog.parse_config(options))

    @staticmethod
    def register_custom_model(model_name: str, model_class: type) -> None:
        """Register a model class for `"custom_model": model_name`."""
        default_catalog().register_model(model_name, model_class)

    @staticmethod
    def register_custom_action_dist(action_dist_name: str, action_dist_class: type) -> None:
        """Register a distribution class for `"custom_action_dist": action_dist_name`."""
        default_catalog().register_action_dist(action_dist_name, action_dist_class)

    @staticmethod
    def register_custom_preprocessor(preprocessor_name: str, preprocessor_class: type) -> None:
        """Register a preprocessor class for `"custom_preprocessor": preprocessor_name`."""
        default_catalog().register_preprocessor(preprocessor_name, preprocessor_class)
