"""Policies for sb3-contrib's algorithms, and a `RecurrentPPO` that passes sequence lengths to its
policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import sb3_contrib
import torch
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from torch import Tensor

from rlcatalog.reporting import warn_caller
from rlcatalog_sb3.actor_critic import CatalogDistribution
from rlcatalog_sb3.memories import StatePacker, States
from rlcatalog_sb3.policies import CatalogBasePolicy, WithoutMemory
from rlcatalog_torch import Padding


class CatalogMaskablePolicy(WithoutMemory, MaskableActorCriticPolicy):
    """Policy for MaskablePPO with the catalog's preprocessor, model and distribution.

    Masks come from the observation (see `action_mask_key` in the model config), from
    `env.action_masks()`, or from both. If both provide masks, an action must be allowed by both.
    MaskablePPO calls the environment's method. If only the observation has masks, wrap the
    environment with `for_sb3(env)`, or call `learn(..., use_masking=False)`.
    """


class CatalogRecurrentPolicy(CatalogBasePolicy, RecurrentActorCriticPolicy):
    """Policy for `rlcatalog_sb3.RecurrentPPO`: `policy_kwargs={"model_config": {"use_lstm":
    True}}`.

    It also works with sb3-contrib's RecurrentPPO, except for models with batch statistics.
    sb3-contrib's training loop does not report which rows of a batch are padding.

    The memory's state must consist of vectors that are initially zero. Memories from plugins and
    from your own program also work. If the config needs something that the loop does not support
    (previous actions and rewards, attention, views of the past), an error names the key. The value
    branch reads the memory's output. With `vf_share_layers=False`, the value branch has a second
    memory, which is part of the same state.

    Attributes:
        seq_lens: Lengths `[S]` of the sequences in the next call to `evaluate_actions`, or None if
            the training loop does not pass them.
    """

    recurrent, adapts = True, False
    seq_lens: Any = None
    _warned = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._packer = StatePacker(self.actor_critic.policy.memory.initial)
        # RecurrentPPO reads its buffer sizes here.
        self.lstm_actor: Any = SimpleNamespace(num_layers=1, hidden_size=self._packer.size)
        self.lstm_hidden_state_shape = (1, 1, self._packer.size)

    def forward(  # type: ignore[override]
        self, obs: Any, lstm_states: RNNStates, episode_starts: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, RNNStates]:
        """Return raw actions `[B, ...]`, value estimates `[B, 1]`, log densities `[B]` and the new
        states.
        """
        self.warn_of_masks()
        actor_critic = self.actor_critic
        encoded, mask = actor_critic.observer.encode(obs), actor_critic.observer.mask(obs, None)
        memory = self._packer.unpack(lstm_states.pi, episode_starts)
        step = actor_critic.collector.step(encoded, mask, deterministic, memory)
        if step is not None and step.state is not None:
            states = self._packer.pack([torch.from_numpy(part) for part in step.state.memory])
            return *actor_critic.collected(step), RNNStates(states, states)
        inputs, states = self._run(encoded, memory)
        actions, logp = actor_critic.draw(inputs, mask, deterministic)
        return actions, actor_critic.values(), logp, RNNStates(states, states)

    def evaluate_actions(  # type: ignore[override]
        self, obs: Any, actions: Tensor, lstm_states: RNNStates, episode_starts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return value estimates `[B, 1]`, log densities `[B]` of raw actions, and entropies `[B]`.

        Args:
            obs: Observations of S sequences, padded to the same length T: `[S * T, ...]`.
            actions: Raw actions `[S * T, ...]`.
            lstm_states: The state at the start of each sequence.
            episode_starts: Whether a new episode begins at each step `[S * T]`.
        """
        actor_critic = self.actor_critic
        inputs, values = self._sequences(
            actor_critic.observer.encode(obs), lstm_states.pi, episode_starts
        )
        logp, entropy = actor_critic.score(actor_critic.masked(inputs, obs, None, False), actions)
        return values, logp, entropy

    def get_distribution(  # type: ignore[override]
        self, obs: Any, lstm_states: States, episode_starts: Tensor
    ) -> tuple[CatalogDistribution, States]:
        """Return the distribution over raw actions, and the new states."""
        memory = self._packer.unpack(lstm_states, episode_starts)
        inputs, states = self._run(self.actor_critic.observer.encode(obs), memory)
        return CatalogDistribution(
            self.actor_critic, self.actor_critic.masked(inputs, obs, None, True)
        ), states

    def predict_values(  # type: ignore[override]
        self, obs: Any, lstm_states: States, episode_starts: Tensor
    ) -> Tensor:
        """Return value estimates `[B, 1]`."""
        memory = self._packer.unpack(lstm_states, episode_starts)
        self._run(self.actor_critic.observer.encode(obs), memory, values_only=True)
        return self.actor_critic.values()

    def _run(
        self, encoded: Tensor, memory: list[Tensor], training: bool = False, **flags: bool
    ) -> tuple[Tensor, States]:
        lengths = torch.ones(len(encoded), dtype=torch.int32, device=encoded.device)
        inputs = {"obs": encoded, "is_training": training, "single_steps": True, **flags}
        outputs, after = self.actor_critic.model(inputs, memory, lengths)
        return outputs, self._packer.pack(after)

    def _sequences(
        self, encoded: Tensor, states: States, episode_starts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return model outputs and value estimates for padded sequences.

        Padding is masked in the loss.
        """
        count = states[0].shape[1]
        starts = episode_starts.reshape(count, -1)
        steps = starts.shape[1]
        known, self.seq_lens = self.seq_lens, None
        # sb3-contrib cuts sequences at the start of an episode.
        if steps == 1 or not starts[:, 1:].any():
            lengths = self._all_real(count, steps) if known is None else torch.from_numpy(known)
            padding = Padding.of(lengths, encoded)
            # sb3-contrib pads with zeros, but a model must only see real observations.
            if padding is not None:
                encoded = padding.fill(padding.take(encoded))
            inputs = {"obs": encoded, "is_training": True, "outputs_only": True}
            memory = self._packer.unpack(states, starts[:, 0])
            outputs, _ = self.actor_critic.model(inputs, memory, lengths.to(encoded.device))
            return outputs, self.actor_critic.values()
        timed = encoded.reshape(count, steps, *encoded.shape[1:])
        found: list[Tensor] = []
        values: list[Tensor] = []
        for t in range(steps):
            output, states = self._run(
                timed[:, t], self._packer.unpack(states, starts[:, t]), training=True
            )
            found.append(output)
            values.append(self.actor_critic.values())
        return torch.stack(found, 1).flatten(0, 1), torch.stack(values, 1).flatten(0, 1)

    def _all_real(self, count: int, steps: int) -> Tensor:
        """Return the full length for every sequence, because the padding is unknown."""
        if (
            steps > 1
            and not self._warned
            and any(hasattr(module, "running_mean") for module in self.model.modules())
        ):
            self._warned = True
            warn_caller(
                "sb3-contrib's RecurrentPPO does not report which rows are padding, so this"
                " model's batch statistics would include them. Use rlcatalog_sb3.RecurrentPPO"
                " instead.",
                UserWarning,
            )
        return torch.full((count,), steps, dtype=torch.int32)


class RecurrentPPO(sb3_contrib.RecurrentPPO):
    """sb3-contrib's RecurrentPPO, which keeps padding out of the trunk of a
    `CatalogRecurrentPolicy`.

    sb3-contrib's version passes neither sequence lengths nor padding to a policy. Its loss ignores
    padding, but a trunk with batch statistics (batch normalisation) would treat padding like
    observations.
    """

    def train(self) -> None:
        """Update the policy with the last rollout, and tell it the lengths of each batch's
        sequences.
        """
        policy, buffer = self.policy, cast("Any", self.rollout_buffer)
        is_told = "get" in vars(buffer)
        if isinstance(policy, CatalogRecurrentPolicy) and not is_told:
            buffer.get = partial(_batches, policy, buffer.get)
        super().train()


def _batches(
    policy: CatalogRecurrentPolicy, get: Callable[..., Iterator[Any]], batch_size: int | None = None
) -> Iterator[Any]:
    """Yield the batches of a rollout; before each one, tell a policy the lengths of its
    sequences.
    """
    for samples in get(batch_size):
        policy.seq_lens = sequence_lengths(samples)
        yield samples


def sequence_lengths(samples: Any) -> np.ndarray[Any, Any]:
    """Return the lengths `[S]` of the sequences in a batch of sb3-contrib, int32.

    Args:
        samples: The batch. Its mask `[S * T]` is 0 where a sequence is padded.
    """
    count = samples.lstm_states.pi[0].shape[1]
    lengths: np.ndarray[Any, Any] = samples.mask.reshape(count, -1).sum(dim=1).cpu().numpy()
    return lengths.astype(np.int32)
