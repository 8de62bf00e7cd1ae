"""The fully connected network in the catalog: its choice, explanation, options and inputs."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import warm
from gymnasium import spaces
from model_runs import assert_close, run_model

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.errors import ConfigError
from rlcatalog_tf import FullyConnectedNetwork as TFNet
from rlcatalog_torch import FullyConnectedNetwork as TorchNet

THREE_NUMBERS = spaces.Box(-1, 1, (3,), np.float32)
FOUR_ACTIONS = spaces.Discrete(4)


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchNet), ("tf", TFNet)])
def test_get_model_v2_returns_the_network_of_the_framework(framework, cls):
    model = ModelCatalog.get_model_v2(
        THREE_NUMBERS, FOUR_ACTIONS, 4, {"fcnet_hiddens": [8]}, framework
    )

    assert type(model) is cls


def test_explanation_lists_the_layers():
    config = {"fcnet_hiddens": [8], "post_fcnet_hiddens": [6], "vf_share_layers": False}

    explanation = rlcatalog.explain(THREE_NUMBERS, FOUR_ACTIONS, config).as_dict()

    stages = [(row["stage"], row["shape"]) for row in explanation["shapes"]]
    assert [stage for stage in stages if stage[0].startswith("fcnet")] == [
        ("fcnet: hidden 1 (tanh)", [8]),
        ("fcnet: hidden 2 (relu)", [6]),
        ("fcnet: value, hidden 1 (tanh)", [8]),
        ("fcnet: value, hidden 2 (relu)", [6]),
        ("fcnet: value", []),
        ("fcnet: logits (linear)", [4]),
    ]


# --- options --------------------------------------------------------------------------------------


def test_empty_config_means_two_layers_of_256(framework, build_net):
    weights = build_net(framework).get_weights()

    assert weights["hidden.layers.0.weight"].shape == (256, 3)
    assert weights["hidden.layers.1.weight"].shape == (256, 256)
    assert weights["outputs.logits.weight"].shape == (4, 256)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_network_does_not_change_the_config(cls):
    config = {"fcnet_hiddens": [8], "post_fcnet_hiddens": [5], "no_final_linear": True}
    before = copy.deepcopy(config)

    cls(THREE_NUMBERS, FOUR_ACTIONS, 4, config, "net")

    assert config == before


def test_trunk_has_no_free_log_std(framework, build_net):
    trunk = build_net(framework, num_outputs=None, fcnet_hiddens=[8], free_log_std=True)

    assert list(trunk.get_weights()) == ["hidden.layers.0.weight", "hidden.layers.0.bias"]


def test_free_log_std_rejects_an_odd_number_of_outputs(framework, build_net):
    with pytest.raises(ConfigError, match="free_log_std needs an even number") as caught:
        build_net(framework, num_outputs=3, free_log_std=True)

    assert "found 3" in str(caught.value)


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


# --- inputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "obs", "inputs"),
    [
        pytest.param(spaces.Box(-1, 1, ()), 0.5, [0.5], id="scalar"),
        pytest.param(
            spaces.Box(-1, 1, (2, 2), np.float64),
            [[0, 0.1], [0.2, 0.3]],
            [0, 0.1, 0.2, 0.3],
            id="float64-matrix",
        ),
        pytest.param(spaces.Box(0, 255, (3,), np.uint8), [0, 51, 255], [0, 0.2, 1], id="bytes"),
        pytest.param(spaces.Box(-5, 5, (2,), np.int64), [-5, 2], [-1, 0.4], id="integers"),
    ],
)
def test_boxes_are_flattened_and_integers_divided_by_bounds(framework, space, obs, inputs):
    # Without hidden layers, and with the identity as weights, the outputs are the inputs.
    model = ModelCatalog.get_model_v2(
        space, FOUR_ACTIONS, len(inputs), {"fcnet_hiddens": []}, framework
    )
    weights = model.get_weights()
    weights["outputs.logits.weight"] = np.eye(len(inputs))
    model.set_weights(weights)

    results = run_model(model, np.array([obs], space.dtype))

    assert_close(results.outputs, [inputs])
