"""Policies that are saved in one framework and loaded in the other act the same."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

import rlcatalog
from rlcatalog import ModelSpec
from rlcatalog.errors import NotServedError, SavedPolicyError, UnknownNameError
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of
from rlcatalog_tf import TFModelV2, keras
from rlcatalog_torch import TorchModelV2

FOUR_FEATURES = Box(-1, 1, (4,), np.float32)
IMAGE = Box(0, 255, (42, 42, 3), np.uint8)
CHOICES = Dict(
    {
        "action_mask": MultiBinary(3),
        "avail_actions": Box(-1, 1, (3, 5), np.float32),
        "obs": FOUR_FEATURES,
    }
)
TWO_PARTS = Tuple([Discrete(3), Box(-1, 1, (2,), np.float32)])
FLOATS = Box(-1, 1, (2,), np.float32)
LSTM = {
    "use_lstm": True,
    "lstm_cell_size": 6,
    "lstm_use_prev_action": True,
    "lstm_use_prev_reward": True,
}
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_num_transformer_units": 2,
    "attention_use_n_prev_actions": 2,
}
#: Name → observation space, action space, config.
POLICIES = {
    "fcnet": (FOUR_FEATURES, Discrete(3), {"fcnet_hiddens": [7, 5]}),
    "free_log_std": (FOUR_FEATURES, FLOATS, {"free_log_std": True, "vf_share_layers": False}),
    "visionnet": (IMAGE, Discrete(3), {"post_fcnet_hiddens": [6]}),
    "complex_input": (
        Dict({"eye": IMAGE, "speed": FOUR_FEATURES}),
        Discrete(3),
        {"fcnet_hiddens": [7]},
    ),
    "lstm": (FOUR_FEATURES, FLOATS, LSTM),
    "attention": (FOUR_FEATURES, Discrete(3), ATTENTION),
    "parametric": (CHOICES, Discrete(3), {"use_parametric": True}),
    "autoregressive": (FOUR_FEATURES, TWO_PARTS, {"use_autoregressive": True}),
    "filter": (FOUR_FEATURES, Discrete(3), {"observation_filter": "MeanStdFilter"}),
}
ACROSS = pytest.mark.parametrize(("saved_in", "loaded_in"), [("torch", "tf"), ("tf", "torch")])
PARTS = ("rlcatalog-preprocessors", "rlcatalog-categorical", "rlcatalog-fcnet")


def build_policy(name, framework):
    """Build one of the policies, with weights that are all different."""
    policy = rlcatalog.build(*POLICIES[name], framework)
    # New biases are zeros, so it would not be seen if two of them changed places.
    rng = np.random.default_rng(1)
    weights = {}
    for key, array in policy.model.get_weights().items():
        weights[key] = array + rng.normal(0, 0.02, array.shape).astype(array.dtype)
    policy.model.set_weights(weights)
    if policy.filter is not None:
        rows = [np.full(4, 0.1 * i, np.float32) for i in range(9)]
        policy.preprocess(rows, update=True)
    return policy


def sample_observations(space, seed):
    """Return five observations, whose masks allow at least one action."""
    space.seed(seed)
    observations = [space.sample() for _ in range(5)]
    for obs in observations:
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"][seed % 3] = 1
    return observations


def act_four_times(policy, name):
    """Return the four steps of a policy that carries its state from one to the next."""
    obs_space, _, config = POLICIES[name]
    rewards = {}
    if "lstm_use_prev_reward" in config:
        rewards["prev_reward"] = np.linspace(-1, 1, 5)
    steps = []
    state = None
    for t in range(4):
        obs = sample_observations(obs_space, seed=t)
        step = policy.act(obs, state, explore=False, **rewards)
        state = step.state
        steps.append(step)
    return steps


@pytest.mark.grid
@ACROSS
@pytest.mark.parametrize("name", POLICIES)
def test_policy_acts_the_same_in_the_other_framework(name, saved_in, loaded_in, tmp_path):
    policy = build_policy(name, saved_in)
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path, framework=loaded_in)

    assert loaded.framework == loaded_in
    expected_steps = act_four_times(policy, name)
    for step, expected in zip(act_four_times(loaded, name), expected_steps, strict=True):
        np.testing.assert_allclose(step.raw_action, expected.raw_action, atol=1e-5)
        np.testing.assert_allclose(step.logp, expected.logp, atol=1e-5)
        np.testing.assert_allclose(step.value, expected.value, atol=1e-5)
        np.testing.assert_allclose(step.dist_inputs, expected.dist_inputs, atol=1e-5)


@ACROSS
def test_weights_come_back_unchanged_from_the_other_framework(saved_in, loaded_in, tmp_path):
    config = {"use_lstm": True, "lstm_cell_size": 6}
    policy = rlcatalog.build(FOUR_FEATURES, Discrete(3), config, saved_in)
    policy.save(tmp_path / "there")
    rlcatalog.load(tmp_path / "there", framework=loaded_in).save(tmp_path / "back")

    loaded = rlcatalog.load(tmp_path / "back", framework=saved_in)

    weights = loaded.model.get_weights()
    expected = policy.model.get_weights()
    assert weights.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(weights[name], expected[name])


@ACROSS
def test_load_without_framework_takes_that_of_the_save(saved_in, loaded_in, tmp_path):
    policy = rlcatalog.build(FOUR_FEATURES, Discrete(3), {"fcnet_hiddens": [4]}, saved_in)
    policy.save(tmp_path / "there")
    rlcatalog.load(tmp_path / "there", framework=loaded_in).save(tmp_path / "back")

    assert rlcatalog.load(tmp_path / "there").framework == saved_in
    assert rlcatalog.load(tmp_path / "back").framework == loaded_in


# --- errors ---------------------------------------------------------------------------------------


class TorchNet(TorchModelV2):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.last = torch.nn.Linear(4, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.last(input_dict["obs_flat"]), state


class TFNet(TFModelV2):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.final = keras.layers.Dense(self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.final(input_dict["obs_flat"]), state


@pytest.mark.parametrize(
    ("net", "saved_in", "loaded_in"), [(TorchNet, "torch", "tf"), (TFNet, "tf", "torch")]
)
def test_model_without_code_for_the_framework_is_an_error(net, saved_in, loaded_in, tmp_path):
    catalog = isolated_catalog(*PARTS)
    catalog.register_model("mine", net)
    policy = rlcatalog.build(FOUR_FEATURES, Discrete(3), {"custom_model": "mine"}, catalog=catalog)
    policy.save(tmp_path)
    with pytest.raises(NotServedError, match=f"no code for framework='{loaded_in}'") as caught:
        rlcatalog.load(tmp_path, framework=loaded_in, catalog=catalog)
    assert f"It was saved for framework='{saved_in}'" in str(caught.value)


def test_weights_with_other_names_in_the_framework_are_an_error(tmp_path):
    # The weights are called last.weight in PyTorch, and final.kernel in TensorFlow.
    targets = {"torch": f"{__name__}:TorchNet", "tf": f"{__name__}:TFNet"}
    plugin = plugin_of(rlcatalog_models=[ModelSpec("acme_net", targets, "")])
    catalog = isolated_catalog(*PARTS, PluginEntryPoint(plugin, "acme"))
    config = {"custom_model": "acme_net"}
    rlcatalog.build(FOUR_FEATURES, Discrete(3), config, "torch", catalog=catalog).save(tmp_path)
    with pytest.raises(SavedPolicyError, match=r"unknown: \['last") as caught:
        rlcatalog.load(tmp_path, framework="tf", catalog=catalog)
    assert "saved for framework='torch'" in str(caught.value)


def test_unknown_framework_is_an_error(tmp_path):
    rlcatalog.build(env=gym.make("CartPole-v1")).save(tmp_path)
    with pytest.raises(UnknownNameError, match=r"Unknown framework 'jax'\. Known: 'torch"):
        rlcatalog.load(tmp_path, framework="jax")


def test_tf2_is_another_name_of_tf(tmp_path):
    rlcatalog.build(env=gym.make("CartPole-v1")).save(tmp_path)
    assert rlcatalog.load(tmp_path, framework="tf2").framework == "tf"
