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
    """RLlib's `ModelCatalog`: the same static methods, which look up parts in rlcatalog.

    With these methods, you get single parts, for code that was written for RLlib.
    `rlcatalog.build` gives you all parts as one policy.

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
        """Return the distribution class for an action space, and the number of model outputs that
        it needs.

        Args:
            action_space: The action space.
            config: The model config, whose key `custom_action_dist` selects a distribution.
            dist_type: Name or class of a distribution, if the config selects none.
            framework: `"torch"` or `"tf"`. If None, the framework of a custom class in the config,
                or otherwise PyTorch if it is installed, and TensorFlow if it is not.
            **kwargs: Has no effect; RLlib's method accepts it.
        """
        return default_catalog().action_dist(action_space, config, dist_type, framework)

    @staticmethod
    def get_action_shape(
        action_space: Space,
        framework: str | None = None,  # noqa: ARG004  (RLlib's signature)
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return the dtype and shape of a batch of raw actions, with None as the batch size.

        Args:
            action_space: The action space.
            framework: Has no effect, because the result is a NumPy dtype; RLlib's method accepts
                it.

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
        """Build a model for encoded observations.

        Args:
            obs_space: The preprocessor's `observation_space`. It can also be the environment's: a
                custom class gets a Dict or Tuple unchanged, and then reads structured observations.
            action_space: The environment's action space.
            num_outputs: The number of outputs that the action distribution needs, from
                `get_action_dist`. None builds a trunk, which returns features instead.
            model_config: The model config, whose key `custom_model` selects a model.
            framework: `"torch"` or `"tf"`. If None, the framework of a custom class in the config,
                or otherwise PyTorch if it is installed, and TensorFlow if it is not.
            name: The name that the model's constructor gets.
            model_interface: A class whose methods are added to the model, such as a method for
                Q-values.
            default_model: A class to use if the config selects no model.
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
        """Return the preprocessor for an environment's observations.

        Args:
            env: The environment.
            options: See `get_preprocessor_for_space`.
            include_multi_binary: See `get_preprocessor_for_space`.
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
        """Return the preprocessor that encodes observations of a space.

        Args:
            observation_space: Any Gymnasium space.
            options: The model config, whose key `custom_preprocessor` selects a preprocessor.
            include_multi_binary: Has no effect, because MultiBinary always has a preprocessor;
                RLlib's method accepts it.
        """
        catalog = default_catalog()
        return catalog.preprocessor_for(observation_space, catalog.parse_config(options))

    @staticmethod
    def register_custom_model(model_name: str, model_class: type) -> None:
        """Register a model class, so that `{"custom_model": model_name}` selects it."""
        default_catalog().register_model(model_name, model_class)

    @staticmethod
    def register_custom_action_dist(action_dist_name: str, action_dist_class: type) -> None:
        """Register a distribution class, so that `{"custom_action_dist": action_dist_name}` selects
        it.
        """
        default_catalog().register_action_dist(action_dist_name, action_dist_class)

    @staticmethod
    def register_custom_preprocessor(preprocessor_name: str, preprocessor_class: type) -> None:
        """Register a preprocessor class, so that `{"custom_preprocessor": preprocessor_name}`
        selects it.
        """
        default_catalog().register_preprocessor(preprocessor_name, preprocessor_class)
