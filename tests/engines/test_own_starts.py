"""A policy that rlcatalog's PPO, A2C or PG builds starts like the networks of Stable-Baselines3 for
PPO: with orthogonal weights, and with the memory before the dense layers.

Crosses: ppo, sb3, fcnet, lstm, policy.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import torch
from gymnasium.spaces import Box, Discrete
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from scipy.stats import ks_2samp
from stable_baselines3.common.policies import ActorCriticPolicy

import rlcatalog
from rlcatalog_ppo import A2C, PG, PPO

CARTPOLE = (Box(-1, 1, (4,), np.float32), Discrete(2))
NET = {"fcnet_hiddens": [6, 4]}
LSTM = {**NET, "use_lstm": True, "lstm_cell_size": 4}
#: Each weight of a catalog model that shares its layers with the value → the weight of the own net.
LAYERS = {
    "hidden.layers.0": "mlp_extractor.policy_net.0",
    "hidden.layers.1": "mlp_extractor.policy_net.2",
    "outputs.logits": "action_net",
    "outputs.value": "value_net",
}
CELL = {
    "trunk.cell.weight_ih": "lstm_actor.weight_ih_l0",
    "trunk.cell.weight_hh": "lstm_actor.weight_hh_l0",
    "trunk.cell.bias": "lstm_actor.bias_ih_l0",
    "trunk.cell.bias_hh": "lstm_actor.bias_hh_l0",
}
BUILDS = 30
#: A small rollout in one environment.
SMALL = {"num_envs": 1, "rollout_length": 8, "minibatch_size": 8}


def names_of(own_names):
    names = {}
    for name, own_name in own_names.items():
        for kind in ("weight", "bias"):
            names[f"{name}.{kind}"] = f"{own_name}.{kind}"
    return names


def draw_own(own_class, **kwargs):
    """Return the values of each weight of Stable-Baselines3's net in several nets."""
    values = defaultdict(list)
    for _ in range(BUILDS):
        policy = own_class(*CARTPOLE, lambda _: 1e-3, net_arch=[6, 4], **kwargs)
        for name, weight in policy.named_parameters():
            values[name].append(weight.detach().numpy().ravel())
    return {name: np.concatenate(draws) for name, draws in values.items()}


def draw_ours(algorithm, model, framework):
    """Return the values of each weight of the policies that an algorithm of ours builds."""
    values = defaultdict(list)
    for seed in range(BUILDS):
        config = {**SMALL, "seed": seed, "framework": framework, "model": model}
        if algorithm is not PPO:
            del config["minibatch_size"]
        algo = algorithm("CartPole-v1", config)
        for name, weight in algo.policy.model.get_weights().items():
            values[name].append(weight.ravel())
        algo.stop()
    return {name: np.concatenate(draws) for name, draws in values.items()}


def assert_same_start(values, own_values, names):
    assert values.keys() == names.keys()
    for name, own_name in names.items():
        assert ks_2samp(values[name], own_values[own_name]).pvalue > 1e-4, name


@pytest.mark.parametrize(
    ("algorithm", "framework"), [(PPO, "torch"), (PPO, "tf"), (A2C, "torch"), (PG, "torch")]
)
def test_layers_start_like_the_own_net(algorithm, framework):
    torch.manual_seed(0)
    own_values = draw_own(ActorCriticPolicy)

    values = draw_ours(algorithm, NET, framework)

    names = names_of(LAYERS)
    if algorithm is PG:
        names = {name: own for name, own in names.items() if name in values}
    assert_same_start(values, own_values, names)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_lstm_starts_like_the_own_net(framework):
    torch.manual_seed(0)
    own_values = draw_own(RecurrentActorCriticPolicy, lstm_hidden_size=4)

    values = draw_ours(PPO, LSTM, framework)

    assert_same_start(values, own_values, {**names_of(LAYERS), **CELL})


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param({}, ("orthogonal", False, False), id="no memory"),
        pytest.param({"use_lstm": True}, ("orthogonal", True, True), id="memory"),
        pytest.param(
            {"critic": {"use_lstm": True}}, ("orthogonal", True, True), id="memory of the critic"
        ),
        pytest.param(
            {"use_lstm": True, "init": "normc", "memory_first": False},
            ("normc", False, True),
            id="given keys win",
        ),
    ],
)
def test_policy_has_the_resolved_keys(model, expected):
    algo = PPO("CartPole-v1", {**SMALL, "model": {**NET, **model}})

    config = algo.policy.config

    assert (config["init"], config["memory_first"], config["lstm_two_biases"]) == expected
    algo.stop()


def test_critic_has_the_init_of_the_policy():
    algo = PPO("CartPole-v1", {**SMALL, "model": {**NET, "critic": {}}})
    weights = algo.policy.model.get_weights()

    # Orthogonal rows, times the gains of Stable-Baselines3.
    rows = weights["critic.hidden.layers.1.weight"]
    np.testing.assert_allclose(rows @ rows.T, 2 * np.eye(len(rows)), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(weights["value.weight"]), 1, rtol=1e-5)
    algo.stop()


def test_saved_policy_keeps_the_start_of_its_engine(tmp_path):
    algo = PPO("CartPole-v1", {**SMALL, "model": LSTM})
    algo.policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path)

    keys = ("init", "memory_first", "lstm_two_biases")
    assert [loaded.config[key] for key in keys] == [algo.policy.config[key] for key in keys]
    algo.stop()


def test_build_and_a_policy_of_build_keep_normc():
    policy = rlcatalog.build(env="CartPole-v1", config=LSTM, framework="torch")

    algo = PPO("CartPole-v1", SMALL, policy=policy)

    assert policy.config["init"] == "normc"
    assert not policy.config["memory_first"]
    assert algo.policy.config["init"] == "normc"
    algo.stop()


def test_explanation_names_the_init_of_an_engine():
    algo = PPO("CartPole-v1", {**SMALL, "model": NET})

    text = algo.policy.explain().text()

    assert "initial weights" in text
    assert "orthogonal (init)" in text
    assert "(init)" not in rlcatalog.explain(*CARTPOLE, NET).text()
    algo.stop()
