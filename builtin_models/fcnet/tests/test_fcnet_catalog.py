"""The fully connected network through the catalog."""

from __future__ import annotations

import numpy as np
import pytest
import warm
from gymnasium import spaces

from rlcatalog import ModelCatalog, build as build_policy
from rlcatalog_tf import FullyConnectedNetwork as TFNet
from rlcatalog_torch import FullyConnectedNetwork as TorchNet

OBS, ACTIONS = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)
X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_the_catalog_builds_it(framework):
    model = ModelCatalog.get_model_v2(OBS, ACTIONS, 4, {"fcnet_hiddens": [8]}, framework)
    assert type(model) is {"torch": TorchNet, "tf": TFNet}[framework]
    policy = build_policy(OBS, ACTIONS, {"fcnet_hiddens": [8]}, framework)
    step = policy.act(X)
    expected = policy.model.get_weights()
    hidden = np.tanh(np.clip(X, -9, 9) @ expected["hidden.layers.0.weight"].T)
    np.testing.assert_allclose(
        step.dist_inputs, hidden @ expected["outputs.logits.weight"].T, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        step.value, (hidden @ expected["outputs.value.weight"].T)[:, 0], rtol=1e-4, atol=1e-6
    )


BAD = """
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


def test_a_wrong_config_is_refused_before_a_framework_is_imported(tmp_path):
    done = warm.run(["-c", BAD], tmp_path, frameworks=False)
    kinds = [
        "ConfigTypeError",
        "ConfigError",
        "ConfigError",
        "ConfigError",
        "ConfigError",
        "ConfigError",
    ]
    assert done.stdout.splitlines() == [f"{kind} []" for kind in kinds for _ in range(2)]
