"""RLlib's attention weights while the memory fills, against RLlib's equations in NumPy.

`StepByStep` reads the weights under RLlib's names and has one switch: whether the empty slots of
the memory, rows of zeros, are attended to as RLlib does. RLlib's own net confirms the one position,
`load_rllib_weights` the other.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog.errors import CatalogWarning
from rlcatalog_compat import load_rllib_weights

OBS, ACTIONS = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(4)
UNITS, SLOTS, HEADS, HEAD_DIM, DIM, MLP, HIDDEN = 2, 4, 2, 5, 8, 7, 6
CONFIG = {
    "fcnet_hiddens": [HIDDEN], "use_attention": True, "attention_dim": DIM,
    "attention_num_heads": HEADS, "attention_head_dim": HEAD_DIM,
    "attention_num_transformer_units": UNITS, "attention_memory_inference": SLOTS,
    "attention_memory_training": SLOTS, "attention_position_wise_mlp_dim": MLP,
}  # fmt: skip
#: A unit depends on a memory with empty slots for SLOTS steps longer than the one below it.
FILLING = UNITS * SLOTS


def rllib_weights():
    """Return weights far from zero under the names of RLlib's PyTorch net."""
    inner = HEADS * HEAD_DIM
    shapes = {
        "_hidden_layers.0._model.0.weight": (HIDDEN, 3),
        "_hidden_layers.0._model.0.bias": (HIDDEN,),
        "gtrxl.linear_layer._model.0.weight": (DIM, HIDDEN),
        "gtrxl.linear_layer._model.0.bias": (DIM,),
        "_logits_branch._model.0.weight": (4, DIM),
        "_logits_branch._model.0.bias": (4,),
        "_value_branch._model.0.weight": (1, DIM),
        "_value_branch._model.0.bias": (1,),
    }
    for unit in range(UNITS):
        attention, mlp = (f"gtrxl.attention_layers.{2 * unit + i}" for i in (0, 1))
        shapes |= {
            f"{attention}._layer._uvar": (HEADS, HEAD_DIM),
            f"{attention}._layer._vvar": (HEADS, HEAD_DIM),
            f"{attention}._layer._qkv_layer._model.0.weight": (3 * inner, DIM),
            f"{attention}._layer._linear_layer._model.0.weight": (DIM, inner),
            f"{attention}._layer._pos_proj._model.0.weight": (inner, DIM),
            f"{attention}._layer._input_layernorm.weight": (DIM,),
            f"{attention}._layer._input_layernorm.bias": (DIM,),
            f"{mlp}._layer.0.weight": (DIM,),
            f"{mlp}._layer.0.bias": (DIM,),
            f"{mlp}._layer.1._model.0.weight": (MLP, DIM),
            f"{mlp}._layer.2._model.0.weight": (DIM, MLP),
        }
        for layer in (attention, mlp):
            shapes |= {
                f"{layer}._fan_in_layer._{part}": (DIM, DIM)
                for part in ("w_r", "w_z", "w_h", "u_r", "u_z", "u_h")
            }
            shapes[f"{layer}._fan_in_layer._bias_z"] = (DIM,)
    rng = np.random.default_rng(0)
    return {name: rng.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


class StepByStep:
    """RLlib's attention net, one step of one episode after the other.

    Args:
        weights: Weights under RLlib's names.
        masked: Whether the empty slots are left out of the attention.
    """

    def __init__(self, weights, masked):
        self.weights, self.masked = (
            {name: array.astype(np.float64) for name, array in weights.items()},
            masked,
        )
        self.memory = [np.zeros((SLOTS, DIM)) for _ in range(UNITS)]
        self.steps = 0

    def __call__(self, obs):
        """Return logits and value."""
        w = self.weights
        x = np.tanh(self.dense("_hidden_layers.0", obs) + w["_hidden_layers.0._model.0.bias"])
        x = self.dense("gtrxl.linear_layer", x) + w["gtrxl.linear_layer._model.0.bias"]
        for unit, memory in enumerate(self.memory):
            attention, mlp = (f"gtrxl.attention_layers.{2 * unit + i}" for i in (0, 1))
            rows = np.vstack([memory, x])
            self.memory[unit] = rows[1:]
            x = self.gate(attention, x, self.attend(f"{attention}._layer", rows))
            y = np.maximum(self.dense(f"{mlp}._layer.1", self.normalise(f"{mlp}._layer.0", x)), 0)
            x = self.gate(mlp, x, np.maximum(self.dense(f"{mlp}._layer.2", y), 0))
        self.steps += 1
        logits = self.dense("_logits_branch", x) + w["_logits_branch._model.0.bias"]
        return logits, (self.dense("_value_branch", x) + w["_value_branch._model.0.bias"])[0]

    def dense(self, name, x):
        return x @ self.weights[f"{name}._model.0.weight"].T

    def normalise(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attend(self, name, rows):
        normal = self.normalise(f"{name}._input_layernorm", rows)
        qkv = self.dense(f"{name}._qkv_layer", normal).reshape(len(rows), 3, HEADS, HEAD_DIM)
        query, key, value = qkv[-1, 0], qkv[:, 1], qkv[:, 2]
        angles = np.arange(len(rows) - 1.0, -1, -1)[:, None] / 10000 ** (np.arange(0, DIM, 2) / DIM)
        waves = np.hstack([np.sin(angles), np.cos(angles)])
        position = self.dense(f"{name}._pos_proj", waves).reshape(len(rows), HEADS, HEAD_DIM)
        content, place = (
            query + self.weights[f"{name}._uvar"],
            query + self.weights[f"{name}._vvar"],
        )
        scores = (
            np.einsum("hd,khd->hk", content, key) + np.einsum("hd,khd->hk", place, position)
        ) / HEAD_DIM**0.5
        if self.masked:
            scores[:, : max(0, SLOTS - self.steps)] = -np.inf
        chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        found = np.einsum("hk,khd->hd", chances, value).reshape(-1)
        return np.maximum(self.dense(f"{name}._linear_layer", found), 0)

    def gate(self, layer, stream, x):
        w_r, w_z, w_h, u_r, u_z, u_h, bias = (
            self.weights[f"{layer}._fan_in_layer._{part}"]
            for part in ("w_r", "w_z", "w_h", "u_r", "u_z", "u_h", "bias_z")
        )
        r, z = (
            1 / (1 + np.exp(-a)) for a in (x @ w_r + stream @ u_r, x @ w_z + stream @ u_z - bias)
        )
        return (1 - z) * stream + z * np.tanh(x @ w_h + (stream * r) @ u_h)


def observations(steps):
    return np.random.default_rng(1).normal(size=(steps, 3)).astype(np.float32)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_loaded_attention_differs_from_rllibs_by_the_empty_slots_alone_and_says_for_how_long(
    framework,
):
    policy, weights = rlcatalog.build(OBS, ACTIONS, CONFIG, framework), rllib_weights()
    with pytest.warns(
        CatalogWarning, match=f"outputs differ in the first {FILLING} steps of every episode"
    ) as record:
        load_rllib_weights(policy, weights)
    assert [warning.filename for warning in record] == [__file__]
    masked, unmasked, state = (
        StepByStep(weights, masked=True),
        StepByStep(weights, masked=False),
        None,
    )
    for t, obs in enumerate(observations(FILLING + 3)):
        step = policy.act(obs[None], state, explore=False)
        state = step.state
        ours = np.array([*step.dist_inputs[0], step.value[0]])
        np.testing.assert_allclose(ours, np.hstack(masked(obs)), rtol=1e-5, atol=1e-5)
        difference = np.abs(ours - np.hstack(unmasked(obs))).max()
        assert difference < 1e-5 if t >= FILLING else difference > 1e-5, (t, difference)


def test_rllibs_own_net_attends_to_the_empty_slots():
    pytest.importorskip("ray.rllib", reason="Ray is not installed")
    import torch
    from ray.rllib.models.catalog import MODEL_DEFAULTS, ModelCatalog

    net = ModelCatalog.get_model_v2(
        OBS, ACTIONS, 4, {**MODEL_DEFAULTS, **CONFIG}, framework="torch"
    )
    weights = rllib_weights()
    net.load_state_dict(
        {name: torch.from_numpy(array) for name, array in weights.items()}, strict=False
    )
    unmasked = StepByStep(weights, masked=False)
    memory = [torch.zeros(1, SLOTS, DIM) for _ in range(UNITS)]
    for obs in observations(FILLING + 3):
        outputs, new = net(
            {"obs": torch.from_numpy(obs[None])}, memory, torch.ones(1, dtype=torch.int32)
        )
        memory = [
            torch.cat([old[:, 1:], part.detach().view(1, 1, DIM)], 1)
            for old, part in zip(memory, new, strict=True)
        ]
        theirs = [*outputs[0].tolist(), net.value_function().item()]
        np.testing.assert_allclose(theirs, np.hstack(unmasked(obs)), rtol=1e-5, atol=1e-5)


def test_without_a_memory_nothing_differs_and_nothing_is_said(recwarn):
    policy = rlcatalog.build(
        OBS, ACTIONS, {**CONFIG, "attention_memory_inference": 0, "attention_memory_training": 0}
    )
    load_rllib_weights(policy, rllib_weights())
    assert not recwarn
