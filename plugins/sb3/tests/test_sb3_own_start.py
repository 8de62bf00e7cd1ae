"""Nets for Stable-Baselines3 start like its own: layers in the same order, with initial weights
from the same distributions; from equal weights, ten updates end at equal weights.
"""

from collections import defaultdict
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import sb3_contrib
import stable_baselines3
import torch
from gymnasium.spaces import Box, Discrete
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from scipy.stats import ks_2samp
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy
from torch import nn

from rlcatalog_sb3 import (
    CatalogMaskablePolicy,
    CatalogPolicy,
    CatalogRecurrentPolicy,
    RecurrentPPO,
)

FIVE_NUMBERS = Box(-1, 1, (5,), np.float32)
IMAGE_36x36 = Box(0, 255, (36, 36, 3), np.uint8)
TWO_NUMBERS = Box(-1, 1, (2,), np.float32)
THREE_ACTIONS = Discrete(3)
#: Widths of the dense layers, and of the LSTM.
WIDTHS = [6, 4]
LSTM_SIZE = 4
FEATURES = 8

DENSE = {"fcnet_hiddens": WIDTHS, "fcnet_activation": "tanh"}
LSTM = {**DENSE, "use_lstm": True, "lstm_cell_size": LSTM_SIZE}
#: The layers of Stable-Baselines3's NatureCNN.
CONVOLUTIONS = {
    "conv_filters": [[32, 8, 4], [64, 4, 2], [64, 3, 1]],
    "conv_padding": "valid",
    "conv_flatten": True,
    "post_fcnet_hiddens": [FEATURES],
}


def constant_rate(_progress):
    return 3e-4


def linear_layers(module):
    """Return the layers with weights of a module, in order."""
    kinds = (nn.Linear, nn.Conv2d)
    return [layer for layer in module.modules() if isinstance(layer, kinds)]


def parameters_of_layers(names, layers):
    """Return the name of each weight of a catalog model → the weight of the own net."""
    parameters = {}
    for name, layer in zip(names, layers, strict=True):
        parameters[f"{name}.weight"] = layer.weight
        parameters[f"{name}.bias"] = layer.bias
    return parameters


def own_parameters(own_policy):
    """Return the name of each weight of a catalog model → the weight of Stable-Baselines3's net."""
    actor = linear_layers(own_policy.mlp_extractor.policy_net)
    critic = linear_layers(own_policy.mlp_extractor.value_net)
    actor_prefix = "hidden"
    critic_prefix = "value_hidden"
    parameters = {}
    if isinstance(own_policy, RecurrentActorCriticPolicy):
        actor_prefix = "trunk.hidden"
        critic_prefix = "value_trunk.hidden"
        for side, lstm in (
            ("trunk", own_policy.lstm_actor),
            ("value_trunk", own_policy.lstm_critic),
        ):
            parameters[f"{side}.trunk.cell.weight_ih"] = lstm.weight_ih_l0
            parameters[f"{side}.trunk.cell.weight_hh"] = lstm.weight_hh_l0
            parameters[f"{side}.trunk.cell.bias"] = lstm.bias_ih_l0
            parameters[f"{side}.trunk.cell.bias_hh"] = lstm.bias_hh_l0
    convolutions = linear_layers(own_policy.features_extractor)
    if convolutions:
        names = [f"convs.layers.{number}" for number in range(len(convolutions) - 1)]
        parameters |= parameters_of_layers([*names, "hidden.layers.0"], convolutions)
    for prefix, layers in ((actor_prefix, actor), (critic_prefix, critic)):
        names = [f"{prefix}.layers.{number}" for number in range(len(layers))]
        parameters |= parameters_of_layers(names, layers)
    last_layers = [own_policy.action_net, own_policy.value_net]
    parameters |= parameters_of_layers(["outputs.logits", "outputs.value"], last_layers)
    if hasattr(own_policy, "log_std"):
        parameters["outputs.free_log_std.log_std"] = own_policy.log_std
    return parameters


# --- initial weights ------------------------------------------------------------------------------


def draw_weights(build, count):
    """Return the name of each weight → its values in several nets."""
    values = defaultdict(list)
    for _ in range(count):
        for name, weight in build().items():
            values[name].append(weight.detach().numpy().ravel())
    return {name: np.concatenate(draws) for name, draws in values.items()}


def assert_same_start(own_class, own_kwargs, catalog_class, config, spaces, builds):
    """Compare the initial values of each weight with a Kolmogorov-Smirnov test."""
    torch.manual_seed(0)

    def build_own_net():
        return own_parameters(own_class(*spaces, constant_rate, **own_kwargs))

    def build_catalog_net():
        policy = catalog_class(*spaces, constant_rate, config)
        return dict(policy.model.named_parameters())

    own_values = draw_weights(build_own_net, builds)
    values = draw_weights(build_catalog_net, builds)

    assert values.keys() == own_values.keys()
    for name, drawn in values.items():
        assert drawn.size == own_values[name].size
        # Two dozen weights are compared, so that a smaller value is rare.
        assert ks_2samp(drawn, own_values[name]).pvalue > 1e-4, name


NETS = [
    pytest.param(
        ActorCriticPolicy,
        {"net_arch": WIDTHS},
        CatalogPolicy,
        DENSE,
        (FIVE_NUMBERS, TWO_NUMBERS),
        id="vector",
    ),
    pytest.param(
        MaskableActorCriticPolicy,
        {"net_arch": WIDTHS},
        CatalogMaskablePolicy,
        DENSE,
        (FIVE_NUMBERS, THREE_ACTIONS),
        id="masks",
    ),
    pytest.param(
        RecurrentActorCriticPolicy,
        {"net_arch": WIDTHS, "lstm_hidden_size": LSTM_SIZE},
        CatalogRecurrentPolicy,
        LSTM,
        (FIVE_NUMBERS, THREE_ACTIONS),
        id="memory",
    ),
    pytest.param(
        ActorCriticPolicy,
        {"net_arch": WIDTHS, "ortho_init": False},
        CatalogPolicy,
        {**DENSE, "init": "fan_in_uniform"},
        (FIVE_NUMBERS, THREE_ACTIONS),
        id="PyTorch's start",
    ),
]


@pytest.mark.parametrize(("own_class", "own_kwargs", "catalog_class", "config", "spaces"), NETS)
def test_layers_start_like_the_own_net(own_class, own_kwargs, catalog_class, config, spaces):
    assert_same_start(own_class, own_kwargs, catalog_class, config, spaces, builds=50)


@pytest.mark.slow
@pytest.mark.parametrize(("own_class", "own_kwargs", "catalog_class", "config", "spaces"), NETS)
def test_layers_of_1000_nets_start_like_the_own_net(
    own_class, own_kwargs, catalog_class, config, spaces
):
    assert_same_start(own_class, own_kwargs, catalog_class, config, spaces, builds=1000)


def test_convolutions_start_like_the_own_net():
    own_kwargs = {"features_extractor_kwargs": {"features_dim": FEATURES}}
    # Stable-Baselines3's own CNN gets images with the channels first.
    own_image = Box(0, 255, (3, 36, 36), np.uint8)
    torch.manual_seed(0)

    own = draw_weights(
        lambda: own_parameters(
            ActorCriticCnnPolicy(own_image, THREE_ACTIONS, constant_rate, **own_kwargs)
        ),
        count=4,
    )
    values = draw_weights(
        lambda: dict(
            CatalogPolicy(
                IMAGE_36x36, THREE_ACTIONS, constant_rate, CONVOLUTIONS
            ).model.named_parameters()
        ),
        count=4,
    )

    assert values.keys() == own.keys()
    for name, drawn in values.items():
        assert ks_2samp(drawn, own[name]).pvalue > 1e-4, name


# --- updates --------------------------------------------------------------------------------------


@contextmanager
def no_training(algorithm):
    """Context manager in which an algorithm collects rollouts without learning from them."""
    with patch.object(algorithm, "train"):
        yield


def make_pair(own_class, own_policy, catalog_class, catalog_policy, own_kwargs, config, **settings):
    """Return Stable-Baselines3's algorithm with its own net, and one with the catalog's net and the
    same weights and rollout.
    """
    theirs = own_class(own_policy, "CartPole-v1", policy_kwargs=own_kwargs, **settings)
    ours = catalog_class(
        catalog_policy, "CartPole-v1", policy_kwargs={"model_config": config}, **settings
    )
    with torch.no_grad():
        weights = dict(ours.policy.model.named_parameters())
        for name, weight in own_parameters(theirs.policy).items():
            weights.pop(name).copy_(weight)
    assert not weights  # all were copied
    for algorithm in (theirs, ours):
        with no_training(algorithm):
            algorithm.learn(settings["n_steps"])
    names = ("observations", "actions", "rewards", "values", "log_probs", "advantages", "returns")
    for name in (*names, "episode_starts"):
        getattr(ours.rollout_buffer, name)[:] = getattr(theirs.rollout_buffer, name)
    return theirs, ours


def store_states(algorithm):
    """Store the states that a recurrent policy reaches at each step of a rollout."""
    buffer = algorithm.rollout_buffer
    policy = algorithm.policy
    zeros = (torch.zeros(policy.lstm_hidden_state_shape),) * 2
    states = RNNStates(zeros, zeros)
    for step in range(buffer.buffer_size):
        for side in ("pi", "vf"):
            h, c = getattr(states, side)
            getattr(buffer, f"hidden_states_{side}")[step] = h.detach().numpy()
            getattr(buffer, f"cell_states_{side}")[step] = c.detach().numpy()
        obs = torch.from_numpy(buffer.observations[step])
        starts = torch.from_numpy(buffer.episode_starts[step])
        with torch.no_grad():
            *_, states = policy.forward(obs, states, starts)


def assert_equal_weights(theirs, ours, before):
    weights = dict(ours.policy.model.named_parameters())
    for name, expected in own_parameters(theirs.policy).items():
        torch.testing.assert_close(weights[name], expected, rtol=1e-5, atol=1e-5, msg=name)
    # The updates have moved the weights by more than the tolerance.
    assert (weights["outputs.value.weight"] - before).abs().max() > 1e-3


SETTINGS = {"seed": 0, "device": "cpu", "n_steps": 64}
#: One batch in each of ten epochs.
TEN_EPOCHS = {**SETTINGS, "batch_size": 64, "n_epochs": 10}


def train_both(theirs, ours, calls=1):
    """Train both algorithms, and compare their weights."""
    before = ours.policy.model.outputs.value.weight.detach().clone()
    for algorithm in (theirs, ours):
        np.random.seed(0)  # shuffles the rollout
        for _ in range(calls):
            algorithm.train()
    assert_equal_weights(theirs, ours, before)


def test_ten_updates_of_ppo_equal_those_of_the_own_net():
    ppo = stable_baselines3.PPO
    theirs, ours = make_pair(
        ppo, "MlpPolicy", ppo, CatalogPolicy, {"net_arch": WIDTHS}, DENSE, **TEN_EPOCHS
    )

    train_both(theirs, ours)


def test_ten_updates_of_a2c_equal_those_of_the_own_net():
    a2c = stable_baselines3.A2C
    theirs, ours = make_pair(
        a2c, "MlpPolicy", a2c, CatalogPolicy, {"net_arch": WIDTHS}, DENSE, **SETTINGS
    )

    train_both(theirs, ours, calls=10)


def test_ten_updates_of_recurrent_ppo_equal_those_of_the_own_net():
    own_kwargs = {"net_arch": WIDTHS, "lstm_hidden_size": LSTM_SIZE}
    theirs, ours = make_pair(
        sb3_contrib.RecurrentPPO,
        "MlpLstmPolicy",
        RecurrentPPO,
        CatalogRecurrentPolicy,
        own_kwargs,
        LSTM,
        **TEN_EPOCHS,
    )
    store_states(ours)

    train_both(theirs, ours)


# --- files of earlier versions --------------------------------------------------------------------


def test_file_without_the_new_keys_keeps_its_layers(tmp_path):
    earlier_defaults = {"init": "normc", "memory_first": False, "lstm_two_biases": False}
    model = RecurrentPPO(
        CatalogRecurrentPolicy,
        "CartPole-v1",
        policy_kwargs={"model_config": {**LSTM, **earlier_defaults}},
        **SETTINGS,
    )
    # Earlier versions did not know the keys, and stored no values of them.
    model.policy_kwargs["model_config"] = LSTM
    for key in earlier_defaults:
        del model.rlcatalog_rules[key]
    model.save(tmp_path / "model.zip")

    loaded = RecurrentPPO.load(tmp_path / "model.zip", device="cpu")

    obs = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    actions, states = model.predict(obs, deterministic=True)
    loaded_actions, loaded_states = loaded.predict(obs, deterministic=True)
    np.testing.assert_array_equal(loaded_actions, actions)
    np.testing.assert_array_equal(loaded_states, states)
    config = loaded.policy.catalog_policy.config
    assert {key: config[key] for key in earlier_defaults} == earlier_defaults


def test_loaded_algorithm_keeps_the_new_defaults(tmp_path):
    model = RecurrentPPO(
        CatalogRecurrentPolicy,
        "CartPole-v1",
        policy_kwargs={"model_config": LSTM},
        **SETTINGS,
    )
    model.save(tmp_path / "model.zip")

    loaded = RecurrentPPO.load(tmp_path / "model.zip", device="cpu")

    config = loaded.policy.catalog_policy.config
    assert (config["init"], config["memory_first"], config["lstm_two_biases"]) == (
        "orthogonal",
        True,
        True,
    )
