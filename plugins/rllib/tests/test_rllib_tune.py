"""Ray Tune over keys of the model config: each trial's config gives the module its values."""

import gymnasium as gym
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.tune.search.variant_generator import generate_variants

import rlcatalog_rllib
from rlcatalog.errors import ConfigError


def trials(config):
    """Return the config of each trial, as Tune hands it to an algorithm."""
    for _, variant in generate_variants(config.to_dict()):
        yield PPOConfig().update_from_dict(variant)


def configured(model):
    config = (
        PPOConfig()
        .env_runners(num_env_runners=0, rollout_fragment_length=8)
        .training(train_batch_size_per_learner=8, minibatch_size=8, num_epochs=1)
    )
    return rlcatalog_rllib.configure(config, "CartPole-v1", model=model)


def test_each_trial_builds_its_own_model():
    model = {
        "fcnet_hiddens": tune.grid_search([[8], [9, 5]]),
        "use_lstm": tune.grid_search([False, True]),
        "lstm_cell_size": tune.choice([6]),
        "fcnet_activation": "relu",
    }
    found = []
    for config in trials(configured(model)):
        runner = SingleAgentEnvRunner(config=config)
        module = runner.module
        learner = config.build_learner(env=runner.env, spaces=runner.get_spaces())
        assert dict(learner.module["default_policy"].policy.config) == dict(module.policy.config)
        runner.sample()
        assert module.policy.config["fcnet_activation"] == "relu"
        found.append((module.policy.config["fcnet_hiddens"], bool(module.get_initial_state())))
        if module.get_initial_state():
            assert module.policy.memory.initial[0].shape == (6,)
    assert sorted(found) == [([8], False), ([8], True), ([9, 5], False), ([9, 5], True)]


def test_keys_given_to_ray_may_be_searched_as_well():
    config = PPOConfig().rl_module(model_config={"fcnet_hiddens": tune.grid_search([[7], [6]])})
    config = rlcatalog_rllib.configure(config, "CartPole-v1")
    env = gym.make("CartPole-v1")
    widths = [
        trial.get_rl_module_spec(env=env).build().policy.config["fcnet_hiddens"]
        for trial in trials(config)
    ]
    assert widths == [[7], [6]]


def test_search_inside_custom_model_config_reaches_each_trial():
    from torch import nn

    class Net(nn.Module):
        def __init__(self, space, hidden=8, *, inner):
            super().__init__()
            self.layer = nn.Linear(space.shape[0], hidden + inner["more"])

        def forward(self, x):
            return self.layer(x)

    searches = {
        "hidden": tune.grid_search([8, 16]),
        "inner": {"more": tune.grid_search([1, 2]), "note": "kept"},
    }
    config = configured({"custom_model": Net, "custom_model_config": searches})
    env = gym.make("CartPole-v1")
    widths = [
        trial.get_rl_module_spec(env=env).build().policy.model.module.layer.out_features
        for trial in trials(config)
    ]
    assert sorted(widths) == [9, 10, 17, 18]  # hidden + more


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"observation_filter": tune.grid_search(["NoFilter", "MeanStdFilter"])},
            "a search over observation_filter",
        ),
        (
            {"use_lstm": True, "lstm_use_prev_action": tune.choice([True, False])},
            "a search over lstm_use_prev_action",
        ),
        ({"fcnet_hiddens": tune.grid_search([])}, "fcnet_hiddens is an empty tune.grid_search"),
        (
            {"fcnet_hiddens": tune.sample_from(lambda spec: [8])},
            "fcnet_hiddens is a tune.sample_from",
        ),
        ({"fcnet_hiddens": tune.grid_search([[8], "wide"])}, "fcnet_hiddens"),
        (
            {"custom_model_config": {"hidden": {"grid_search": []}}},
            r"custom_model_config\['hidden'\] is an empty tune.grid_search",
        ),
    ],
    ids=["filter", "views", "nothing", "sample_from", "wrong value", "nothing inside"],
)
def test_what_cannot_be_searched_is_said_beforehand(model, message, monkeypatch):
    draws = iter([True, False] * 4)
    monkeypatch.setattr(tune.search.sample.Domain, "sample", lambda self, *_, **__: next(draws))
    with pytest.raises(ConfigError, match=message):
        configured(model)
