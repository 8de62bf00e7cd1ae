"""Parts of models with a critic of its own, plain memories on both sides, and their weights.

Crosses: policy, ppo, fcnet, lstm, plain.
"""

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog.models import weights_of
from rlcatalog_ppo import PPO

CARTPOLE = "CartPole-v1"
OBS = spaces.Box(-1, 1, (4,), np.float32)
TWO_SIDES = spaces.Dict({"joints": OBS, "friction": spaces.Box(-1, 1, (4,), np.float32)})
GROUPS = {"policy": ["joints"], "critic": ["friction"]}

both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def build_with_critic(framework, critic=None, **config):
    """Return a policy whose trunk and critic have one hidden layer each."""
    config = {"fcnet_hiddens": [8], "critic": {"fcnet_hiddens": [8], **(critic or {})}, **config}
    return rlcatalog.build(OBS, spaces.Discrete(2), config, framework)


def names_by_part(policy):
    """Return part → how many weights it has, by the groups for an optimiser."""
    return {group["name"]: len(group["params"]) for group in policy.parameter_groups()}


@both_frameworks
def test_parts_of_both_sides_are_found(framework):
    policy = build_with_critic(framework, critic={"use_lstm": True, "lstm_cell_size": 4})

    # A dense layer has a kernel and a bias, and the LSTM one kernel for inputs and one for states.
    assert names_by_part(policy) == {
        "trunk": 2,
        "head": 2,
        "critic.trunk": 2,
        "critic.memory": 3,
        "critic.value": 2,
    }


@both_frameworks
def test_load_part_moves_a_trunk_into_a_critic(framework):
    source = rlcatalog.build(OBS, spaces.Discrete(3), {"fcnet_hiddens": [8]}, framework)
    policy = build_with_critic(framework)

    rlcatalog.load_part(policy, "critic.trunk", source, from_part="trunk")

    kernel = "hidden.layers.0.weight"
    before = weights_of(source.model)
    after = weights_of(policy.model)
    np.testing.assert_array_equal(after[f"critic.{kernel}"], before[kernel])
    assert not np.array_equal(after[f"policy.{kernel}"], before[kernel])


@both_frameworks
def test_frozen_trunk_of_a_critic_does_not_learn(framework):
    config = {
        "framework": framework,
        "num_envs": 2,
        "rollout_length": 16,
        "minibatch_size": 16,
        "seed": 0,
        "model": {"fcnet_hiddens": [8], "critic": {"fcnet_hiddens": [8]}},
    }
    config["model"]["freeze_parts"] = ["critic.trunk"]
    algo = PPO(CARTPOLE, config)
    before = weights_of(algo.policy.model)

    algo.train()

    after = weights_of(algo.policy.model)
    for name, weight in before.items():
        is_frozen = name.startswith("critic.")
        assert np.array_equal(after[name], weight) == is_frozen, name


def test_critic_with_a_gru_serves_a_policy_without_memory(tmp_path):
    from torch import nn

    critic = {"memory": nn.GRU, "memory_config": {"hidden_size": 4}}
    config = {"fcnet_hiddens": [8], "critic": critic, "obs_groups": GROUPS}
    policy = rlcatalog.build(TWO_SIDES, spaces.Discrete(2), config, "torch")
    obs = {name: np.full((3, 4), 0.5, np.float32) for name in TWO_SIDES}

    step = policy.act(obs, explore=False)

    assert [part.shape for part in policy.memory.initial] == [(4,)]
    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path, critic={"memory": nn.GRU})
    again = loaded.act(obs, explore=False)
    np.testing.assert_array_equal(again.value, step.value)
    np.testing.assert_array_equal(again.dist_inputs, step.dist_inputs)


def test_instance_is_refused_as_memory_of_both_sides():
    from torch import nn

    gru = nn.GRU(8, 4)
    with pytest.raises(rlcatalog.errors.ConfigError, match="memory='GRU' is the instance"):
        build_with_critic("torch", critic={"memory": gru}, memory=gru)
