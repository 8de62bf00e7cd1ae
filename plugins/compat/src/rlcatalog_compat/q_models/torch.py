"""RLlib's Q-value model in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlcatalog.errors import NotServedError
from rlcatalog_compat.layers.torch import SlimFC
from rlcatalog_torch import TorchModelV2


class DQNTorchModel(TorchModelV2):
    """A base class: `forward` gives features `[B, num_outputs]`, and heads over them give Q-values.

    Args:
        obs_space: The preprocessor's `observation_space`, or a Box.
        action_space: A Discrete.
        num_outputs: Width of the features; without `q_hiddens` and `dueling` they are the Q-values.
        model_config: The flat model config.
        name: A name for the model.
        q_hiddens: Sizes of the hidden layers of the heads.
        dueling: Whether there is a head for the state's value.
        dueling_activation: Activation of the hidden layers.
        num_atoms: Number of atoms of the distribution over returns; 1: Q-values alone.
        use_noisy: Noisy layers; not served.
        v_min: Smallest return of the distribution.
        v_max: Largest return.
        sigma0: For noisy layers.
        add_layer_norm: Whether the hidden layers are normalised.

    Raises:
        NotServedError: `use_noisy` is set.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
        *,
        q_hiddens: Sequence[int] = (256,),
        dueling: bool = False,
        dueling_activation: str = "relu",
        num_atoms: int = 1,
        use_noisy: bool = False,
        v_min: float = -10.0,
        v_max: float = 10.0,
        sigma0: float = 0.5,
        add_layer_norm: bool = False,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        if use_noisy:
            raise NotServedError("DQNTorchModel: noisy layers are not served; leave use_noisy out.")
        self.dueling, self.num_atoms, self.v_min, self.v_max = dueling, num_atoms, v_min, v_max
        self.action_dim = int(action_space.n)

        def head(letter: str, outputs: int) -> nn.Sequential:
            layers, width = nn.Sequential(), int(num_outputs or 0)
            for index, size in enumerate(q_hiddens):
                layers.add_module(f"dueling_{letter}_{index}", SlimFC(width, size, activation_fn=dueling_activation))
                if add_layer_norm:
                    layers.add_module(f"LayerNorm_{letter}_{index}", nn.LayerNorm(size))
                width = size
            if q_hiddens or outputs:
                layers.add_module(letter, SlimFC(width, outputs))
            return layers

        self.advantage_module = head("A", self.action_dim * num_atoms) if q_hiddens else nn.Sequential()
        self.value_module = head("V", num_atoms) if dueling else None

    def get_q_value_distributions(self, model_out: Tensor) -> tuple[Tensor, ...]:
        """Return the head's answer for features `[B, num_outputs]`.

        Returns:
            Of one atom the scores `[B, n]` and twice ones; else Q-values `[B, n]`, the atoms' returns `[atoms]`, twice
            the logits `[B, n, atoms]`, and the probabilities.
        """
        scores: Tensor = self.advantage_module(model_out)
        if self.num_atoms == 1:
            return scores, torch.ones_like(scores), torch.ones_like(scores)
        returns = torch.linspace(self.v_min, self.v_max, self.num_atoms, device=scores.device)
        logits = scores.view(-1, self.action_dim, self.num_atoms)
        probs = logits.softmax(-1)
        return (returns * probs).sum(-1), returns, logits, logits, probs

    def get_state_value(self, model_out: Tensor) -> Tensor:
        """Return the state's value `[B, atoms]` for features `[B, num_outputs]`.

        Raises:
            NotServedError: The model was made without `dueling`.
        """
        if self.value_module is None:
            raise NotServedError("get_state_value() needs a model made with dueling=True.")
        value: Tensor = self.value_module(model_out)
        return value
