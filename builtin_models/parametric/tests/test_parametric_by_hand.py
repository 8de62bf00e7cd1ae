"""Logits, values and gradients of the parametric head, against NumPy and between frameworks."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog_torch import RecurrentNetwork

pytestmark = pytest.mark.twins

#: The logit of an action that is not allowed.
LOWEST = np.finfo(np.float32).min

shared_and_separate_value = pytest.mark.parametrize(
    "share", [True, False], ids=["shared-value", "separate-value"]
)


def apply_layer(weights, name, x):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def select_logp(logits, actions):
    """Return the log probabilities of actions under a softmax of the logits."""
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    rows = np.arange(len(actions))
    return np.log(exponents[rows, actions] / exponents.sum(axis=1))


# --- NumPy ----------------------------------------------------------------------------------------


@pytest.fixture
def compute_by_hand(find_allowed, stack_embeddings):
    """Compute logits and values with NumPy, from observations as the environment emits them."""

    def compute(weights, observations):
        real_obs = np.stack([obs["real_obs"] for obs in observations])
        features = np.tanh(apply_layer(weights, "trunk.hidden.layers.0", real_obs))
        value_features = features
        if "value_trunk.hidden.layers.0.weight" in weights:
            hidden = apply_layer(weights, "value_trunk.hidden.layers.0", real_obs)
            value_features = np.tanh(hidden)
        logits = apply_layer(weights, "outputs.logits", features)
        if "avail_actions" in observations[0]:
            # Products of what the network returns with the embedding of each action.
            logits = np.einsum("be,bne->bn", logits, stack_embeddings(observations))
        logits = np.where(find_allowed(observations), logits, LOWEST)
        return logits, apply_layer(weights, "outputs.value", value_features)[:, 0]

    return compute


@pytest.mark.grid
@shared_and_separate_value
def test_model_with_the_mask_in_its_observation_matches_numpy(
    framework,
    kind,
    share,
    make_space,
    draw_observations,
    build_model,
    run_model,
    compute_by_hand,
    find_allowed,
    assert_close,
):
    space = make_space(kind)
    model, preprocessor = build_model(framework, space, {"vf_share_layers": share})
    observations = draw_observations(space, rows=20)

    logits, values = run_model(model, preprocessor.transform_batch(observations))

    expected_logits, expected_values = compute_by_hand(model.get_weights(), observations)
    assert_close(logits, expected_logits)
    assert_close(values, expected_values)
    assert not (logits[find_allowed(observations)] == LOWEST).any()


@pytest.fixture
def build_and_draw(make_space, draw_observations, build_policy):
    """Build a policy, and draw 500 observations."""

    def build(framework, kind, share):
        space = make_space(kind)
        policy = build_policy(framework, space, {"vf_share_layers": share})
        return policy, draw_observations(space, rows=500)

    return build


@pytest.mark.grid
@shared_and_separate_value
def test_policy_logits_and_values_match_numpy(
    framework, kind, share, build_and_draw, compute_by_hand, assert_close
):
    policy, observations = build_and_draw(framework, kind, share)

    step = policy.act(observations)

    logits, values = compute_by_hand(policy.model.get_weights(), observations)
    assert_close(step.dist_inputs, logits)
    assert_close(step.value, values)


@pytest.mark.grid
@shared_and_separate_value
def test_policy_samples_allowed_actions_with_their_probability(
    framework, kind, share, build_and_draw, compute_by_hand, find_allowed, assert_close
):
    policy, observations = build_and_draw(framework, kind, share)

    step = policy.act(observations)

    chosen = step.action - 2  # Discrete(5, start=2)
    logits, _ = compute_by_hand(policy.model.get_weights(), observations)
    assert find_allowed(observations)[np.arange(500), chosen].all()
    assert_close(step.logp, select_logp(logits, chosen), tolerance=1e-4)


@pytest.mark.grid
@shared_and_separate_value
def test_policy_without_exploration_takes_the_highest_logit(
    framework, kind, share, build_and_draw, compute_by_hand
):
    policy, observations = build_and_draw(framework, kind, share)

    step = policy.act(observations, explore=False)

    logits, _ = compute_by_hand(policy.model.get_weights(), observations)
    np.testing.assert_array_equal(step.action - 2, logits.argmax(axis=1))  # start=2


@pytest.mark.grid
@shared_and_separate_value
def test_evaluate_with_masks_returns_what_act_returned(
    framework, kind, share, build_and_draw, to_array, assert_close
):
    policy, observations = build_and_draw(framework, kind, share)
    step = policy.act(observations)

    evaluation = policy.evaluate(
        {
            "obs": policy.preprocess(observations),
            "mask": policy.action_mask(observations),
            "raw_action": step.raw_action,
            "dist_inputs": step.dist_inputs,
        }
    )

    assert_close(to_array(evaluation.logp), step.logp, tolerance=1e-4)
    assert_close(to_array(evaluation.kl), 0)
    assert np.isfinite(to_array(evaluation.entropy)).all()


# --- weights --------------------------------------------------------------------------------------


@shared_and_separate_value
def test_frameworks_have_the_same_weights(kind, share, make_space, build_policy):
    config = {"vf_share_layers": share}

    torch_names = list(build_policy("torch", make_space(kind), config).model.get_weights())
    tf_names = list(build_policy("tf", make_space(kind), config).model.get_weights())

    layers = ["trunk.hidden.layers.0", "outputs.logits", "outputs.value"]
    if not share:
        layers.append("value_trunk.hidden.layers.0")
    expected = {f"{layer}.weight" for layer in layers} | {f"{layer}.bias" for layer in layers}
    assert torch_names == tf_names
    assert set(torch_names) == expected


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        pytest.param("mask", 5, id="mask"),  # a logit for each action
        pytest.param("embeddings", 3, id="embeddings"),  # the width of an embedding
        pytest.param("embeddings and mask", 3, id="embeddings and mask"),
        pytest.param("list", 3, id="list"),
        pytest.param("list and mask", 3, id="list and mask"),
    ],
)
def test_last_layer_has_the_width_of_an_embedding(framework, kind, width, make_space, build_policy):
    weights = build_policy(framework, make_space(kind)).model.get_weights()

    assert weights["outputs.logits.weight"].shape == (width, 8)  # 8 features of the trunk


def test_initial_output_layers_have_rows_of_norm_one_hundredth(framework, kind, make_space):
    config = {"fcnet_hiddens": [8]}

    policy = rlcatalog.build(make_space(kind), spaces.Discrete(5), config, framework)

    weights = policy.model.get_weights()
    for name in ("outputs.logits.weight", "outputs.value.weight"):
        norms = np.linalg.norm(weights[name], axis=1)
        np.testing.assert_allclose(norms, 0.01, rtol=1e-4)


# --- places without an action ---------------------------------------------------------------------


@pytest.fixture
def compute_gradients(to_array):
    """Compute the logits, and the gradients of squared allowed logits and values, by name."""

    def compute(model, encoded):
        variables = model.trainable_variables(as_dict=True)
        if model.framework == "torch":
            output, _ = model({"obs": torch.from_numpy(encoded)})
            allowed_output = torch.where(output > LOWEST, output, 0.0)
            loss = allowed_output.square().sum() + model.value_function().square().sum()
            gradients = torch.autograd.grad(loss, list(variables.values()))
        else:
            with tf.GradientTape() as tape:
                output, _ = model({"obs": tf.constant(encoded)})
                allowed_output = tf.where(output > LOWEST, output, 0.0)
                loss = tf.reduce_sum(allowed_output**2)
                loss += tf.reduce_sum(model.value_function() ** 2)
            gradients = tape.gradient(loss, list(variables.values()))
        arrays = [to_array(gradient) for gradient in gradients]
        return to_array(output), dict(zip(variables, arrays, strict=True))

    return compute


def find_embeddings(preprocessor):
    """Return the place of the embeddings in an encoded observation."""
    for leaf in preprocessor.leaves():
        if "avail" in leaf.path and leaf.kind != "length":
            return slice(leaf.start, leaf.stop)
    raise LookupError


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["embeddings and mask", "list", "list and mask"])
@pytest.mark.parametrize("number", [7.0, 1e30, np.nan, np.inf])
def test_embeddings_that_are_not_allowed_have_no_influence(
    framework,
    kind,
    number,
    make_space,
    draw_observations,
    build_model,
    find_allowed,
    compute_gradients,
):
    space = make_space(kind)
    model, preprocessor = build_model(framework, space)
    observations = draw_observations(space, rows=12)
    encoded = preprocessor.transform_batch(observations)
    place = find_embeddings(preprocessor)
    embeddings = encoded[:, place].reshape(12, 5, 3).copy()
    embeddings[~find_allowed(observations)] = number
    spoilt = encoded.copy()
    spoilt[:, place] = embeddings.reshape(12, 15)

    logits, gradients = compute_gradients(model, spoilt)

    expected_logits, expected_gradients = compute_gradients(model, encoded)
    assert not np.array_equal(spoilt, encoded)
    np.testing.assert_array_equal(logits, expected_logits)
    for name, gradient in gradients.items():
        assert np.abs(gradient).max() > 0
        np.testing.assert_array_equal(gradient, expected_gradients[name], err_msg=name)


# --- forms of the same embeddings -----------------------------------------------------------------


def test_list_matches_a_box_with_a_mask(
    framework, make_space, draw_observations, build_policy, assert_close
):
    policy_of_lists = build_policy(framework, make_space("list"))
    policy_of_boxes = build_policy(framework, make_space("embeddings and mask"))
    policy_of_boxes.model.set_weights(policy_of_lists.model.get_weights())
    random = np.random.default_rng(1)
    lists = draw_observations(make_space("list"), rows=30)
    boxes = []
    for obs in lists:
        count = len(obs["avail_actions"])
        embeddings = random.normal(size=(5, 3)).astype(np.float32).clip(-1, 1)
        embeddings[:count] = obs["avail_actions"]
        mask = (np.arange(5) < count).astype(np.int8)
        boxes.append({**obs, "avail_actions": embeddings, "action_mask": mask})

    with_lists = policy_of_lists.act(lists, explore=False)
    with_boxes = policy_of_boxes.act(boxes, explore=False)

    assert_close(with_lists.dist_inputs, with_boxes.dist_inputs)
    assert_close(with_lists.value, with_boxes.value)
    assert_close(with_lists.logp, with_boxes.logp)


@pytest.mark.parametrize(
    ("stack", "join"),
    [pytest.param(False, tuple, id="tuple"), pytest.param(True, np.stack, id="stacked")],
)
def test_sequence_matches_a_repeated(
    framework, stack, join, make_space, draw_observations, build_policy, assert_close
):
    embedding = spaces.Box(-1, 1, (3,), np.float32)
    space = spaces.Dict(
        {
            "avail_actions": spaces.Sequence(embedding, stack=stack),
            "real_obs": spaces.Box(-1, 1, (4,), np.float32),
        }
    )
    policy_of_repeated = build_policy(framework, make_space("list"))
    policy_of_sequences = build_policy(framework, space, {"sequence_max_len": 5})
    policy_of_sequences.model.set_weights(policy_of_repeated.model.get_weights())
    lists = draw_observations(make_space("list"), rows=8)
    sequences = [{**obs, "avail_actions": join(obs["avail_actions"])} for obs in lists]

    step = policy_of_sequences.act(sequences, explore=False)

    expected = policy_of_repeated.act(lists, explore=False)
    assert_close(step.dist_inputs, expected.dist_inputs)


def test_logits_are_permuted_like_the_embeddings(
    framework, make_space, draw_observations, build_policy, assert_close
):
    policy = build_policy(framework, make_space("embeddings"))
    observations = draw_observations(make_space("embeddings"), rows=10)
    order = np.array([3, 0, 4, 1, 2])
    permuted = [{**obs, "avail_actions": obs["avail_actions"][order]} for obs in observations]

    before = policy.act(observations, explore=False)
    after = policy.act(permuted, explore=False)

    assert_close(after.dist_inputs, before.dist_inputs[:, order])
    assert_close(after.value, before.value)
    assert len(np.unique(before.action)) > 1


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64])
def test_embeddings_may_have_any_dtype(
    framework, dtype, build_policy, compute_by_hand, assert_close
):
    embeddings = spaces.Box(0, 9, (5, 3), dtype)
    real_obs = spaces.Box(-1, 1, (4,), np.float32)
    space = spaces.Dict({"avail_actions": embeddings, "real_obs": real_obs})
    policy = build_policy(framework, space)
    observations = []
    for _ in range(4):
        observations.append({"avail_actions": embeddings.sample(), "real_obs": real_obs.sample()})

    step = policy.act(observations)

    expected, _ = compute_by_hand(policy.model.get_weights(), observations)
    assert_close(step.dist_inputs, expected, tolerance=1e-4)


# --- recurrent trunks -----------------------------------------------------------------------------


class RecurrentTrunk(RecurrentNetwork):
    """A trunk whose state has one part."""

    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs = 4
        self.layer = torch.nn.Linear(4, 4)

    def get_initial_state(self):
        return [np.zeros(2, np.float32)]

    def forward_rnn(self, inputs, state, seq_lens):
        return self.layer(inputs), state


@pytest.mark.parametrize(
    ("share", "parts"),
    [
        pytest.param(True, 1, id="shared-value"),
        pytest.param(False, 2, id="separate-value"),  # one of the policy and one of the value
    ],
)
def test_recurrent_trunk_has_a_state_for_a_separate_value(
    share, parts, make_space, draw_observations, build_policy
):
    config = {"custom_model": RecurrentTrunk, "use_parametric": True, "vf_share_layers": share}
    policy = build_policy("torch", make_space("embeddings"), config)

    step = policy.act(draw_observations(make_space("embeddings"), rows=6))

    assert len(step.state.memory) == parts
