"""Model for skrl's agents that is a policy and a value function of the catalog."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from skrl.models.torch import Model
from torch import Tensor, nn

from rlcatalog.errors import NoClosedFormError, NotServedError
from rlcatalog_policy import State
from rlcatalog_skrl.env import CatalogEnv
from rlcatalog_torch import as_torch, keep_filter_in_state_dict

_POLICY = "policy"


class _Pass(NamedTuple):
    """The last pass for a batch of observations.

    Attributes:
        obs: The rows of observations; skrl asks for their values next.
        value: Value estimates `[N]`.
    """

    obs: Tensor
    value: Tensor | None


class CatalogModel(Model):
    """Policy and value function for skrl's PPO, from the catalog: one model for both roles.

    Preprocessing, action masks, memory and action distribution are the policy's.

    Args:
        env: The wrapped environment, which has built the policy.
        sequence_length: With a memory, the number of steps through which an update follows it. It
            must divide the rollouts' length, which is the default.

    Example:
        >>> model = CatalogModel(env)  # doctest: +SKIP
        >>> models = {"policy": model, "value": model}  # doctest: +SKIP
    """

    def __init__(self, env: CatalogEnv, sequence_length: int | None = None) -> None:
        super().__init__(
            observation_space=env.observation_space,
            action_space=env.action_space,
            device=env.device,
        )
        self.policy = env.policy
        # PyTorch finds the weights under this name.
        model: Any = env.policy.model
        self.model: nn.Module = model
        self.sequence_length = sequence_length
        #: Whether an agent of this package trains it, which lets the filter learn and stores the
        #: memory before each step.
        self.has_own_agent = False
        self._rows = env.rows
        self._num_envs = env.num_envs
        self._last: _Pass | None = None
        #: The `Evaluation` of the last scored batch.
        self._evaluation: Any = None
        keep_filter_in_state_dict(self, env.policy.filter)

    # --- skrl's interface -------------------------------------------------------------------------

    def get_specification(self) -> dict[str, Any]:
        """Return the sizes of the memory's parts."""
        memory = self.policy.memory
        if not memory:
            return {}
        sizes = [(1, self._num_envs, part.size) for part in memory.initial]
        return {"rnn": {"sequence_length": self.sequence_length or 1, "sizes": sizes}}

    def act(self, inputs: dict[str, Any], *, role: str = "") -> tuple[Tensor, dict[str, Any]]:
        """Choose actions, score taken ones, or estimate values.

        Args:
            inputs: `"observations"`, rows `[N, size]`; with a memory `"rnn"`, a tensor
                `[1, N, size]` for each of its parts. In an update also `"taken_actions"`, raw
                actions `[N, width]`, and with a memory `"terminated"` and `"truncated"`.
            role: `"policy"` or `"value"`.

        Returns:
            Raw actions `[N, width]` with `"log_prob"` `[N, 1]` and the new `"rnn"`; or values
            `[N, 1]`.
        """
        if role != _POLICY:
            return self._values(inputs), {}
        if "taken_actions" in inputs:
            return self._score(inputs)
        return self._choose(inputs)

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        """Return the result of `act`."""
        return self.act(inputs, role=role)

    def get_entropy(self, *, role: str = "") -> Tensor:
        """Return the entropies `[N, 1]` of the last scored batch, or their estimates."""
        entropy: Tensor = self._scored().entropy
        return entropy[:, None]

    def distribution(self, *, role: str = "") -> Any:
        """Return the distributions of the last scored batch; skrl reads their `stddev`, which is
        NaN if they have none.
        """
        distribution = as_torch(self._scored().dist)
        try:
            _ = distribution.stddev  # computed only to see whether there is one
        except (NoClosedFormError, NotImplementedError):
            return SimpleNamespace(stddev=torch.full((1,), torch.nan))
        return distribution

    def _scored(self) -> Any:
        assert self._evaluation is not None, "act() with taken_actions comes first"
        return self._evaluation

    # --- acting -----------------------------------------------------------------------------------

    def _choose(self, inputs: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        self._check_agent()
        policy = self.policy
        rows = inputs["observations"]
        state = self._state_of(inputs, len(rows))
        # Its arrays are tensors, like the observations.
        step: Any = policy.act(self._rows.unflatten(rows), state)
        self._last = _Pass(rows, step.value)
        outputs: dict[str, Any] = {"log_prob": step.logp[:, None]}
        if step.state is not None:
            outputs["rnn"] = self._differences(step.state)
        return step.raw_action.float(), outputs

    def _values(self, inputs: dict[str, Any]) -> Tensor:
        """Return values `[N, 1]`; those of the last pass, if it had the same observations."""
        rows = inputs["observations"]
        last = self._last
        if last is not None and last.obs is rows and last.value is not None:
            return last.value[:, None]
        encoded = self.policy.preprocess(self._rows.unflatten(rows))
        values: Tensor = self.policy.values(encoded, self._state_of(inputs, len(rows)))
        return values[:, None]

    def _score(self, inputs: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        """Score taken actions, and keep the values and the distributions."""
        policy = self.policy
        rows = inputs["observations"]
        observations = self._rows.unflatten(rows)
        batch: dict[str, Any] = {
            "obs": policy.preprocess(observations),
            "raw_action": inputs["taken_actions"],
            "mask": policy.action_mask(observations),
        }
        if policy.memory:
            length = self.sequence_length or 1
            batch["seq_lens"] = length
            batch["restarts"] = _restarts(inputs["terminated"], inputs["truncated"], length)
            # skrl passes the memory before each step; the first of a sequence is needed.
            first_states = [part[:, ::length] for part in inputs["rnn"]]
            batch["state"] = self._memory_of(first_states)
        # The observations are those that the policy has acted on and checked.
        evaluation: Any = policy.evaluate(batch, check=False)
        self._evaluation = evaluation
        self._last = _Pass(rows, evaluation.value)
        return inputs["taken_actions"], {"log_prob": evaluation.logp[:, None]}

    # --- memory -----------------------------------------------------------------------------------

    # skrl fills a memory with zeros where an episode ends. So it gets the difference from the
    # memory at the start of an episode, of which zero is the start.

    def _initial_parts(self) -> list[Tensor]:
        """Return the memory at the start of an episode as rows `[size]`."""
        state = self.policy.initial_state(1, on_device=True)
        return [part.reshape(-1) for part in state.memory]

    def _differences(self, state: State) -> list[Tensor]:
        """Return a memory `[N, ...]` as skrl carries it, `[1, N, size]` for each part."""
        parts: list[Any] = list(state.memory)
        rows = len(parts[0])
        differences = []
        for part, initial in zip(parts, self._initial_parts(), strict=True):
            differences.append(part.reshape(1, rows, -1) - initial)
        return differences

    def _memory_of(self, differences: list[Tensor]) -> tuple[Tensor, ...]:
        """Return the memory `[N, ...]` of what skrl carries."""
        parts = []
        shapes = [part.shape for part in self.policy.memory.initial]
        for difference, initial, shape in zip(
            differences, self._initial_parts(), shapes, strict=True
        ):
            part = difference[0] + initial
            parts.append(part.reshape(len(part), *shape))
        return tuple(parts)

    def _state_of(self, inputs: dict[str, Any], rows: int) -> State | None:
        """Return the policy's state before a step."""
        if not self.policy.memory:
            return None
        if "rnn" not in inputs:
            raise NotServedError(
                "CatalogModel: this policy has a memory, and the agent keeps none. Use"
                " rlcatalog_skrl.PPO_RNN."
            )
        state: State = self.policy.initial_state(rows, on_device=True)
        memory: Any = self._memory_of(inputs["rnn"])
        return state._replace(memory=memory)

    def _check_agent(self) -> None:
        """Raise an error where skrl's own agent would train a policy wrongly."""
        if self.has_own_agent:
            return
        if self.policy.memory:
            raise NotServedError(
                "CatalogModel: skrl's own agents store the memory after each step instead of"
                " before it. Use rlcatalog_skrl.PPO_RNN, which is skrl's with this mended."
            )
        if self.policy.filter is not None:
            raise NotServedError(
                "CatalogModel: skrl's own agents do not let the policy's filter learn. Use"
                " rlcatalog_skrl.PPO."
            )

    def learn_filter(self, rows: Tensor) -> None:
        """Let the filter learn from rows of observations `[R, size]`."""
        if self.policy.filter is not None:
            self.policy.preprocess(self._rows.unflatten(rows), update=True)

    def forget(self) -> None:
        """Forget the last pass, whose values later weights would change."""
        self._last = None


def _restarts(terminated: Tensor, truncated: Tensor, length: int) -> Tensor:
    """Return in which rows of sequences `[S * length]` a new episode begins.

    The memory before the first row of a sequence says itself whether one begins there.
    """
    ended = (terminated | truncated).view(-1, length)
    restarts = torch.zeros_like(ended)
    restarts[:, 1:] = ended[:, :-1]
    return restarts.flatten()
