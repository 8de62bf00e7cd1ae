"""The fully connected network as the catalog builds it."""

from __future__ import annotations

import numpy as np
import pytest
import warm
from gymnasium import spaces

from rlcatalog import ModelCatalog, build as build_policy
from rlcatalog_tf import FullyConnectedNetwork as TFNet
from rlcatalog_torch import FullyConnectedNetwork as TorchNet

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(4)


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchNet), ("tf", TFNet)])
def test_get_model_v2_returns_the_network_of_the_framework(framework, cls):
    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 4, {"fcnet_hiddens": [8]}, framework)

    assert type(model) is cls


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_policy_computes_logits_and_value_with_the_network(framework):
    obs = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    policy = build_policy(OBS, ACTIONS, {"fcnet_hiddens": [8]}, framework)
    weights = policy.model.get_weights()

    step = policy.act(obs)

    hidden = np.tanh(np.clip(obs, -9, 9) @ weights["hidden.layers.0.weight"].T)  # biases are 0
    logits = hidden @ weights["outputs.logits.weight"].T
    value = (hidden @ weights["outputs.value.weight"].T)[:, 0]
    np.testing.assert_allclose(step.dist_inputs, logits, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(step.value, value, rtol=1e-4, atol=1e-6)


#: Prints the type of each error, and which frameworks are imported then.
BUILD_WITH_INVALID_CONFIGS = """
import sys
import gymnasium as gym
import rlcatalog
from rlcatalog.errors import CatalogError

box, two, three = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2), gym.spaces.Discrete(3)
for actions, config in [
    (two, {"fcnet_hiddens": "wide"}),
    (two, {"fcnet_hiddens": [8, -1]}),
    (two, {"fcnet_activation": "rlu"}),
    (two, {"fcnet_weights_initializer": "norm_c"}),
    (two, {"fcnet_weights_initializer": "normc", "fcnet_weights_initializer_config": {"sd": 1}}),
    (three, {"free_log_std": True}),
]:
    for framework in ("torch", "tf"):
        try:
            rlcatalog.build(box, actions, config, framework)
        except CatalogError as error:
            print(type(error).__name__, sorted({"torch", "tensorflow"} & set(sys.modules)))
        else:
            print(config, "was accepted")
"""


def test_invalid_config_is_an_error_before_frameworks_load(tmp_path):
    process = warm.run(["-c", BUILD_WITH_INVALID_CONFIGS], tmp_path, frameworks=False)

    # Each of the six configs is tried in two frameworks; "[]": neither is imported.
    wrong_type = ["ConfigTypeError []"] * 2
    wrong_values = ["ConfigError []"] * 10
    assert process.stdout.splitlines() == wrong_type + wrong_values
