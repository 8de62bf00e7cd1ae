"""Logits, values and gradients of the parametric head, against NumPy and between frameworks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from model_runs import assert_close, compute_gradients, run_model
from parametric_observations import (
    draw_observations,
    find_allowed,
    make_space,
    stack_embeddings,
)

import rlcatalog
from rlcatalog_torch import RecurrentNetwork

pytestmark = pytest.mark.twins

#: The logit of an action that is not allowed.
LOWEST = np.finfo(np.float32).min

shared_and_separate_value = pytest.mark.parametrize(
    "share", [True, False], ids=["shared-value", "separate-value"]
)


# --- NumPy ----------------------------------------------------------------------------------------


def apply_layer(weights, name, x):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def compute_by_hand(weights, observations):
    """Return logits and values, from observations as the environment emits them."""
    real_obs = np.stack([obs["real_obs"] for obs in observations])
    features = np.tanh(apply_layer(weights, "trunk.hidden.layers.0", real_obs))
    value_features = features
    if "value_trunk.hidden.layers.0.weight" in weights:
        value_features = np.tanh(apply_layer(weights, "value_trunk.hidden.layers.0", real_obs))
    logits = apply_layer(weights, "outputs.logits", features)
    if "avail_actions" in observations[0]:
        # Products of what the network returns with the embedding of each action.
        logits = np.einsum("be,bne->bn", logits, stack_embeddings(observations))
    logits = np.where(find_allowed(observations), logits, LOWEST)
    return logits, apply_layer(weights, "outputs.value", value_features)[:, 0]


@pytest.mark.grid
@shared_and_separate_value
def test_model_with_the_mask_in_its_observation_matches_numpy(framework, kind, share, build_model):
    model, preprocessor = build_model(framework, make_space(kind), {"vf_share_layers": share})
    observations = draw_observations(kind, rows=20)

    results = run_model(model, preprocessor.transform_batch(observations))

    logits, values = compute_by_hand(model.get_weights(), observations)
    assert_close(results.outputs, logits)
    assert_close(results.values, values)


@pytest.mark.grid
@shared_and_separate_value
def test_policy_logits_and_values_match_numpy(framework, kind, share, build_policy):
    policy = build_policy(framework, make_space(kind), {"vf_share_layers": share})
    observations = draw_observations(kind, rows=20)

    step = policy.act(observations)

    logits, values = compute_by_hand(policy.model.get_weights(), observations)
    assert_close(step.dist_inputs, logits)
    assert_close(step.value, values)


@pytest.mark.parametrize(
    ("stack", "join"),
    [
        pytest.param(False, tuple, id="tuple"),
        pytest.param(True, np.stack, id="array"),  # as Sequence(stack=True) has them
    ],
)
def test_embeddings_may_be_a_sequence(framework, stack, join, build_policy):
    space = spaces.Dict(
        {
            "avail_actions": spaces.Sequence(spaces.Box(-1, 1, (3,), np.float32), stack=stack),
            "real_obs": spaces.Box(-1, 1, (4,), np.float32),
        }
    )
    policy = build_policy(framework, space, {"sequence_max_len": 5})
    observations = draw_observations("list", rows=8)
    logits, _ = compute_by_hand(policy.model.get_weights(), observations)

    for obs in observations:
        obs["avail_actions"] = join(obs["avail_actions"])
    step = policy.act(observations)

    assert_close(step.dist_inputs, logits)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64])
def test_embeddings_may_have_any_dtype(framework, dtype, build_policy):
    space = spaces.Dict(
        {
            "avail_actions": spaces.Box(0, 9, (5, 3), dtype),
            "real_obs": spaces.Box(-1, 1, (4,), np.float32),
        }
    )
    policy = build_policy(framework, space)
    observations = [space.sample(), space.sample()]

    step = policy.act(observations)

    logits, _ = compute_by_hand(policy.model.get_weights(), observations)
    assert_close(step.dist_inputs, logits, tolerance=1e-4)


def test_initial_output_layers_have_rows_of_norm_one_hundredth(framework):
    space = make_space("embeddings and mask")

    policy = rlcatalog.build(space, spaces.Discrete(5), {"fcnet_hiddens": [8]}, framework)

    weights = policy.model.get_weights()
    for name in ("outputs.logits.weight", "outputs.value.weight"):
        norms = np.linalg.norm(weights[name], axis=1)
        np.testing.assert_allclose(norms, 0.01, rtol=1e-4)


# --- places without an action ---------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("number", [7.0, 1e30, np.nan, np.inf])
def test_embeddings_that_are_not_allowed_have_no_influence(framework, number, build_model):
    model, preprocessor = build_model(framework, make_space("embeddings and mask"))
    observations = draw_observations("embeddings and mask", rows=12)
    encoded = preprocessor.transform_batch(observations)
    embeddings = encoded[:, 5:20].reshape(12, 5, 3)  # they stand behind the mask of 5 numbers
    embeddings = np.where(find_allowed(observations)[..., None], embeddings, np.float32(number))
    changed = encoded.copy()
    changed[:, 5:20] = embeddings.reshape(12, 15)

    results = run_model(model, changed)
    gradients = compute_gradients(model, changed)

    np.testing.assert_array_equal(results.outputs, run_model(model, encoded).outputs)
    for name, expected in compute_gradients(model, encoded).items():
        np.testing.assert_array_equal(gradients[name], expected, err_msg=name)


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
def test_recurrent_trunk_has_a_state_for_a_separate_value(share, parts, build_policy):
    config = {"custom_model": RecurrentTrunk, "use_parametric": True, "vf_share_layers": share}
    policy = build_policy("torch", make_space("embeddings"), config)

    step = policy.act(draw_observations("embeddings", rows=6))

    assert len(step.state.memory) == parts
