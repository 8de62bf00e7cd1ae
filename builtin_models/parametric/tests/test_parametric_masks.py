"""Masks in observations: for every action space, Q-values, half precision, and empty masks."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from masked_env import MASKED, Masked, allowed

from rlcatalog import ModelCatalog, SpaceInfo
from rlcatalog.actions import ActionMasks, action_codec
from rlcatalog.errors import ActionMaskError
from rlcatalog.spaces import parts_of
from rlcatalog_parametric.mask_columns import ShownMask
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

#: The logit of an action that a mask forbids.
LOWEST = np.finfo(np.float32).min


# --- every action space ---------------------------------------------------------------------------


def draw_masked_observations(name):
    """Return an environment with masks, twenty of its observations, and their masks."""
    env = Masked(name)
    observations = []
    masks = []
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        observations.append(obs)
        masks.append(env.mask)
    return env, observations, masks


@pytest.mark.parametrize("name", MASKED)
def test_columns_of_an_encoded_mask_are_those_of_the_kernel(name):
    env, observations, _ = draw_masked_observations(name)
    action = SpaceInfo.read(env.action_space, "action")
    mask_space = SpaceInfo.read(env.observation_space["action_mask"], "obs['action_mask']")
    shown_mask = ShownMask(action, mask_space)

    rows = []
    for obs in observations:
        leaves = shown_mask.leaves(obs["action_mask"])
        rows.append(np.concatenate([np.asarray(leaf, np.float32).ravel() for leaf in leaves]))
    encoded = np.stack(rows)
    if shown_mask.places is None:
        is_allowed = encoded != 0
    else:
        is_allowed = encoded[:, shown_mask.places] != shown_mask.forbidding

    expected = ActionMasks(action, "action_mask").of(observations)
    np.testing.assert_array_equal(is_allowed, expected)


@pytest.fixture
def build_for_env(set_random_weights):
    """Build a model and its distribution as RLlib does, which knows nothing of masks."""

    def build(framework, env, config=None):
        preprocessor = ModelCatalog.get_preprocessor(env, {"fcnet_hiddens": [8]})
        dist_class, size = ModelCatalog.get_action_dist(env.action_space, {}, framework=framework)
        model = ModelCatalog.get_model_v2(
            preprocessor.observation_space,
            env.action_space,
            size,
            {"fcnet_hiddens": [8], **(config or {})},
            framework,
        )
        return set_random_weights(model), dist_class, preprocessor

    return build


@pytest.mark.parametrize("name", MASKED)
def test_outputs_are_masked_for_every_action_space(
    framework, name, build_for_env, run_model, to_tensor, to_array
):
    env, observations, _ = draw_masked_observations(name)
    model, dist_class, preprocessor = build_for_env(framework, env)

    outputs, _ = run_model(model, preprocessor.transform_batch(observations))

    x = to_tensor(framework, np.stack([obs["x"] for obs in observations]))
    features, _ = model.trunk({"obs": {"x": x}})
    masks = ActionMasks(SpaceInfo.read(env.action_space, "action"), "action_mask").of(observations)
    expected = dist_class.masked(model.outputs(features), to_tensor(framework, masks))
    np.testing.assert_array_equal(outputs, to_array(expected))


@pytest.mark.parametrize("name", MASKED)
def test_sampled_actions_are_allowed_in_every_action_space(
    framework, name, build_for_env, run_model, to_tensor
):
    env, observations, masks = draw_masked_observations(name)
    model, dist_class, preprocessor = build_for_env(framework, env)
    outputs, _ = run_model(model, preprocessor.transform_batch(observations))

    for _ in range(5):
        raw_actions = dist_class(to_tensor(framework, outputs), model).sample()
        actions = to_env_actions(env, raw_actions)
        for action, mask in zip(actions, masks, strict=True):
            assert allowed(env.action_space, action, mask)


def to_env_actions(env, raw_actions):
    """Return the environment's actions of raw ones, row by row."""
    parts = parts_of(raw_actions)
    if parts is None:
        parts = [raw_actions]
    arrays = [np.asarray(part, np.float64) for part in parts]
    flat = np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)
    if flat.shape[1] == 1 and len(parts) == 1:
        flat = flat.astype(np.int64)
    codec = action_codec(SpaceInfo.read(env.action_space, "action"), "clip")
    batch = codec.adapt(flat)
    return [select_row(env.action_space, batch, row) for row in range(len(flat))]


def select_row(space, batch, row):
    if isinstance(space, spaces.Dict):
        return {key: select_row(child, batch[key], row) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(select_row(child, batch[i], row) for i, child in enumerate(space.spaces))
    return batch[row]


@pytest.mark.parametrize("name", MASKED)
def test_model_without_a_mask_has_no_head(framework, name, build_for_env):
    env = Masked(name)

    with_mask, _, _ = build_for_env(framework, env)
    without_mask, _, _ = build_for_env(framework, env, {"action_mask_key": "none"})

    # Behind a head, the network is its trunk.
    assert "trunk.hidden.layers.0.weight" in with_mask.get_weights()
    assert "trunk.hidden.layers.0.weight" not in without_mask.get_weights()


# --- Q-values -------------------------------------------------------------------------------------


class TorchQ(TorchModelV2):
    """The interface of a Q network."""

    def get_q_values(self, output):
        return output


class TFQ(TFModelV2):
    """The same in TensorFlow."""

    def get_q_values(self, output):
        return output


@pytest.mark.grid
def test_q_values_of_forbidden_actions_are_the_lowest(
    framework, kind, make_space, draw_observations, build_model, find_allowed, to_tensor, to_array
):
    space = make_space(kind)
    interface = {"torch": TorchQ, "tf": TFQ}[framework]
    model, preprocessor = build_model(framework, space, interface=interface)
    observations = draw_observations(space, rows=400)
    encoded = preprocessor.transform_batch(observations)

    output, _ = model({"obs": to_tensor(framework, encoded)})
    q_values = to_array(model.get_q_values(output))

    is_allowed = find_allowed(observations)
    assert (q_values[~is_allowed] == LOWEST).all()
    assert (q_values.max(axis=1) > LOWEST).all()
    assert is_allowed[np.arange(400), q_values.argmax(axis=1)].all()


def test_trunk_with_a_mask_returns_unmasked_features(
    framework, make_space, draw_observations, build_model, to_tensor, to_array, assert_close
):
    # As below the interface of a dueling network, which applies masks itself.
    model, preprocessor = build_model(
        framework, make_space("mask"), {"vf_share_layers": False}, num_outputs=None
    )
    observations = draw_observations(make_space("mask"), rows=6)
    encoded = preprocessor.transform_batch(observations)

    output, _ = model({"obs": to_tensor(framework, encoded)})

    weights = model.get_weights()
    weight = weights["trunk.hidden.layers.0.weight"]
    bias = weights["trunk.hidden.layers.0.bias"]
    real_obs = np.stack([obs["real_obs"] for obs in observations])
    assert model.num_outputs == 8
    assert list(weights) == ["trunk.hidden.layers.0.weight", "trunk.hidden.layers.0.bias"]
    assert_close(to_array(output), np.tanh(real_obs @ weight.T + bias))


# --- half precision -------------------------------------------------------------------------------


@pytest.fixture
def run_in_half_precision(make_space, draw_observations, build_model, find_allowed):
    """Run a model on 50 rows under autocast.

    Returns:
        The model, its output, distribution and value, its output in float32, and what is allowed.
    """

    def run(kind, dtype):
        space = make_space(kind)
        model, preprocessor = build_model("torch", space)
        dist_class, _ = ModelCatalog.get_action_dist(spaces.Discrete(5), {}, framework="torch")
        observations = draw_observations(space, rows=50)
        encoded = torch.from_numpy(preprocessor.transform_batch(observations))
        expected, _ = model({"obs": encoded})
        with torch.autocast("cpu", dtype):
            output, _ = model({"obs": encoded})
            dist = dist_class(output, model)
            value = model.value_function()
        is_allowed = torch.from_numpy(find_allowed(observations))
        return model, output, dist, value, expected, is_allowed

    return run


half_precisions = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


@half_precisions
def test_logits_are_masked_in_half_precision(kind, dtype, run_in_half_precision):
    _, output, _, _, expected, is_allowed = run_in_half_precision(kind, dtype)

    assert output.dtype is dtype
    assert torch.isfinite(output).all()
    assert (output[~is_allowed] == torch.finfo(dtype).min).all()
    torch.testing.assert_close(output[is_allowed].float(), expected[is_allowed], rtol=0.1, atol=0.1)


@half_precisions
def test_distribution_is_finite_in_half_precision(kind, dtype, run_in_half_precision):
    _, _, dist, value, _, is_allowed = run_in_half_precision(kind, dtype)

    actions = dist.sample()

    assert is_allowed[torch.arange(50), actions].all()
    assert torch.isfinite(value).all()
    assert torch.isfinite(dist.entropy()).all()
    assert torch.isfinite(dist.kl(dist)).all()
    assert torch.isfinite(dist.logp(actions)).all()


@half_precisions
def test_gradients_are_finite_in_half_precision(kind, dtype, run_in_half_precision):
    model, _, dist, value, _, _ = run_in_half_precision(kind, dtype)

    (dist.entropy().sum() + value.sum()).backward()

    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters())


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=str)
def test_tf_distribution_is_finite_in_half_precision(
    dtype, make_space, draw_observations, build_model, find_allowed
):
    space = make_space("embeddings and mask")
    observations = draw_observations(space, rows=50)
    is_allowed = find_allowed(observations)
    model, preprocessor = build_model("tf", space)
    dist_class, _ = ModelCatalog.get_action_dist(spaces.Discrete(5), {}, framework="tf")
    output, _ = model({"obs": tf.constant(preprocessor.transform_batch(observations))})

    # Cast to half precision and masked, as a step under mixed precision does it.
    logits = tf.cast(tf.where(is_allowed, output, 0.0), dtype)
    inputs = dist_class.masked(logits, tf.constant(is_allowed))
    dist = dist_class(inputs, model)
    actions = dist.sample()

    assert inputs.dtype == dtype
    assert is_allowed[np.arange(50), actions].all()
    for numbers in (inputs, dist.entropy(), dist.kl(dist), dist.logp(actions)):
        assert np.isfinite(tf.cast(numbers, tf.float32)).all()


# --- rows that allow nothing ----------------------------------------------------------------------


@pytest.fixture
def draw_with_nothing_in_row_two(make_space, draw_observations):
    """Draw four observations, of which the one in row 2 allows no action."""

    def draw(kind):
        observations = draw_observations(make_space(kind), rows=4)
        if "action_mask" in observations[2]:
            observations[2]["action_mask"][:] = 0
        else:
            observations[2]["avail_actions"] = []
        return observations

    return draw


kinds_that_can_be_empty = pytest.mark.parametrize(
    "kind", ["mask", "embeddings and mask", "list", "list and mask"]
)


@kinds_that_can_be_empty
def test_model_names_the_row_that_allows_no_action(
    framework, kind, make_space, build_model, draw_with_nothing_in_row_two, run_model
):
    model, preprocessor = build_model(framework, make_space(kind))
    encoded = preprocessor.transform_batch(draw_with_nothing_in_row_two(kind))

    with pytest.raises(ActionMaskError, match="row 2 allows no action; each row must"):
        run_model(model, encoded)


@kinds_that_can_be_empty
def test_model_runs_again_after_a_row_that_allows_no_action(
    framework, kind, make_space, build_model, draw_with_nothing_in_row_two, run_model
):
    model, preprocessor = build_model(framework, make_space(kind))
    encoded = preprocessor.transform_batch(draw_with_nothing_in_row_two(kind))
    with pytest.raises(ActionMaskError):
        run_model(model, encoded)

    outputs, _ = run_model(model, encoded[:2])

    assert outputs.shape == (2, 5)  # 5 actions


@kinds_that_can_be_empty
def test_model_without_checks_has_the_lowest_logits(
    framework, kind, make_space, build_model, draw_with_nothing_in_row_two, run_model
):
    model, preprocessor = build_model(framework, make_space(kind), {"check_observations": "never"})
    encoded = preprocessor.transform_batch(draw_with_nothing_in_row_two(kind))

    outputs, _ = run_model(model, encoded)

    assert np.isfinite(outputs).all()
    assert (outputs[2] == LOWEST).all()


def test_list_and_mask_without_a_common_action_are_an_error(
    framework, make_space, draw_observations, build_model, run_model
):
    space = make_space("list and mask")
    model, preprocessor = build_model(framework, space)
    observations = draw_observations(space, rows=3)
    # The list has action 0 only, and the mask forbids it.
    observations[1]["avail_actions"] = observations[1]["avail_actions"][:1]
    observations[1]["action_mask"] = np.array([0, 1, 1, 1, 1], np.int8)

    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        run_model(model, preprocessor.transform_batch(observations))


@kinds_that_can_be_empty
def test_policy_names_the_row_that_allows_no_action(
    framework, kind, make_space, build_policy, draw_with_nothing_in_row_two
):
    policy = build_policy(framework, make_space(kind))

    # The kernel checks masks, and the head checks empty lists.
    with pytest.raises(ActionMaskError, match="row 2 allows no action"):
        policy.act(draw_with_nothing_in_row_two(kind))


@pytest.fixture
def tf_model_and_encoded(make_space, build_model, draw_with_nothing_in_row_two):
    """A model in TensorFlow, and encoded observations of which row 2 allows no action."""
    kind = "embeddings and mask"
    model, preprocessor = build_model("tf", make_space(kind))
    return model, tf.constant(preprocessor.transform_batch(draw_with_nothing_in_row_two(kind)))


def test_traced_model_names_the_row_that_allows_no_action(tf_model_and_encoded):
    model, encoded = tf_model_and_encoded

    @tf.function
    def run_traced(obs):
        return model({"obs": obs})[0]

    assert run_traced(encoded[:2]).shape == (2, 5)  # 5 actions
    # TensorFlow's message has the row's number on a line of its own.
    message = r"mask: row(.|\n)*2(.|\n)*allows no value for action"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run_traced(encoded)


def test_traced_training_pass_does_not_check_masks(tf_model_and_encoded):
    model, encoded = tf_model_and_encoded

    @tf.function
    def run_traced(obs):
        return model({"obs": obs, "is_training": True})[0]

    assert np.isfinite(run_traced(encoded)).all()


@pytest.fixture
def run_two_sequences(to_tensor, run_model):
    """Run an LSTM on six rows: a sequence of three, and one of a single row and two of padding."""

    def run(model, encoded):
        state = [to_tensor(model.framework, np.zeros((2, 6), np.float32))] * 2  # h and c
        return run_model(model, encoded, state, lengths=[3, 1])

    return run


@pytest.mark.parametrize("kind", ["mask", "list and mask"])
def test_padding_of_a_sequence_may_allow_no_action(
    framework, kind, make_space, draw_observations, build_model, run_two_sequences
):
    space = make_space(kind)
    model, preprocessor = build_model(framework, space, {"use_lstm": True, "lstm_cell_size": 6})
    encoded = preprocessor.transform_batch(draw_observations(space, rows=6))

    encoded[4:] = 0

    outputs, _ = run_two_sequences(model, encoded)
    assert np.isfinite(outputs).all()


@pytest.mark.parametrize("kind", ["mask", "list and mask"])
def test_real_step_of_a_sequence_must_allow_an_action(
    framework, kind, make_space, draw_observations, build_model, run_two_sequences
):
    space = make_space(kind)
    model, preprocessor = build_model(framework, space, {"use_lstm": True, "lstm_cell_size": 6})
    encoded = preprocessor.transform_batch(draw_observations(space, rows=6))

    encoded[4:] = 0
    encoded[1] = 0

    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        run_two_sequences(model, encoded)
