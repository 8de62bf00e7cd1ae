"""RLlib's faults in its fully connected network, mended; and observations of other shapes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog.errors import ConfigError
from rlcatalog_tf import FullyConnectedNetwork as TFNet
from rlcatalog_torch import FullyConnectedNetwork as TorchNet

OBS, ACTIONS = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)


# --- RLlib's faults, mended -----------------------------------------------------------------------


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_post_layers_have_their_own_activation(cls, build, plain, run):
    case = {**plain, "fcnet_hiddens": [8], "post_fcnet_hiddens": [5], "num_outputs": None}
    case |= {"fcnet_activation": "tanh", "post_fcnet_activation": "relu"}
    features = run(build(cls, case))[0]
    assert (features >= 0).all()
    assert (features == 0).any()
    assert features.max() > 1


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_free_log_std_and_a_trunk_go_together(cls, build, plain):
    model = build(cls, {**plain, "fcnet_hiddens": [8], "free_log_std": True, "num_outputs": None})
    assert model.num_outputs == 8
    assert list(model.get_weights()) == ["hidden.layers.0.weight", "hidden.layers.0.bias"]


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_no_final_linear_and_a_value_of_its_own_go_together(cls, build, plain, run):
    case = {**plain, "fcnet_hiddens": [8, 6], "no_final_linear": True, "vf_share_layers": False}
    model = build(cls, {**case, "fcnet_activation": "tanh"})
    output, value = run(model)
    assert output.shape == (16, 4)
    assert (np.abs(output) <= 1).all()
    assert value.shape == (16,)
    assert np.abs(value).max() > 1  # the value has no activation
    # Both value stacks end before the layer that became the output.
    shapes = {name: array.shape for name, array in model.get_weights().items()}
    assert shapes["outputs.value.weight"] == (1, 8)
    assert shapes["outputs.logits.weight"] == (4, 8)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_an_odd_number_of_outputs_cannot_be_halved(cls):
    with pytest.raises(ConfigError, match=r"free_log_std needs an even number of outputs.*found 3"):
        cls(OBS, ACTIONS, 3, {"free_log_std": True}, "net")


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_free_log_std_is_trained_does_not_see_the_observation_and_starts_at_zero(cls, run):
    model = cls(OBS, ACTIONS, 4, {"fcnet_hiddens": [8], "free_log_std": True}, "net")
    np.testing.assert_array_equal(run(model)[0][:, 2:], 0)
    weights = model.get_weights()
    weights["outputs.free_log_std.log_std"] = np.array([0.5, -1.0], np.float32)
    model.set_weights(weights)
    np.testing.assert_array_equal(run(model)[0][:, 2:], np.tile(np.float32([0.5, -1.0]), (16, 1)))
    assert "outputs.free_log_std.log_std" in model.trainable_variables(as_dict=True)


def test_the_callers_config_is_left_alone():
    config = {"fcnet_hiddens": [8], "post_fcnet_hiddens": [5], "no_final_linear": True}
    before = copy.deepcopy(config)
    for cls in (TorchNet, TFNet):
        cls(OBS, ACTIONS, 4, config, "net")
    assert config == before


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_an_empty_config_means_the_defaults(cls):
    shapes = {
        name: array.shape for name, array in cls(OBS, ACTIONS, 4, {}, "net").get_weights().items()
    }
    assert shapes["hidden.layers.0.weight"] == (256, 3)
    assert shapes["hidden.layers.1.weight"] == (256, 256)
    assert shapes["outputs.logits.weight"] == (4, 256)


# --- observations of other shapes -----------------------------------------------------------------


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize(
    ("space", "divisor"),
    [
        (spaces.Box(-1, 1, (), np.float32), 1),
        (spaces.Box(-1, 1, (2, 3), np.float64), 1),
        (spaces.Box(0, 255, (2, 2, 3), np.uint8), 255),
        (spaces.Box(-5, 5, (4,), np.int64), 5),
    ],
    ids=str,
)
def test_any_box_is_flattened(cls, space, divisor):
    model = cls(space, ACTIONS, 4, {"fcnet_hiddens": [], "vf_share_layers": True}, "net")
    space.seed(0)
    obs = np.stack([space.sample() for _ in range(5)])
    convert = torch.from_numpy if cls is TorchNet else tf.constant
    output, _ = model({"obs": convert(obs)})
    weights = model.get_weights()
    expected = (
        obs.reshape(5, -1) / divisor @ weights["outputs.logits.weight"].T
        + weights["outputs.logits.bias"]
    )
    found = np.asarray(output.detach() if cls is TorchNet else output)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
