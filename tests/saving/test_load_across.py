"""Policies saved under one framework and loaded under the other: they act as the policy that was
saved.
"""

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

VECTOR, IMAGE = Box(-1, 1, (4,), np.float32), Box(0, 255, (42, 42, 3), np.uint8)
CHOICES = Dict(
    {"action_mask": MultiBinary(3), "avail_actions": Box(-1, 1, (3, 5), np.float32), "obs": VECTOR}
)
PARTS = Tuple([Discrete(3), Box(-1, 1, (2,), np.float32)])
MEMORY = {"lstm_cell_size": 6, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
ATTENTION = {
    "attention_dim": 8,
    "attention_num_transformer_units": 2,
    "attention_use_n_prev_actions": 2,
}
POLICIES = {
    "fcnet": (VECTOR, Discrete(3), {"fcnet_hiddens": [7, 5]}),
    "fcnet, free_log_std": (
        VECTOR,
        Box(-1, 1, (2,), np.float32),
        {"free_log_std": True, "vf_share_layers": False},
    ),
    "visionnet": (IMAGE, Discrete(3), {"post_fcnet_hiddens": [6]}),
    "complex_input": (Dict({"eye": IMAGE, "speed": VECTOR}), Discrete(3), {"fcnet_hiddens": [7]}),
    "lstm": (VECTOR, Box(-1, 1, (2,), np.float32), {"use_lstm": True, **MEMORY}),
    "attention": (VECTOR, Discrete(3), {"use_attention": True, **ATTENTION}),
    "parametric": (CHOICES, Discrete(3), {"use_parametric": True}),
    "autoregressive": (VECTOR, PARTS, {"use_autoregressive": True}),
    "filter": (VECTOR, Discrete(3), {"observation_filter": "MeanStdFilter"}),
}
ROWS = 5
ACROSS = pytest.mark.parametrize(("saved", "loaded"), [("torch", "tf"), ("tf", "torch")])


def observations(space, seed):
    space.seed(seed)
    drawn = [space.sample() for _ in range(ROWS)]
    for obs in drawn:
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"][seed % 3] = 1  # something is allowed
    return drawn


@pytest.mark.grid
@ACROSS
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_loaded_under_the_other_framework_acts_the_same(name, saved, loaded, tmp_path):
    obs_space, action_space, config = POLICIES[name]
    policy = rlcatalog.build(obs_space, action_space, config, saved)
    # As built, biases are zeros, and two of them could change places.
    drawn = np.random.default_rng(1)
    weights = policy.model.get_weights()
    policy.model.set_weights(
        {n: a + drawn.normal(0, 0.02, a.shape).astype(a.dtype) for n, a in weights.items()}
    )
    if policy.filter is not None:
        policy.preprocess([np.full(4, 0.1 * i, np.float32) for i in range(9)], update=True)
    policy.save(tmp_path)
    other = rlcatalog.load(tmp_path, framework=loaded)
    assert (other.framework, policy.framework) == (loaded, saved)
    states = None, None
    for t in range(4):
        obs, reward = observations(obs_space, t), np.linspace(-1, 1, ROWS)
        kept = {"prev_reward": reward} if "lstm_use_prev_reward" in config else {}
        steps = [
            p.act(obs, s, explore=False, **kept)
            for p, s in zip((policy, other), states, strict=True)
        ]
        for one, two in zip(
            *((s.raw_action, s.logp, s.value, s.dist_inputs) for s in steps), strict=True
        ):
            np.testing.assert_allclose(one, two, atol=1e-5)
        states = tuple(step.state for step in steps)


@ACROSS
def test_a_policy_goes_there_and_back_unchanged(saved, loaded, tmp_path):
    policy = rlcatalog.build(VECTOR, Discrete(3), {"use_lstm": True, "lstm_cell_size": 6}, saved)
    policy.save(tmp_path / "there")
    rlcatalog.load(tmp_path / "there", framework=loaded).save(tmp_path / "back")
    again = rlcatalog.load(tmp_path / "back", framework=saved)
    weights = policy.model.get_weights()
    assert again.model.get_weights().keys() == weights.keys()
    assert all(
        np.array_equal(array, weights[name]) for name, array in again.model.get_weights().items()
    )
    # Without the argument, as it was saved.
    assert rlcatalog.load(tmp_path / "back").framework == loaded
    assert rlcatalog.load(tmp_path / "back", framework="tf2").framework == "tf"


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


@pytest.mark.parametrize(("net", "loaded"), [(TorchNet, "tf"), (TFNet, "torch")])
def test_a_model_of_one_framework_alone_says_so(net, loaded, tmp_path):
    catalog = isolated_catalog(
        "rlcatalog-preprocessors", "rlcatalog-categorical", "rlcatalog-fcnet"
    )
    catalog.register_model("mine", net)
    policy = rlcatalog.build(VECTOR, Discrete(3), {"custom_model": "mine"}, catalog=catalog)
    policy.save(tmp_path)
    message = (
        f"model 'mine' .* has no code for framework='{loaded}'; it supports: {policy.framework}"
    )
    with pytest.raises(NotServedError, match=message) as error:
        rlcatalog.load(tmp_path, framework=loaded, catalog=catalog)
    assert f"It was saved for framework='{policy.framework}'" in str(error.value)
    assert rlcatalog.load(tmp_path, catalog=catalog).framework == policy.framework


def test_a_model_that_names_its_weights_otherwise_in_the_other_framework_says_so(tmp_path):
    both = {"torch": f"{__name__}:TorchNet", "tf": f"{__name__}:TFNet"}
    acme = PluginEntryPoint(plugin_of(rlcatalog_models=[ModelSpec("acme_net", both, "")]), "acme")
    catalog = isolated_catalog(
        "rlcatalog-preprocessors", "rlcatalog-categorical", "rlcatalog-fcnet", acme
    )
    rlcatalog.build(
        VECTOR, Discrete(3), {"custom_model": "acme_net"}, "torch", catalog=catalog
    ).save(tmp_path)
    message = r"(?s)unknown: \['last.*saved for framework='torch'.*framework='tf'"
    with pytest.raises(SavedPolicyError, match=message):
        rlcatalog.load(tmp_path, framework="tf", catalog=catalog)


def test_a_framework_that_does_not_exist_is_named(tmp_path):
    rlcatalog.build(env=gym.make("CartPole-v1")).save(tmp_path)
    with pytest.raises(UnknownNameError, match=r"Unknown framework 'jax'\. Known: 'torch', 'tf'"):
        rlcatalog.load(tmp_path, framework="jax")
