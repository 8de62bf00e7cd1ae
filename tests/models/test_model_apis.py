"""Model APIs: the examples' interfaces over default models, custom models and memories, in both
frameworks.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

from model_apis.tf import ContActionQModel, DuelingQModel, QModel
from model_apis.torch import TorchContActionQModel, TorchDuelingQModel, TorchQModel

from rlcatalog import ModelCatalog
from rlcatalog.errors import StaleOutputError
from rlcatalog.models import DenseSpec
from rlcatalog_tf import Dense, TFModelV2
from rlcatalog_torch import TorchModelV2, dense

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]

FRAMEWORKS = ["torch", "tf"]
THREE, PAIR = Discrete(3), Box(-2.0, 2.0, (2,), np.float32)
VECTOR, IMAGE = Box(-1.0, 1.0, (4,), np.float32), Box(0, 255, (42, 42, 3), np.uint8)
DUELING = {"torch": TorchDuelingQModel, "tf": DuelingQModel}
SINGLE_Q = {"torch": TorchContActionQModel, "tf": ContActionQModel}
PLAIN = {"torch": TorchQModel, "tf": QModel}
SPEC = DenseSpec(5, "tanh", "normc", {"std": 1.0}, "zeros", {})


class TorchTrunk(TorchModelV2):
    """A custom trunk of one layer."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        assert num_outputs is None
        self.num_outputs, self.layer = 5, dense(4, SPEC)

    def forward(self, input_dict, state, seq_lens):
        return torch.tanh(self.layer(input_dict["obs"])), state


class TFTrunk(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        assert num_outputs is None
        self.num_outputs, self.layer = 5, Dense(4, SPEC)

    def forward(self, input_dict, state, seq_lens):
        return tf.tanh(self.layer(input_dict["obs"])), state


TRUNKS = {"torch": TorchTrunk, "tf": TFTrunk}
LSTM = {"use_lstm": True, "lstm_cell_size": 6, "fcnet_hiddens": [8]}
ATTENTION = {
    "use_attention": True, "fcnet_hiddens": [8], "attention_dim": 6,
    "attention_num_transformer_units": 1, "attention_num_heads": 2, "attention_head_dim": 4,
    "attention_position_wise_mlp_dim": 7, "attention_memory_inference": 5,
    "attention_memory_training": 5,
}  # fmt: skip
#: Name → (space of observations, model config, width of the model's output, the model it takes).
OVER = {
    "the default net": (VECTOR, {"fcnet_hiddens": [8, 7]}, 7, "fcnet"),
    "a net for a Dict": (Dict({"x": VECTOR, "n": Discrete(2)}), {"fcnet_hiddens": [7]}, 7, "fcnet"),
    "a custom model": (VECTOR, {"custom_model": TRUNKS, "fcnet_hiddens": [8]}, 5, "fcnet"),
    "an image net": (IMAGE, {"fcnet_hiddens": [8]}, 256, "visionnet"),
    "an LSTM": (VECTOR, LSTM, 6, "lstm"),
    "an LSTM around a custom model": (VECTOR, {**LSTM, "custom_model": TRUNKS}, 6, "lstm"),
    "attention": (VECTOR, ATTENTION, 6, "attention"),
    "attention around a custom model": (
        VECTOR,
        {**ATTENTION, "custom_model": TRUNKS},
        6,
        "attention",
    ),
}
MEMORIES = [name for name, (*_, model) in OVER.items() if model in ("lstm", "attention")]


def made(framework, over, interface, action_space):
    space, config, _, _ = OVER[over]
    config = {**config, **({"custom_model": TRUNKS[framework]} if "custom_model" in config else {})}
    space = ModelCatalog.get_preprocessor_for_space(space).observation_space
    return ModelCatalog.get_model_v2(
        space, action_space, 4, config, framework, "my_model", model_interface=interface[framework]
    )


def rows(model, n, seed=0):
    """Encoded observations `[n, ...]`."""
    space = getattr(model.obs_space, "original_space", model.obs_space)
    space.seed(seed)
    preprocessor = ModelCatalog.get_preprocessor_for_space(space)
    return np.stack([preprocessor.transform(space.sample()) for _ in range(n)])


def tensors(framework, arrays):
    return [torch.from_numpy(a) if framework == "torch" else tf.constant(a) for a in arrays]


def array(tensor):
    return tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else np.asarray(tensor)


def states(model, n, seed=None):
    """States of `n` sequences, arrays: the initial ones, or with a seed those after a
    first step.
    """
    parts = [np.asarray(part) for part in model.get_initial_state()]
    fresh = [np.repeat(part[None], n, axis=0) for part in parts]
    if seed is None or not fresh:
        return fresh
    return [array(part) for part in run(model, rows(model, n, seed), fresh)[1]]


def run(model, obs, state=(), seq_lens=None):
    """Call the model with arrays; the state stays tensors."""
    obs, *state = tensors(model.framework, [obs, *state])
    lengths = (
        None if seq_lens is None else tensors(model.framework, [np.asarray(seq_lens, np.int32)])[0]
    )
    return model({"obs": obs}, state, lengths)


def weight(weights, name):
    return weights[f"{name}.weight"].T, weights[f"{name}.bias"]


def dueling_by_hand(weights, features):
    (wa, ba), (wv, bv) = weight(weights, "A"), weight(weights, "V")
    advantages = features @ wa + ba
    return features @ wv + bv + advantages - advantages.mean(axis=1, keepdims=True)


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("over", OVER)
def test_q_values_are_the_value_and_the_centred_advantages(framework, over):
    model = made(framework, over, DUELING, THREE)
    assert model.num_outputs == OVER[over][2]
    output, state = run(model, rows(model, 6), states(model, 6, seed=1))
    assert output.shape == (6, OVER[over][2])
    assert len(state) == len(model.get_initial_state())
    q = array(model.get_q_values(output))
    assert q.shape == (6, 3)
    np.testing.assert_allclose(
        q, dueling_by_hand(model.get_weights(), array(output)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("over", OVER)
def test_a_single_q_value_reads_features_and_action(framework, over):
    model = made(framework, over, SINGLE_Q, PAIR)
    output, _ = run(model, rows(model, 6), states(model, 6, seed=1))
    action = np.random.default_rng(0).uniform(-2, 2, (6, 2)).astype(np.float32)
    q = array(model.get_single_q_value(output, *tensors(framework, [action])))
    weights, x = model.get_weights(), np.concatenate([array(output), action], axis=1)
    for i in range(len(OVER[over][1]["fcnet_hiddens"])):
        w, b = weight(weights, f"q_hidden.hidden.layers.{i}")
        x = np.tanh(x @ w + b)
    w, b = weight(weights, "q_value")
    assert q.shape == (6, 1)
    np.testing.assert_allclose(q, x @ w + b, rtol=1e-4, atol=1e-5)


def gradients(model, read):
    """Gradient of the sum of what is read, per weight's name."""
    obs, state = rows(model, 6), states(model, 2, seed=1)
    lengths = [3, 3] if state else None
    if model.framework == "torch":
        read(run(model, obs, state, lengths)[0]).sum().backward()
        return {
            name: None if p.grad is None else p.grad.numpy() for name, p in model.named_parameters()
        }
    variables = model.trainable_variables(as_dict=True)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(read(run(model, obs, state, lengths)[0]))
    found = tape.gradient(loss, list(variables.values()))
    return {
        name: None if g is None else np.asarray(g) for name, g in zip(variables, found, strict=True)
    }


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("over", OVER)
def test_gradients_reach_every_weight(framework, over):
    """The trunk's, the memory's and the API's: an API leaves no layer behind that
    nothing trains.
    """
    dueling, single = made(framework, over, DUELING, THREE), made(framework, over, SINGLE_Q, PAIR)
    action = tensors(framework, [np.ones((6, 2), np.float32)])[0]
    for model, read in (
        (dueling, lambda out: dueling.get_q_values(out)[:, 0]),
        (single, lambda out: single.get_single_q_value(out, action)),
    ):
        found = gradients(model, read)
        assert any(name.startswith("inner.") for name in found)
        assert [name for name, g in found.items() if g is None or not np.abs(g).max() > 0] == []


@pytest.mark.grid
@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize(("interface", "action_space"), [(DUELING, THREE), (SINGLE_Q, PAIR)])
def test_both_frameworks_agree_on_copied_weights(over, interface, action_space):
    one, other = (made(framework, over, interface, action_space) for framework in FRAMEWORKS)
    other.set_weights(one.get_weights())
    obs, state = rows(one, 6), states(one, 3, seed=1)
    found = []
    for model in (one, other):
        output, new_state = run(model, obs, state, [2, 1, 2] if state else None)
        action = tensors(model.framework, [np.ones((6, 2), np.float32)])[0]
        q = (
            model.get_q_values(output)
            if interface is DUELING
            else model.get_single_q_value(output, action)
        )
        # The fourth row is padding.
        kept = np.ones(6, bool) if not state else np.array([1, 1, 1, 0, 1, 1], bool)
        found.append([array(q)[kept], *map(array, new_state)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("over", MEMORIES)
def test_a_memorys_state_passes_through(framework, over):
    """Four steps one by one, each with the state of the one before, say what a sequence of four
    says.
    """
    model = made(framework, over, DUELING, THREE)
    obs = rows(model, 8)  # two sequences of four
    whole, last = run(model, obs, states(model, 2), [4, 4])
    whole = array(model.get_q_values(whole)).reshape(2, 4, 3)
    state, seen = states(model, 2), []
    for t in range(4):
        output, state = run(model, obs.reshape(2, 4, -1)[:, t], map(array, state))
        seen.append(array(model.get_q_values(output)))
    np.testing.assert_allclose(np.stack(seen, axis=1), whole, rtol=1e-4, atol=1e-5)
    for a, b in zip(state, last, strict=True):
        np.testing.assert_allclose(array(a), array(b), rtol=1e-4, atol=1e-5)
    fresh, _ = run(model, obs.reshape(2, 4, -1)[:, 3], states(model, 2))
    assert np.abs(array(model.get_q_values(fresh)) - whole[:, 3]).max() > 1e-4


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_copy_of_the_weights_answers_the_same_before_the_first_call(framework):
    model, target = (made(framework, "the default net", DUELING, THREE) for _ in range(2))
    target.set_weights(model.get_weights())
    obs = rows(model, 5)
    q, target_q = (array(net.get_q_values(run(net, obs)[0])) for net in (model, target))
    np.testing.assert_array_equal(q, target_q)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_model_that_puts_out_q_values_itself(framework):
    """The API passes num_outputs on, so the default model is whole, value included."""
    model = made(framework, "the default net", PLAIN, Discrete(4))
    output, _ = run(model, rows(model, 5))
    assert model.num_outputs == 4
    assert model.get_q_values(output) is output
    assert model.value_function().shape == (5,)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_model_under_a_dueling_head_has_no_value_function_of_its_own(framework):
    model = made(framework, "the default net", DUELING, THREE)
    run(model, rows(model, 5))
    with pytest.raises(StaleOutputError, match="it was built as a trunk"):
        model.value_function()


class TorchOwn(TorchQModel):
    """A custom model that implements an API by its class."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = num_outputs or 2

    def forward(self, input_dict, state, seq_lens):
        return input_dict["obs"][:, : self.num_outputs], state


class TFOwn(QModel):
    """The same in TensorFlow."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = num_outputs or 2

    def forward(self, input_dict, state, seq_lens):
        return input_dict["obs"][:, : self.num_outputs], state


@pytest.mark.parametrize(("framework", "own"), [("torch", TorchOwn), ("tf", TFOwn)])
def test_an_api_that_a_custom_class_has_already_is_not_mixed_in_twice(framework, own):
    build = ModelCatalog.get_model_v2
    model = build(
        VECTOR, THREE, 3, {"custom_model": own}, framework, "mine", model_interface=PLAIN[framework]
    )
    assert type(model) is own
    obs = rows(model, 5)
    np.testing.assert_array_equal(model.get_q_values(run(model, obs)[0]), obs[:, :3])
    other = build(
        VECTOR,
        THREE,
        3,
        {"custom_model": own},
        framework,
        "mine",
        model_interface=DUELING[framework],
    )
    assert type(other) is not own
    assert type(other.inner) is own
    assert other.get_q_values(run(other, obs)[0]).shape == (5, 3)
