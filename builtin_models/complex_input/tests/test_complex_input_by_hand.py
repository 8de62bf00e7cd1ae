"""The complex-input network's results and gradients, against NumPy and between the frameworks."""

from __future__ import annotations

import numpy as np
import pytest
from builders import to_array
from model_runs import add_to_weights, assert_close, assert_same_gradients, run_model
from pairwise import pairwise

#: Few configs in which each valid pair of values occurs.
CONFIGS = pairwise(
    {
        "post_fcnet_hiddens": [[], [6], [7, 5]],
        "vf_share_layers": [True, False],
        "free_log_std": [False, True],
        "no_final_linear": [False, True],
    },
    valid=lambda config: config["post_fcnet_hiddens"] or not config["no_final_linear"],
)


@pytest.fixture
def build_rich_model(build_model, rich_case):
    """Build a model for parts of ten kinds; return it, observations, and their encoding."""

    def build(framework, num_outputs=4, **config):
        config = {"fcnet_hiddens": [5], "post_fcnet_activation": "tanh", **config}
        model, preprocessor = build_model(rich_case.space, config, framework, num_outputs)
        observations = rich_case.samples(8, seed=3)
        return model, observations, preprocessor.transform_batch(observations)

    return build


def compute_by_hand(network, config, observations):
    """Return outputs and values of a NumPy network."""
    features = network.apply_stack("hidden", network.compute_features(observations))
    outputs = network.apply_layer("outputs.logits", features)
    if config["no_final_linear"]:
        outputs = np.tanh(outputs)
    if config["free_log_std"]:
        log_std = network.weights["outputs.free_log_std.log_std"]
        outputs = np.concatenate([outputs, np.tile(log_std, (len(outputs), 1))], axis=1)
    if not config["vf_share_layers"]:
        features = network.compute_features(observations, nets="value_nets")
        features = network.apply_stack("value_hidden", features)
    return outputs, network.apply_layer("outputs.value", features)[:, 0]


@pytest.mark.parametrize("config", CONFIGS)
def test_outputs_and_values_match_numpy(
    framework, config, build_rich_model, rich_case, build_numpy_network
):
    model, observations, encoded = build_rich_model(framework, **config)

    results = run_model(model, encoded)

    network = build_numpy_network(rich_case, model.get_weights())
    outputs, values = compute_by_hand(network, config, observations)
    assert_close(results.outputs, outputs)
    assert_close(results.values, values)


@pytest.mark.parametrize("hiddens", [[], [7, 5]], ids=str)
def test_features_of_a_trunk_match_numpy(
    framework, hiddens, build_rich_model, rich_case, build_numpy_network
):
    trunk, observations, encoded = build_rich_model(
        framework, num_outputs=None, post_fcnet_hiddens=hiddens
    )

    results = run_model(trunk, encoded)

    network = build_numpy_network(rich_case, trunk.get_weights())
    features = network.apply_stack("hidden", network.compute_features(observations))
    assert trunk.num_outputs == features.shape[1]
    assert_close(results.outputs, features)


@pytest.mark.parametrize("share", [True, False], ids=["shared-value", "separate-value"])
def test_gradients_are_the_same_in_both_frameworks(share, build_rich_model):
    config = {"post_fcnet_hiddens": [6], "free_log_std": True, "vf_share_layers": share}
    torch_model, _, encoded = build_rich_model("torch", **config)
    tf_model, _, _ = build_rich_model("tf", **config)

    assert_same_gradients(tf_model, torch_model, encoded)


@pytest.mark.parametrize("share", [True, False], ids=["shared-value", "separate-value"])
def test_value_function_runs_no_second_pass(framework, share, build_rich_model):
    model, _, encoded = build_rich_model(framework, vf_share_layers=share)
    values = run_model(model, encoded).values

    # A second pass through the nets would give other values.
    add_to_weights(model, 1, prefixes=["nets", "value_nets"])

    assert_close(to_array(model.value_function()), values)
    assert not np.allclose(run_model(model, encoded).values, values)
