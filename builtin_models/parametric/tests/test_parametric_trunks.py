"""The parametric head on trunks and memories, under filters, loaded, and on custom models."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from model_runs import assert_close
from parametric_observations import (
    FOUR_NUMBERS,
    draw_observations,
    find_allowed,
    make_space,
    stack_embeddings,
)

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.plugins.discovery import scan
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

#: The logit of an action that is not allowed.
LOWEST = np.finfo(np.float32).min


# --- trunks and memories --------------------------------------------------------------------------

IMAGE = spaces.Box(0, 255, (10, 10, 2), np.uint8)


# One config serves trunks of all kinds here; each trunk reads only its own keys.
@pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")
@pytest.mark.parametrize(
    ("real_obs", "memory"),
    [
        pytest.param(spaces.Discrete(4), {}, id="fcnet"),
        pytest.param(IMAGE, {}, id="visionnet"),
        pytest.param(spaces.Dict(eye=IMAGE, kind=spaces.Discrete(3)), {}, id="complex_input"),
        pytest.param(
            FOUR_NUMBERS, {"use_lstm": True, "lstm_use_prev_action": True}, id="fcnet-lstm"
        ),
        pytest.param(IMAGE, {"use_attention": True}, id="visionnet-attention"),
    ],
)
def test_frameworks_act_alike_with_any_trunk(real_obs, memory, build_policy):
    space = make_space("list and mask", real_obs)
    torch_policy = build_policy("torch", space, memory)
    tf_policy = build_policy("tf", space, memory)
    observations = draw_observations("list and mask", rows=3, real_obs=real_obs)

    torch_state = None
    tf_state = None
    for _ in range(2):
        torch_step = torch_policy.act(observations, torch_state, explore=False)
        tf_step = tf_policy.act(observations, tf_state, explore=False)
        torch_state = torch_step.state
        tf_state = tf_step.state

        assert_close(tf_step.dist_inputs, torch_step.dist_inputs, tolerance=1e-4)
        assert_close(tf_step.value, torch_step.value, tolerance=1e-4)
        is_lowest = torch_step.dist_inputs == LOWEST
        np.testing.assert_array_equal(is_lowest, ~find_allowed(observations))


# --- filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["embeddings and mask", "list and mask"])
def test_filter_normalizes_the_input_of_the_trunk_only(framework, kind, build_policy):
    numbers_to_100 = spaces.Box(-100, 100, (4,), np.float32)
    space = make_space(kind, numbers_to_100)
    unfiltered_policy = build_policy(framework, space)
    policy = build_policy(framework, space, {"observation_filter": "MeanStdFilter"})
    observations = draw_observations(kind, rows=64, real_obs=numbers_to_100)

    encoded = policy.preprocess(observations, update=True)

    # The last four numbers are real_obs; the others are embeddings.
    unfiltered = unfiltered_policy.preprocess(observations)
    np.testing.assert_allclose(encoded[:, -4:].mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose(encoded[:, -4:].std(axis=0), 1, atol=0.02)
    np.testing.assert_array_equal(encoded[:, :-4], unfiltered[:, :-4])


def test_logits_use_filtered_observations_and_raw_embeddings(framework, build_policy):
    space = make_space("embeddings")
    policy = build_policy(framework, space, {"observation_filter": "MeanStdFilter"})
    observations = draw_observations("embeddings", rows=64)
    encoded = policy.preprocess(observations, update=True)

    step = policy.act(observations)

    weights = policy.model.get_weights()
    real_obs = encoded[:, 5 * 3 :]  # behind 5 embeddings of 3 numbers
    hidden = real_obs @ weights["trunk.hidden.layers.0.weight"].T
    features = np.tanh(hidden + weights["trunk.hidden.layers.0.bias"])
    intents = features @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    # A logit is the dot product of the intent and the action's embedding.
    logits = np.einsum("be,bne->bn", intents, stack_embeddings(observations))
    assert_close(step.dist_inputs, logits, tolerance=1e-4)


# --- saving ---------------------------------------------------------------------------------------


def test_policy_saved_without_a_head_is_loaded_without_one(tmp_path):
    # As if rlcatalog-parametric were not installed when the policy is saved.
    entry_points = [point for point in scan() if point.dist.name != "rlcatalog-parametric"]
    policy = rlcatalog.build(
        make_space("mask"),
        spaces.Discrete(5),
        {"fcnet_hiddens": [8]},
        catalog=Catalog(entry_points, environ={}),
    )
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path)

    observations = draw_observations("mask", rows=6)
    step = loaded.act(observations, explore=False)
    expected = policy.act(observations, explore=False)
    assert type(loaded.model).__name__ == "FullyConnectedNetwork"
    assert_close(step.dist_inputs, expected.dist_inputs)


# --- custom models --------------------------------------------------------------------------------


class TorchDoubling(TorchModelV2):
    """Returns twice its observation."""

    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs = self.obs_space.shape[0]

    def forward(self, input_dict, state, seq_lens):
        return 2 * input_dict["obs"], state


class TFDoubling(TFModelV2):
    """The same in TensorFlow."""

    def __init__(self, *args):
        super().__init__(*args)
        self.num_outputs = self.obs_space.shape[0]

    def forward(self, input_dict, state, seq_lens):
        return 2 * input_dict["obs"], state


DOUBLING = {"torch": TorchDoubling, "tf": TFDoubling}


@pytest.mark.parametrize("share", [True, False], ids=["shared-value", "separate-value"])
def test_use_parametric_makes_a_custom_model_the_trunk(framework, share, build_policy):
    config = {
        "custom_model": DOUBLING[framework],
        "use_parametric": True,
        "vf_share_layers": share,
    }
    policy = build_policy(framework, make_space("embeddings"), config)
    observations = draw_observations("embeddings", rows=10)

    step = policy.act(observations)

    weights = policy.model.get_weights()
    features = 2 * np.stack([obs["real_obs"] for obs in observations])
    intents = features @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    # A logit is the dot product of the intent and the action's embedding.
    logits = np.einsum("be,bne->bn", intents, stack_embeddings(observations))
    assert_close(step.dist_inputs, logits)


def test_custom_model_without_a_head_reads_mask_and_embeddings(framework):
    class ReadsAllParts(DOUBLING[framework]):
        """Returns the first number of each embedding, plus 100 where the mask is 1."""

        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs = 5

        def forward(self, input_dict, state, seq_lens):
            obs = input_dict["obs"]
            return obs["avail_actions"][:, :, 0] + 100 * obs["action_mask"], state

    space = make_space("embeddings and mask")
    policy = rlcatalog.build(space, spaces.Discrete(5), {"custom_model": ReadsAllParts}, framework)
    observations = draw_observations("embeddings and mask", rows=20)

    step = policy.act(observations)

    # Where the mask is 1, the model adds 100.
    logits = np.stack([obs["avail_actions"][:, 0] + 100 for obs in observations])
    is_allowed = find_allowed(observations)
    assert_close(step.dist_inputs[is_allowed], logits[is_allowed])
