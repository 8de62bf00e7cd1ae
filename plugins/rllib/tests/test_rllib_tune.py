"""Ray Tune over keys of the model config: each trial's module has its values."""

import gymnasium as gym
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.search.variant_generator import generate_variants
from torch import nn

import rlcatalog_rllib
from rlcatalog.errors import ConfigError


def configure(model):
    """Configure PPO for CartPole, with rollouts of eight steps."""
    config = PPOConfig().env_runners(num_env_runners=0, rollout_fragment_length=8)
    config.training(train_batch_size_per_learner=8, minibatch_size=8, num_epochs=1)
    return rlcatalog_rllib.configure(config, "CartPole-v1", model=model)


def configs_of_trials(config):
    """Return the config of each trial, as Tune passes it to an algorithm."""
    variants = [variant for _, variant in generate_variants(config.to_dict())]
    return [PPOConfig().update_from_dict(variant) for variant in variants]


def build_policies(config):
    """Return the policy of each trial."""
    env = gym.make("CartPole-v1")
    return [trial.get_rl_module_spec(env=env).build().policy for trial in configs_of_trials(config)]


def test_grid_searches_are_crossed():
    config = configure(
        {
            "fcnet_hiddens": tune.grid_search([[8], [9, 5]]),
            "use_lstm": tune.grid_search([False, True]),
        }
    )

    configs = [policy.config for policy in build_policies(config)]

    pairs = [(config["fcnet_hiddens"], config["use_lstm"]) for config in configs]
    assert sorted(pairs) == [([8], False), ([8], True), ([9, 5], False), ([9, 5], True)]


def test_model_of_a_trial_has_the_memory_of_its_config():
    config = configure(
        {"use_lstm": tune.grid_search([False, True]), "lstm_cell_size": tune.choice([6])}
    )

    without_lstm, with_lstm = build_policies(config)

    assert len(without_lstm.memory.initial) == 0
    assert with_lstm.memory.initial[0].shape == (6,)


def test_keys_without_a_search_are_the_same_in_each_trial():
    config = configure({"fcnet_hiddens": tune.grid_search([[8], [9]]), "fcnet_activation": "relu"})

    first, second = build_policies(config)

    assert first.config["fcnet_activation"] == "relu"
    assert second.config["fcnet_activation"] == "relu"


def test_runner_and_learner_of_a_trial_have_the_same_config(rllib):
    config = configure(
        {"use_lstm": tune.grid_search([False, True]), "lstm_cell_size": tune.choice([6])}
    )

    for trial_config in configs_of_trials(config):
        runner, _, learner_module = rllib.make_training(trial_config)
        runner.sample()

        assert dict(learner_module.policy.config) == dict(runner.module.policy.config)


def test_keys_passed_to_ray_may_be_searched():
    config = PPOConfig().rl_module(model_config={"fcnet_hiddens": tune.grid_search([[7], [6]])})

    policies = build_policies(rlcatalog_rllib.configure(config, "CartPole-v1"))

    assert [policy.config["fcnet_hiddens"] for policy in policies] == [[7], [6]]


class Net(nn.Module):
    """A layer of as many units as its two arguments say."""

    def __init__(self, space, hidden=8, *, inner):
        super().__init__()
        self.layer = nn.Linear(space.shape[0], hidden + inner["more"])

    def forward(self, x):
        return self.layer(x)


def test_search_inside_custom_model_config_reaches_each_trial():
    # The model has a layer of `hidden + inner["more"]` units.
    arguments = {
        "hidden": tune.grid_search([8, 16]),
        "inner": {"more": tune.grid_search([1, 2])},
    }
    config = configure({"custom_model": Net, "custom_model_config": arguments})

    policies = build_policies(config)

    widths = [policy.model.module.layer.out_features for policy in policies]
    assert sorted(widths) == [8 + 1, 8 + 2, 16 + 1, 16 + 2]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        pytest.param(
            {"observation_filter": tune.grid_search(["NoFilter", "MeanStdFilter"])},
            "a search over observation_filter",
            id="filter",
        ),
        pytest.param(
            {"fcnet_hiddens": tune.grid_search([])},
            "hiddens is an empty tune.grid_search",
            id="no values",
        ),
        pytest.param(
            {"fcnet_hiddens": tune.sample_from(lambda spec: [8])},
            "fcnet_hiddens is a tune.sample_from",
            id="sample_from",
        ),
        pytest.param(
            {"fcnet_hiddens": tune.grid_search([[8], "wide"])}, "fcnet_hiddens", id="wrong value"
        ),
        pytest.param(
            {"custom_model_config": {"hidden": {"grid_search": []}}},
            r"hidden'\] is an empty tune.grid_search",
            id="no values in custom_model_config",
        ),
    ],
)
def test_configure_rejects_impossible_searches(model, message):
    with pytest.raises(ConfigError, match=message):
        configure(model)


def test_configure_rejects_a_search_that_changes_the_views(monkeypatch):
    # `configure` samples the choice several times, and must see both values.
    samples = iter([True, False] * 4)
    monkeypatch.setattr(tune.search.sample.Domain, "sample", lambda self, *_, **__: next(samples))

    with pytest.raises(ConfigError, match="a search over lstm_use_prev_action"):
        configure({"use_lstm": True, "lstm_use_prev_action": tune.choice([True, False])})


def test_trials_of_a_critic_have_the_default_initializers():
    critic = {"fcnet_hiddens": tune.grid_search([[64, 64], [64, 64, 64]])}
    config = configure({"fcnet_hiddens": [64, 64], "critic": critic})

    policies = build_policies(config)

    assert [len(policy.model.critic.hidden.layers) for policy in policies] == [2, 3]
    for policy in policies:
        # PyTorch's default, as in Ray's own nets: uniform within 1 / sqrt(64 inputs).
        weight = policy.model.critic.hidden.layers[1].weight
        assert 0.9 / 8 < float(weight.detach().abs().max()) <= 1 / 8
