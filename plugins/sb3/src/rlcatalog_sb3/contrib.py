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
from sb3_contrib.common.recurrent.type_aliases import (
    RecurrentRolloutBufferSamples,
    RNNStates,
)
from stable_baselines3.common.type_aliases import PyTorchObs
from torch import Tensor

from rlcatalog.frameworks import Array
from rlcatalog.models import SeparateCritic
from rlcatalog.reporting import warn_caller
from rlcatalog_sb3.actor_critic import CatalogDistribution
from rlcatalog_sb3.memories import StatePacker, States
from rlcatalog_sb3.policies import CatalogBasePolicy, WithoutMemory
from rlcatalog_torch import Padding, values_of


class CatalogMaskablePolicy(WithoutMemory, MaskableActorCriticPolicy):
    """Policy for MaskablePPO of sb3-contrib, with parts that rlcatalog chooses.

    Masks come from the observation (see `action_mask_key` in the model config), from
    `env.action_masks()`, or from both; an action must then be allowed by both masks. MaskablePPO
    always calls the environment's method. If only the observation has masks, wrap the environment
    with `for_sb3(env)`, which adds the method, or call `learn(..., use_masking=False)`.
    """


class CatalogRecurrentPolicy(CatalogBasePolicy, RecurrentActorCriticPolicy):
    """Policy with a memory for `rlcatalog_sb3.RecurrentPPO`.

    Select a memory in the `policy_kwargs`, for example `{"model_config": {"use_lstm": True}}`.
    Memories from plugins and from your own program also work, if their state consists of vectors
    that are zero at the start. If the config needs something that the training loop does not
    support (previous actions and rewards, attention, views of the past), an error names the key.

    The value is computed from the memory's output. With `vf_share_layers=False`, the value has a
    second memory, which is part of the same state. If the config has a critic of its own, it is
    enough that one of the two sides has a memory.

    The class also works with sb3-contrib's own RecurrentPPO, except for models with batch
    statistics, because that training loop does not report which rows of a batch are padding.

    Attributes:
        seq_lens: Lengths `[S]` of the sequences in the next call to `evaluate_actions`, or None if
            the training loop does not pass them.
    """

    recurrent = True
    adapts = False
    seq_lens: Array | None = None
    _has_warned = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._packer = StatePacker(self.actor_critic.policy.memory.initial)
        # RecurrentPPO reads its buffer sizes here.
        self.lstm_actor: Any = SimpleNamespace(num_layers=1, hidden_size=self._packer.size)
        self.lstm_hidden_state_shape = (1, 1, self._packer.size)

    def forward(  # type: ignore[override]
        self,
        obs: PyTorchObs,
        lstm_states: RNNStates,
        episode_starts: Tensor,
        deterministic: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor, RNNStates]:
        """Return raw actions `[B, ...]`, value estimates `[B, 1]`, log densities `[B]` and the new
        states.
        """
        self.warn_of_masks()  # once, at the first step
        actor_critic = self.actor_critic
        encoded = actor_critic.observer.encode(obs)
        mask = actor_critic.observer.mask(obs)
        # sb3-contrib has separate states for actor and critic. Here, both are the model's one
        # state.
        memory = self._packer.unpack(lstm_states.pi, episode_starts)
        # The step of a frozen policy, or None if the model itself must compute it.
        frozen_step = actor_critic.collector.step(encoded, mask, deterministic, memory)
        if frozen_step is not None:
            assert frozen_step.state is not None  # this policy has a memory
            new_memory = [torch.from_numpy(part) for part in frozen_step.state.memory]
            states = self._packer.pack(new_memory)
            actions, values, logp = actor_critic.results_of(frozen_step)
        else:
            outputs, values, states = self._run_step_with_values(encoded, memory)
            actions, logp = actor_critic.draw(outputs, mask, deterministic)
        return actions, values, logp, RNNStates(states, states)

    def evaluate_actions(  # type: ignore[override]
        self, obs: PyTorchObs, actions: Tensor, lstm_states: RNNStates, episode_starts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return value estimates `[B, 1]`, log densities `[B]` of raw actions, and entropies `[B]`.

        Args:
            obs: Observations of S sequences, padded to the same length T: `[S * T, ...]`.
            actions: Raw actions `[S * T, ...]`.
            lstm_states: The state at the start of each sequence.
            episode_starts: Whether a new episode begins at each step `[S * T]`.
        """
        actor_critic = self.actor_critic
        encoded = actor_critic.observer.encode(obs)
        # The lengths are valid for one call. Another training loop may not set them for the next.
        lengths = self.seq_lens
        self.seq_lens = None
        states = lstm_states.pi
        sequence_count = states[0].shape[1]  # a state is [1, S, size]
        starts = episode_starts.reshape(sequence_count, -1)
        # sb3-contrib cuts sequences at the start of an episode. Other training loops may not.
        has_start_within = bool(starts[:, 1:].any())
        if has_start_within:
            outputs, values = self._run_step_by_step(encoded, states, starts)
        else:
            outputs, values = self._run_whole_sequences(encoded, states, starts, lengths)
        mask = actor_critic.observer.stored_mask(obs)
        dist = actor_critic.dist_for(outputs, mask)
        logp, entropy = actor_critic.score(dist, actions)
        return values, logp, entropy

    def get_distribution(  # type: ignore[override]
        self, obs: PyTorchObs, lstm_states: States, episode_starts: Tensor
    ) -> tuple[CatalogDistribution, States]:
        """Return the distribution over raw actions, and the new states.

        A critic of its own does not run, so that its states stay the same. Entries of Dict
        observations that only it sees may be missing.
        """
        actor_critic = self.actor_critic
        memory = self._packer.unpack(lstm_states, episode_starts)
        encoded = actor_critic.observer.encode_for_acting(obs)
        outputs, states = self._run_step(encoded, memory, without_critic=True)
        mask = actor_critic.observer.mask(obs)
        return CatalogDistribution(actor_critic, actor_critic.dist_for(outputs, mask)), states

    def predict_values(  # type: ignore[override]
        self, obs: PyTorchObs, lstm_states: States, episode_starts: Tensor
    ) -> Tensor:
        """Return value estimates `[B, 1]`."""
        memory = self._packer.unpack(lstm_states, episode_starts)
        encoded = self.actor_critic.observer.encode(obs)
        _, values, _ = self._run_step_with_values(encoded, memory, values_only=True)
        return values

    def _run_step(
        self,
        encoded: Tensor,
        memory: list[Tensor],
        *,
        training: bool = False,
        without_critic: bool = False,
        **flags: bool,
    ) -> tuple[Tensor, States]:
        """Run the model for one step of each episode, and return its outputs `[B, n]` and the new
        states.

        Args:
            encoded: Encoded observations `[B, ...]`.
            memory: The memory's state vectors `[B, n]`.
            training: Whether gradients will be computed.
            without_critic: Whether to leave out a critic of its own, if the model has one.
            flags: More inputs of the model, such as `values_only=True`.
        """
        inputs = {"obs": encoded, "is_training": training, "single_steps": True, **flags}
        lengths = torch.ones(len(encoded), dtype=torch.int32, device=encoded.device)
        model = self.actor_critic.model
        if without_critic and isinstance(model, SeparateCritic):
            outputs, new_memory = model.run_policy(inputs, memory, lengths)
        else:
            outputs, new_memory = model(inputs, memory, lengths)
        return outputs, self._packer.pack(new_memory)

    def _run_step_with_values(
        self, encoded: Tensor, memory: list[Tensor], *, training: bool = False, **flags: bool
    ) -> tuple[Tensor, Tensor, States]:
        """Run the model as `_run_step` does, and return its outputs `[B, n]`, its value estimates
        `[B, 1]` and the new states.
        """
        outputs, states = self._run_step(encoded, memory, training=training, **flags)
        return outputs, values_of(self.actor_critic.model).unsqueeze(1), states

    def _run_whole_sequences(
        self, encoded: Tensor, states: States, starts: Tensor, known_lengths: Array | None
    ) -> tuple[Tensor, Tensor]:
        """Run the model once, for sequences in which no episode begins after the first step.

        Args:
            encoded: Encoded observations `[S * T, ...]`.
            states: The state at the start of each sequence.
            starts: Whether a new episode begins at each step `[S, T]`.
            known_lengths: The lengths of the sequences without padding `[S]`, or None if they are
                unknown.

        Returns:
            Outputs `[S * T, n]` and value estimates `[S * T, 1]`. Those of padding do not matter,
            because the loss masks them.
        """
        if known_lengths is None:
            self._warn_of_padding(starts)
            sequence_count, step_count = starts.shape
            lengths = torch.full((sequence_count,), step_count, dtype=torch.int32)
        else:
            lengths = torch.from_numpy(known_lengths)
        padding = Padding.of(lengths, encoded)
        if padding is not None:
            # sb3-contrib pads with zeros, but a model must only see real observations, so
            # `fill` repeats the last one of each sequence.
            real_rows = padding.take(encoded)
            encoded = padding.fill(real_rows)
        inputs = {
            "obs": encoded,
            "is_training": True,
            # Nothing follows these sequences, so the model need not return its new state.
            "outputs_only": True,
        }
        memory = self._packer.unpack(states, starts[:, 0])
        model = self.actor_critic.model
        outputs, _ = model(inputs, memory, lengths.to(encoded.device))
        return outputs, values_of(model).unsqueeze(1)

    def _run_step_by_step(
        self, encoded: Tensor, states: States, starts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run the model step by step, so that the state is reset where an episode begins; see
        `_run_whole_sequences` for the arguments and the result.
        """
        sequence_count, step_count = starts.shape
        encoded_by_step = encoded.reshape(sequence_count, step_count, *encoded.shape[1:])
        outputs: list[Tensor] = []
        values: list[Tensor] = []
        for t in range(step_count):
            memory = self._packer.unpack(states, starts[:, t])
            step_outputs, step_values, states = self._run_step_with_values(
                encoded_by_step[:, t], memory, training=True
            )
            outputs.append(step_outputs)
            values.append(step_values)
        # From T tensors [S, ...] to one tensor [S * T, ...], in the order of the observations.
        all_outputs = torch.stack(outputs, dim=1).flatten(0, 1)
        all_values = torch.stack(values, dim=1).flatten(0, 1)
        return all_outputs, all_values

    def _warn_of_padding(self, starts: Tensor) -> None:
        """Warn once if padding of unknown length would change a model's batch statistics."""
        step_count = starts.shape[1]
        may_have_padding = step_count > 1  # every sequence has at least one real step
        if not may_have_padding or self._has_warned:
            return
        # PyTorch's layers with batch statistics have this attribute.
        if any(hasattr(module, "running_mean") for module in self.model.modules()):
            self._has_warned = True
            warn_caller(
                "sb3-contrib's RecurrentPPO does not report which rows are padding, so this"
                " model's batch statistics would include them. Use rlcatalog_sb3.RecurrentPPO"
                " instead.",
                UserWarning,
            )


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
        policy = self.policy
        if isinstance(policy, CatalogRecurrentPolicy):
            buffer = cast("Any", self.rollout_buffer)
            # The wrapper is set on the buffer itself, which hides the method of its class.
            is_wrapped = "get" in vars(buffer)
            if not is_wrapped:
                buffer.get = partial(_batches_with_lengths, policy, buffer.get)
        super().train()


def _batches_with_lengths(
    policy: CatalogRecurrentPolicy,
    get_batches: Callable[..., Iterator[RecurrentRolloutBufferSamples]],
    batch_size: int | None = None,
) -> Iterator[RecurrentRolloutBufferSamples]:
    """Yield the batches of a rollout; before each one, tell a policy the lengths of its
    sequences.
    """
    for samples in get_batches(batch_size):
        policy.seq_lens = sequence_lengths(samples)
        yield samples


def sequence_lengths(samples: RecurrentRolloutBufferSamples) -> Array:
    """Return the lengths `[S]` of the sequences in a batch of sb3-contrib, int32.

    Args:
        samples: The batch. Its mask `[S * T]` is 0 where a sequence is padded.
    """
    sequence_count = samples.lstm_states.pi[0].shape[1]
    mask = samples.mask.reshape(sequence_count, -1)
    lengths: Array = mask.sum(dim=1).cpu().numpy()
    return lengths.astype(np.int32)
