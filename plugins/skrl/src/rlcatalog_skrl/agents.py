"""skrl's PPO, with and without a memory, for catalog models."""

from __future__ import annotations

from typing import Any

from skrl.agents.torch.ppo import PPO as SkrlPPO

from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog_skrl.model import CatalogModel
from rlcatalog_skrl.private_api import SeparateMemories


class _CatalogAgent:
    """What both agents do beside skrl's: check the settings, let the filter learn, and check the
    numbers of each rollout.
    """

    def __init__(self, **arguments: Any) -> None:
        self._model = _model_of(arguments["models"])
        super().__init__(**arguments)
        settings: Any = self.cfg  # type: ignore[attr-defined]  # of skrl's agent
        if settings.observation_preprocessor:
            raise NotServedError(
                "observation_preprocessor: skrl would scale masks and choices too, and the policy"
                " would not know it. Set observation_filter='MeanStdFilter' in the model config."
            )
        self._model.has_own_agent = True
        _check_sequences(self._model, settings, arguments.get("memory"))

    def update(self, *, timestep: int, timesteps: int) -> None:
        """Update the weights from a rollout; then let the filter learn from it, and check the
        numbers of its steps.

        Raises:
            NonFiniteError, ObservationError, ActionMaskError: A step of the rollout had wrong
                numbers; the message names it.
        """
        agent: Any = self
        super().update(timestep=timestep, timesteps=timesteps)  # type: ignore[misc]
        self._model.forget()
        self._model.learn_filter(agent.memory.get_tensor_by_name("observations").flatten(0, 1))
        self._model.policy.check()


class PPO(_CatalogAgent, SkrlPPO):
    """skrl's PPO for a `CatalogModel` without a memory.

    Args:
        arguments: The arguments of skrl's PPO.
    """


class PPO_RNN(_CatalogAgent, SeparateMemories):
    """skrl's PPO_RNN for a `CatalogModel` with a memory.

    skrl 2.1.1 uses one list for the memory before a step and the memory after it, so it stores the
    memory after the step. This class has a list for each of them.

    Args:
        arguments: The arguments of skrl's PPO_RNN.
    """


def _model_of(models: dict[str, Any]) -> CatalogModel:
    """Return the catalog model that is both the policy and the value function.

    Raises:
        ConfigError: It is not.
    """
    model = models.get("policy")
    is_shared = models.get("value") is model
    if not isinstance(model, CatalogModel) or not is_shared:
        classes = {name: type(one).__name__ for name, one in models.items()}
        raise ConfigError(
            "models: expected {'policy': model, 'value': model} with one CatalogModel; found models"
            f" of the classes {classes}."
        )
    return model


def _check_sequences(model: CatalogModel, settings: Any, memory: Any) -> None:
    """Check that minibatches contain whole sequences.

    Raises:
        ConfigError: They do not, or the memory holds more than a rollout.
    """
    if not model.policy.memory or memory is None:
        return
    if model.sequence_length is None:
        model.sequence_length = int(settings.rollouts)
    length = model.sequence_length
    if settings.rollouts % length:
        raise ConfigError(
            f"sequence_length={length}: expected a divisor of rollouts={settings.rollouts}."
        )
    sequences = memory.num_envs * settings.rollouts // length
    if sequences % settings.mini_batches:
        raise ConfigError(
            f"mini_batches={settings.mini_batches}: expected a divisor of the {sequences}"
            f" sequences of {length} steps in a rollout."
        )
