"""Masks in observations: for every action space, Q-values, half precision, and empty masks."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import to_array
from masked_env import MASKED, Masked
from model_runs import assert_close, run_model, set_random_weights, to_tensor
from parametric_observations import draw_observations, find_allowed, make_space

from rlcatalog import ModelCatalog, SpaceInfo
from rlcatalog.actions import ActionMasks
from rlcatalog.errors import ActionMaskError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

#: The logit of an action that a mask forbids.
LOWEST = np.finfo(np.float32).min


# --- every action space ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", MASKED)
def test_outputs_are_masked_for_every_action_space(framework, name):
    env = Masked(name)
    # As RLlib does, which knows nothing of masks.
    preprocessor = ModelCatalog.get_preprocessor(env, {})
    dist_class, size = ModelCatalog.get_action_dist(env.action_space, {}, framework=framework)
    model = ModelCatalog.get_model_v2(
        preprocessor.observation_space, env.action_space, size, {}, framework
    )
    set_random_weights(model)
    observations = [env.reset(seed=seed)[0] for seed in range(20)]

    results = run_model(model, preprocessor.transform_batch(observations))

    # What the network returns for "x" alone, masked by the distribution.
    x = to_tensor(framework, np.stack([obs["x"] for obs in observations]))
    features, _ = model.trunk({"obs": {"x": x}})
    info = SpaceInfo.read(env.action_space, "action")
    masks = ActionMasks(info, "action_mask").of(observations)
    masked = dist_class.masked(model.outputs(features), to_tensor(framework, masks))
    np.testing.assert_array_equal(results.outputs, to_array(masked))


@pytest.mark.parametrize("name", MASKED)
def test_model_without_a_mask_has_no_head(name):
    env = Masked(name)
    config = {"action_mask_key": "none"}
    preprocessor = ModelCatalog.get_preprocessor(env, config)

    model = ModelCatalog.get_model_v2(
        preprocessor.observation_space, env.action_space, 4, config, "torch"
    )

    assert type(model).__name__ == "FullyConnectedNetwork"


# --- Q-values -------------------------------------------------------------------------------------


class TorchQ(TorchModelV2):
    """The interface of a Q network."""

    def get_q_values(self, output):
        return output


class TFQ(TFModelV2):
    """The same in TensorFlow."""

    def get_q_values(self, output):
        return output


def test_q_values_of_forbidden_actions_are_the_lowest(framework, kind, build_model):
    interface = {"torch": TorchQ, "tf": TFQ}[framework]
    model, preprocessor = build_model(framework, make_space(kind), interface=interface)
    observations = draw_observations(kind, rows=100)
    encoded = preprocessor.transform_batch(observations)

    output, _ = model({"obs": to_tensor(framework, encoded)})
    q_values = to_array(model.get_q_values(output))

    is_allowed = find_allowed(observations)
    assert (q_values[~is_allowed] == LOWEST).all()
    assert (q_values[is_allowed] > LOWEST).all()


def test_trunk_with_a_mask_returns_unmasked_features(framework, build_model):
    # Without outputs (None) the model is a trunk, below a network that applies masks itself.
    trunk, preprocessor = build_model(framework, make_space("mask"), num_outputs=None)
    observations = draw_observations("mask", rows=6)

    results = run_model(trunk, preprocessor.transform_batch(observations))

    weights = trunk.get_weights()
    assert list(weights) == ["trunk.hidden.layers.0.weight", "trunk.hidden.layers.0.bias"]
    real_obs = np.stack([obs["real_obs"] for obs in observations])
    hidden = real_obs @ weights["trunk.hidden.layers.0.weight"].T
    features = np.tanh(hidden + weights["trunk.hidden.layers.0.bias"])
    assert_close(results.outputs, features)


# --- half precision -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_logits_are_masked_in_half_precision(kind, dtype, build_model):
    model, preprocessor = build_model("torch", make_space(kind))
    observations = draw_observations(kind, rows=50)
    encoded = torch.from_numpy(preprocessor.transform_batch(observations))

    with torch.autocast("cpu", dtype):
        output, _ = model({"obs": encoded})

    expected, _ = model({"obs": encoded})
    is_allowed = torch.from_numpy(find_allowed(observations))
    assert output.dtype is dtype
    assert (output[~is_allowed] == torch.finfo(dtype).min).all()
    torch.testing.assert_close(output[is_allowed].float(), expected[is_allowed], rtol=0.1, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_are_finite_in_half_precision(kind, dtype, build_model):
    model, preprocessor = build_model("torch", make_space(kind))
    encoded = torch.from_numpy(preprocessor.transform_batch(draw_observations(kind, rows=50)))

    with torch.autocast("cpu", dtype):
        output, _ = model({"obs": encoded})
        probabilities = torch.softmax(output.float(), dim=1)
        value = model.value_function()
    # Any loss of policy and value will do.
    (probabilities.square().sum() + value.sum()).backward()

    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters())


# --- rows that allow nothing ----------------------------------------------------------------------


def draw_with_nothing_in_row_two(kind):
    """Draw four observations, of which the one in row 2 allows no action."""
    observations = draw_observations(kind, rows=4)
    if "mask" in kind:
        observations[2]["action_mask"][:] = 0
    else:
        observations[2]["avail_actions"] = []
    return observations


kinds_that_can_be_empty = pytest.mark.parametrize(
    "kind", ["mask", "embeddings and mask", "list", "list and mask"]
)


@kinds_that_can_be_empty
def test_model_names_the_row_that_allows_no_action(framework, kind, build_model):
    model, preprocessor = build_model(framework, make_space(kind))
    encoded = preprocessor.transform_batch(draw_with_nothing_in_row_two(kind))

    with pytest.raises(ActionMaskError, match="row 2 allows no action; each row must"):
        run_model(model, encoded)

    # It runs again without that row.
    assert run_model(model, encoded[:2]).outputs.shape == (2, 5)  # 5 actions


@kinds_that_can_be_empty
def test_model_without_checks_has_the_lowest_logits(framework, kind, build_model):
    config = {"check_observations": "never"}
    model, preprocessor = build_model(framework, make_space(kind), config)

    results = run_model(model, preprocessor.transform_batch(draw_with_nothing_in_row_two(kind)))

    assert (results.outputs[2] == LOWEST).all()


def test_list_and_mask_without_a_common_action_are_an_error(framework, build_model):
    model, preprocessor = build_model(framework, make_space("list and mask"))
    observations = draw_observations("list and mask", rows=3)
    # The list has action 0 only, and the mask forbids it.
    observations[1]["avail_actions"] = observations[1]["avail_actions"][:1]
    observations[1]["action_mask"] = np.array([0, 1, 1, 1, 1], np.int8)

    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        run_model(model, preprocessor.transform_batch(observations))


@kinds_that_can_be_empty
def test_policy_names_the_row_that_allows_no_action(framework, kind, build_policy):
    policy = build_policy(framework, make_space(kind))

    # The kernel checks masks, and the head checks empty lists.
    with pytest.raises(ActionMaskError, match="row 2 allows no action"):
        policy.act(draw_with_nothing_in_row_two(kind))


def test_traced_model_names_the_row_that_allows_no_action(build_model):
    model, preprocessor = build_model("tf", make_space("embeddings and mask"))
    encoded = preprocessor.transform_batch(draw_with_nothing_in_row_two("embeddings and mask"))
    run_traced = tf.function(lambda obs: model({"obs": obs})[0])

    # The row's number is on a line of its own, and (?s) lets a dot match its ends.
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)mask: row.*2.*allows no value"):
        run_traced(encoded)


def test_traced_training_pass_does_not_check_masks(build_model):
    model, preprocessor = build_model("tf", make_space("embeddings and mask"))
    encoded = preprocessor.transform_batch(draw_with_nothing_in_row_two("embeddings and mask"))
    run_traced = tf.function(lambda obs: model({"obs": obs, "is_training": True})[0])

    assert np.isfinite(run_traced(encoded)).all()


@pytest.fixture
def build_lstm_and_encode(build_model):
    """Build an LSTM, and encode two sequences: three steps, and one step and two of padding."""

    def build(framework, kind):
        config = {"use_lstm": True, "lstm_cell_size": 6}
        model, preprocessor = build_model(framework, make_space(kind), config)
        encoded = preprocessor.transform_batch(draw_observations(kind, rows=6))
        encoded[4:] = 0
        return model, encoded

    return build


@pytest.mark.parametrize("kind", ["mask", "list and mask"])
def test_padding_of_a_sequence_may_allow_no_action(framework, kind, build_lstm_and_encode):
    model, encoded = build_lstm_and_encode(framework, kind)

    results = run_model(model, encoded, lengths=[3, 1])

    assert np.isfinite(results.outputs).all()


@pytest.mark.parametrize("kind", ["mask", "list and mask"])
def test_real_step_of_a_sequence_must_allow_an_action(framework, kind, build_lstm_and_encode):
    model, encoded = build_lstm_and_encode(framework, kind)

    encoded[1] = 0

    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        run_model(model, encoded, lengths=[3, 1])
