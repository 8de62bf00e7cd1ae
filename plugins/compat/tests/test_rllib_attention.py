"""RLlib's attention weights while the memory fills, against RLlib's formulas in NumPy.

`NumpyAttention` has one switch: whether it reads the empty slots of the memory, rows of zeros.
RLlib's own network reads them; ours, after `load_rllib_weights`, does not.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog.errors import CatalogWarning
from rlcatalog_compat import load_rllib_weights

THREE_FEATURES = gym.spaces.Box(-1, 1, (3,), np.float32)
FOUR_ACTIONS = gym.spaces.Discrete(4)
UNITS = 2
SLOTS = 4
HEADS = 2
HEAD_DIM = 5
DIM = 8
MLP = 7
HIDDEN = 6
CONFIG = {
    "fcnet_hiddens": [HIDDEN], "use_attention": True, "attention_dim": DIM,
    "attention_num_heads": HEADS, "attention_head_dim": HEAD_DIM,
    "attention_num_transformer_units": UNITS, "attention_memory_inference": SLOTS,
    "attention_memory_training": SLOTS, "attention_position_wise_mlp_dim": MLP,
}  # fmt: skip
#: Steps until no unit depends on empty slots: SLOTS for the first, and SLOTS more for each other.
FILLING = UNITS * SLOTS


def draw_rllib_weights():
    """Return large weights under the names of RLlib's PyTorch net."""
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
        attention = f"gtrxl.attention_layers.{2 * unit}"
        mlp = f"gtrxl.attention_layers.{2 * unit + 1}"
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
            for part in ("w_r", "w_z", "w_h", "u_r", "u_z", "u_h"):
                shapes[f"{layer}._fan_in_layer._{part}"] = (DIM, DIM)
            shapes[f"{layer}._fan_in_layer._bias_z"] = (DIM,)
    random = np.random.default_rng(0)
    return {name: random.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


class NumpyAttention:
    """RLlib's attention network, one step of one episode after the other.

    Args:
        weights: Weights under RLlib's names.
        reads_empty_slots: Whether the empty slots of the memory take part in the attention.
    """

    def __init__(self, weights, reads_empty_slots):
        self.weights = {name: array.astype(np.float64) for name, array in weights.items()}
        self.reads_empty_slots = reads_empty_slots
        self.memory = [np.zeros((SLOTS, DIM)) for _ in range(UNITS)]
        self.steps = 0

    def step(self, obs):
        """Return logits and value, in one array."""
        w = self.weights
        x = np.tanh(self.dense("_hidden_layers.0", obs) + w["_hidden_layers.0._model.0.bias"])
        x = self.dense("gtrxl.linear_layer", x) + w["gtrxl.linear_layer._model.0.bias"]
        for unit, memory in enumerate(self.memory):
            attention = f"gtrxl.attention_layers.{2 * unit}"
            mlp = f"gtrxl.attention_layers.{2 * unit + 1}"
            rows = np.vstack([memory, x])
            self.memory[unit] = rows[1:]
            x = self.gate(attention, x, self.attend(f"{attention}._layer", rows))
            y = self.normalize(f"{mlp}._layer.0", x)
            y = np.maximum(self.dense(f"{mlp}._layer.1", y), 0)
            y = np.maximum(self.dense(f"{mlp}._layer.2", y), 0)
            x = self.gate(mlp, x, y)
        self.steps += 1
        logits = self.dense("_logits_branch", x) + w["_logits_branch._model.0.bias"]
        value = self.dense("_value_branch", x) + w["_value_branch._model.0.bias"]
        return np.concatenate([logits, value])

    def dense(self, name, x):
        return x @ self.weights[f"{name}._model.0.weight"].T

    def normalize(self, name, x):
        centered = x - x.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attend(self, name, rows):
        normal = self.normalize(f"{name}._input_layernorm", rows)
        qkv = self.dense(f"{name}._qkv_layer", normal).reshape(len(rows), 3, HEADS, HEAD_DIM)
        query = qkv[-1, 0]
        key = qkv[:, 1]
        value = qkv[:, 2]
        angles = np.arange(len(rows) - 1.0, -1, -1)[:, None] / 10000 ** (np.arange(0, DIM, 2) / DIM)
        waves = np.hstack([np.sin(angles), np.cos(angles)])
        position = self.dense(f"{name}._pos_proj", waves).reshape(len(rows), HEADS, HEAD_DIM)
        content_query = query + self.weights[f"{name}._uvar"]
        position_query = query + self.weights[f"{name}._vvar"]
        scores = np.einsum("hd,khd->hk", content_query, key)
        scores += np.einsum("hd,khd->hk", position_query, position)
        scores /= HEAD_DIM**0.5
        if not self.reads_empty_slots:
            scores[:, : max(0, SLOTS - self.steps)] = -np.inf
        probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        output = np.einsum("hk,khd->hd", probabilities, value).reshape(-1)
        return np.maximum(self.dense(f"{name}._linear_layer", output), 0)

    def gate(self, layer, stream, x):
        w_r, w_z, w_h, u_r, u_z, u_h, bias = (
            self.weights[f"{layer}._fan_in_layer._{part}"]
            for part in ("w_r", "w_z", "w_h", "u_r", "u_z", "u_h", "bias_z")
        )
        r = 1 / (1 + np.exp(-(x @ w_r + stream @ u_r)))
        z = 1 / (1 + np.exp(-(x @ w_z + stream @ u_z - bias)))
        return (1 - z) * stream + z * np.tanh(x @ w_h + (stream * r) @ u_h)


def draw_observations():
    """Return the observations of an episode that is longer than the memory takes to fill."""
    return np.random.default_rng(1).normal(size=(FILLING + 3, 3)).astype(np.float32)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_loading_warns_of_steps_that_differ(framework):
    policy = rlcatalog.build(THREE_FEATURES, FOUR_ACTIONS, CONFIG, framework)

    # 2 units with a memory of 4 steps.
    message = "outputs differ in the first 8 steps of every episode"
    with pytest.warns(CatalogWarning, match=message) as caught:
        load_rllib_weights(policy, draw_rllib_weights())

    assert [warning.filename for warning in caught] == [__file__]


@pytest.fixture(params=["torch", "tf"])
def run_loaded_policy(request):
    """Load weights into a policy, and act for an episode; return logits and value of each step."""

    def run(weights):
        policy = rlcatalog.build(THREE_FEATURES, FOUR_ACTIONS, CONFIG, request.param)
        with pytest.warns(CatalogWarning):
            load_rllib_weights(policy, weights)
        state = None
        outputs = []
        for obs in draw_observations():
            step = policy.act(obs[None], state, explore=False)
            state = step.state
            outputs.append([*step.dist_inputs[0], step.value[0]])
        return np.array(outputs)

    return run


def test_loaded_attention_does_not_read_empty_slots(run_loaded_policy):
    weights = draw_rllib_weights()
    reference = NumpyAttention(weights, reads_empty_slots=False)

    outputs = run_loaded_policy(weights)

    for output, obs in zip(outputs, draw_observations(), strict=True):
        np.testing.assert_allclose(output, reference.step(obs), rtol=1e-5, atol=1e-5)


def test_loaded_attention_differs_until_the_memory_is_full(run_loaded_policy):
    weights = draw_rllib_weights()
    # Formulas of RLlib's network, which reads the empty slots of its memory.
    reference = NumpyAttention(weights, reads_empty_slots=True)

    outputs = run_loaded_policy(weights)

    differences = []
    for output, obs in zip(outputs, draw_observations(), strict=True):
        differences.append(np.abs(output - reference.step(obs)).max())
    # Two units, with a memory of four steps each, read empty slots in the first eight steps.
    assert min(differences[:8]) > 1e-5
    assert max(differences[8:]) < 1e-5


def test_rllib_network_reads_empty_slots():
    pytest.importorskip("ray.rllib", reason="Ray is not installed")
    import torch
    from ray.rllib.models.catalog import MODEL_DEFAULTS, ModelCatalog

    config = {**MODEL_DEFAULTS, **CONFIG}
    net = ModelCatalog.get_model_v2(THREE_FEATURES, FOUR_ACTIONS, 4, config, framework="torch")
    weights = draw_rllib_weights()
    tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
    net.load_state_dict(tensors, strict=False)
    reference = NumpyAttention(weights, reads_empty_slots=True)

    # Two units, with a memory of four vectors of eight numbers.
    memories = [torch.zeros(1, 4, 8), torch.zeros(1, 4, 8)]
    for obs in draw_observations():
        inputs = {"obs": torch.from_numpy(obs[None])}
        outputs, new_vectors = net(inputs, memories, torch.ones(1, dtype=torch.int32))
        for unit in range(2):
            # The newest vector takes the place of the oldest.
            new_vector = new_vectors[unit].detach().view(1, 1, 8)
            memories[unit] = torch.cat([memories[unit][:, 1:], new_vector], dim=1)
        logits_and_value = [*outputs[0].tolist(), net.value_function().item()]
        np.testing.assert_allclose(logits_and_value, reference.step(obs), rtol=1e-5, atol=1e-5)


def test_loading_without_a_memory_warns_of_nothing(recwarn):
    config = {**CONFIG, "attention_memory_inference": 0, "attention_memory_training": 0}
    policy = rlcatalog.build(THREE_FEATURES, FOUR_ACTIONS, config)

    load_rllib_weights(policy, draw_rllib_weights())

    assert not recwarn
