"""RLlib's faults in its fully connected network, corrected, and observations of other shapes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.errors import ConfigError
from rlcatalog_tf import FullyConnectedNetwork as TFNet
from rlcatalog_torch import FullyConnectedNetwork as TorchNet

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(4)


# --- RLlib's faults, corrected --------------------------------------------------------------------


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_post_layers_have_their_own_activation(cls, build_net, run_net):
    trunk = build_net(
        cls,
        num_outputs=None,
        fcnet_hiddens=[8],
        fcnet_activation="tanh",
        post_fcnet_hiddens=[5],
        post_fcnet_activation="relu",
    )

    features, _ = run_net(trunk)

    # Outputs of relu, not of tanh.
    assert (features >= 0).all()
    assert (features == 0).any()
    assert features.max() > 1


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_trunk_has_no_free_log_std(cls, build_net):
    trunk = build_net(cls, num_outputs=None, fcnet_hiddens=[8], free_log_std=True)

    assert trunk.num_outputs == 8
    assert list(trunk.get_weights()) == ["hidden.layers.0.weight", "hidden.layers.0.bias"]


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_no_final_linear_leaves_a_separate_value_linear(cls, build_net, run_net):
    model = build_net(
        cls,
        fcnet_hiddens=[8, 6],
        fcnet_activation="tanh",
        no_final_linear=True,
        vf_share_layers=False,
    )

    output, value = run_net(model)

    assert output.shape == (16, 4)  # 16 observations, 4 outputs
    assert (np.abs(output) <= 1).all()  # tanh
    assert value.shape == (16,)
    assert np.abs(value).max() > 1


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_no_final_linear_shortens_both_stacks(cls, build_net):
    model = build_net(cls, fcnet_hiddens=[8, 6], no_final_linear=True, vf_share_layers=False)

    weights = model.get_weights()

    # The layer of 6 became the output, so that output and value follow the layer of 8.
    assert weights["outputs.logits.weight"].shape == (4, 8)
    assert weights["outputs.value.weight"].shape == (1, 8)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_free_log_std_rejects_an_odd_number_of_outputs(cls):
    with pytest.raises(ConfigError, match="needs an even number of outputs") as caught:
        cls(OBS, ACTIONS, num_outputs=3, model_config={"free_log_std": True}, name="net")

    assert "free_log_std needs" in str(caught.value)
    assert "found 3" in str(caught.value)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_free_log_std_starts_at_zero(cls, run_net):
    model = cls(
        OBS,
        ACTIONS,
        num_outputs=4,
        model_config={"fcnet_hiddens": [8], "free_log_std": True},
        name="net",
    )

    outputs, _ = run_net(model)

    np.testing.assert_array_equal(outputs[:, 2:], 0)  # 2 means, 2 log stds


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_free_log_std_is_the_same_for_all_observations(cls, run_net):
    model = cls(
        OBS,
        ACTIONS,
        num_outputs=4,
        model_config={"fcnet_hiddens": [8], "free_log_std": True},
        name="net",
    )
    weights = model.get_weights()
    weights["outputs.free_log_std.log_std"] = np.float32([0.5, -1.0])

    model.set_weights(weights)

    outputs, _ = run_net(model)
    np.testing.assert_array_equal(outputs[:, 2:], np.tile(np.float32([0.5, -1.0]), (16, 1)))


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_free_log_std_is_trained(cls):
    model = cls(OBS, ACTIONS, num_outputs=4, model_config={"free_log_std": True}, name="net")

    assert "outputs.free_log_std.log_std" in model.trainable_variables(as_dict=True)


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_network_does_not_change_the_config(cls):
    config = {"fcnet_hiddens": [8], "post_fcnet_hiddens": [5], "no_final_linear": True}
    before = copy.deepcopy(config)

    cls(OBS, ACTIONS, num_outputs=4, model_config=config, name="net")

    assert config == before


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
def test_empty_config_means_two_layers_of_256(cls):
    weights = cls(OBS, ACTIONS, num_outputs=4, model_config={}, name="net").get_weights()

    assert weights["hidden.layers.0.weight"].shape == (256, 3)
    assert weights["hidden.layers.1.weight"].shape == (256, 256)
    assert weights["outputs.logits.weight"].shape == (4, 256)


# --- observations of other shapes -----------------------------------------------------------------


@pytest.mark.parametrize("cls", [TorchNet, TFNet])
@pytest.mark.parametrize(
    ("space", "divisor"),
    [
        pytest.param(spaces.Box(-1, 1, (), np.float32), 1, id="scalar"),
        pytest.param(spaces.Box(-1, 1, (2, 3), np.float64), 1, id="float64-matrix"),
        pytest.param(spaces.Box(0, 255, (2, 2, 3), np.uint8), 255, id="bytes"),
        pytest.param(spaces.Box(-5, 5, (4,), np.int64), 5, id="integers"),
    ],
)
def test_boxes_are_flattened_and_integers_divided_by_bounds(cls, space, divisor, run_net):
    model = cls(
        space,
        ACTIONS,
        num_outputs=4,
        model_config={"fcnet_hiddens": [], "vf_share_layers": True},
        name="net",
    )
    space.seed(0)
    obs = np.stack([space.sample() for _ in range(5)])

    outputs, _ = run_net(model, obs)

    weights = model.get_weights()
    inputs = obs.reshape(5, -1) / divisor
    logits = inputs @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"]
    np.testing.assert_allclose(outputs, logits, rtol=1e-4, atol=1e-4)
