"""Configs and models that RLlib cannot run, states of other modules, and statistics of filters
from several runners.
"""

import platform

import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import torch
from engine_models import WithUpdateOps
from gymnasium.spaces import Box, Discrete
from ray.rllib.algorithms.cql import CQLConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.iql.iql import IQLConfig
from ray.rllib.algorithms.ppo import PPOConfig

import rlcatalog
import rlcatalog_rllib
from rlcatalog import ViewRequirement
from rlcatalog.choice import PartAddresses
from rlcatalog.errors import (
    ConfigError,
    MissingPluginError,
    ModelContractError,
    NotServedError,
    SavedPolicyError,
    UnknownConfigKeyError,
    UnknownNameError,
)
from rlcatalog_rllib.filters import merged, since
from rlcatalog_rllib.recipe import Recipe, build_policy
from rlcatalog_rllib.refusals import check_q_served, check_served
from rlcatalog_torch import FullyConnectedNetwork

FOUR_NUMBERS = Box(-1, 1, (4,), np.float32)
TWO_CHOICES = Discrete(2)


# --- configs --------------------------------------------------------------------------------------


def make_config_of_old_stack():
    return PPOConfig().api_stack(
        enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False
    )


@pytest.mark.parametrize(
    ("make_config", "message"),
    [
        pytest.param(
            CQLConfig,  # derives from SACConfig
            "CQLConfig is not supported. Supported:",
            id="CQL",
        ),
        pytest.param(IQLConfig, "IQLConfig is not supported", id="IQL"),  # from MARWILConfig
        pytest.param(
            lambda: PPOConfig().framework("tf2"), "framework='tf2'.*only PyTorch", id="framework"
        ),
        pytest.param(make_config_of_old_stack, "old API stack", id="old stack"),
        pytest.param(lambda: DQNConfig().training(noisy=True), "noisy=True", id="noisy"),
    ],
)
def test_unsupported_algorithms_and_settings_are_rejected(make_config, message):
    with pytest.raises(NotServedError, match=message):
        rlcatalog_rllib.configure(make_config(), "CartPole-v1")


def test_configure_rejects_an_unknown_key():
    with pytest.raises(UnknownConfigKeyError, match="fcnet_hiddens"):
        rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", model={"fcnet_hidens": [8]})


def test_configure_rejects_an_unknown_environment():
    with pytest.raises(UnknownNameError, match="CartPole-v7"):
        rlcatalog_rllib.configure(PPOConfig(), "CartPole-v7")


def test_configure_needs_an_environment():
    with pytest.raises(ConfigError, match="expected a Gymnasium id"):
        rlcatalog_rllib.configure(PPOConfig())


def test_configuring_again_takes_the_new_model():
    config = rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", model={"fcnet_hiddens": [8]})

    config = rlcatalog_rllib.configure(config, model={"fcnet_hiddens": [9]})

    assert config.rl_module_spec.model_config["fcnet_hiddens"] == [9]
    assert config.env == "CartPole-v1"


# --- models ---------------------------------------------------------------------------------------


class ReadsNextReward(FullyConnectedNetwork):
    """Requests the reward that its action will bring, which only a finished rollout contains."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.view_requirements["rewards"] = ViewRequirement(shift=0, used_for_compute_actions=False)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ReadsNextReward, "NextReward requests the view 'rewards'"),
        (WithUpdateOps, r"WithUpdateOps\.update_ops\(\)"),
    ],
)
def test_models_with_unsupported_features_are_rejected(model, message):
    spec = rlcatalog_rllib.spec(FOUR_NUMBERS, TWO_CHOICES, {"custom_model": model})

    with pytest.raises(NotServedError, match=message):
        spec.build()


class ReadsEarlierState(FullyConnectedNetwork):
    """Requests its state of two steps ago."""

    def __init__(self, *args):
        super().__init__(*args)
        space = Box(-1, 1, (3,), np.float32)
        self.view_requirements["state_in_0"] = ViewRequirement("state_out_0", shift=-2, space=space)


def test_views_that_skip_states_are_rejected():
    policy = build_policy(Recipe({"custom_model": ReadsEarlierState}), FOUR_NUMBERS, TWO_CHOICES)

    with pytest.raises(NotServedError, match="view of its states that skips some") as caught:
        check_served(policy)

    assert "ReadsEarlierState" in str(caught.value)
    assert "shift='-n:-1'" in str(caught.value)


def test_dqn_rejects_a_critic():
    policy = rlcatalog.build(FOUR_NUMBERS, TWO_CHOICES, {"critic": {}}, "torch")

    with pytest.raises(NotServedError, match="RLlib's DQN learns"):
        check_q_served(policy, settings={})


def test_missing_plugin_error_names_the_node_and_the_version():
    # A recipe that another process made, which has the plugin.
    recipe = Recipe(
        model={},
        pins=PartAddresses(
            {"trunk": "example-compass/example_compass_glu"}, versions={"example-compass": "3.1"}
        ),
    )

    with pytest.raises(MissingPluginError, match="example-compass") as caught:
        build_policy(recipe, FOUR_NUMBERS, TWO_CHOICES)

    message = str(caught.value)
    assert "not installed" in message
    assert platform.node() in message
    assert "example-compass 3.1" in message


# --- states of modules ----------------------------------------------------------------------------


def build_module(observation_space=FOUR_NUMBERS, action_space=TWO_CHOICES, **model):
    """Return a module with a layer of 8 units, unless the model config says otherwise."""
    config = {"fcnet_hiddens": [8], **model}
    return rlcatalog_rllib.spec(observation_space, action_space, config).build()


def test_module_takes_the_state_of_an_equal_module():
    module = build_module()
    other = build_module()

    other.set_state(module.get_state())

    for weight, expected in zip(other.parameters(), module.parameters(), strict=True):
        assert torch.equal(weight, expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"observation_space": Box(-1, 1, (3,), np.float32)},
            r"space is .*\(3,\).*, but .*\(4,\).* here",
            id="shape",
        ),
        pytest.param(
            {"observation_space": Box(-2, 1, (4,), np.float32)},
            "environment: its observation space",
            id="bounds",
        ),
        pytest.param(
            {"action_space": Discrete(2, start=1)},
            "different environment: its action space",
            id="actions",
        ),
        pytest.param(
            {"use_lstm": True},
            r"memory 'lstm', but here .*'fcnet'\.",
            id="parts",
        ),
        pytest.param(
            {"fcnet_hiddens": [9]},
            r"0\.weight: \(9, 4\) instead of \(8, 4\)",
            id="sizes",
        ),
        pytest.param({"vf_share_layers": False}, r"unknown: \['model\.value_hidden", id="layers"),
        pytest.param(
            {"critic": {}},
            "critic's parts are trunk 'fcnet', but",
            id="critic",
        ),
    ],
)
def test_state_of_an_unequal_module_is_rejected(changes, message):
    state = build_module(**changes).get_state()

    with pytest.raises(SavedPolicyError, match=message):
        build_module().set_state(state)


def test_state_of_another_class_of_module_is_rejected():
    with pytest.raises(SavedPolicyError, match=r"Missing: \['model\."):
        build_module().set_state({"encoder.weight": np.zeros(3)})


def test_to_policy_rejects_other_objects():
    with pytest.raises(ModelContractError, match="this one's module is int"):
        rlcatalog_rllib.to_policy(3)


# --- filters --------------------------------------------------------------------------------------


def compute_statistics(rows):
    """Return the statistics of a filter that has seen rows: count, mean, and the sum of squared
    deviations.
    """
    mean = rows.mean(0)
    return {"n": np.array(len(rows)), "mean": mean, "m2": ((rows - mean) ** 2).sum(0)}


@pytest.fixture
def three_samples():
    """Rows that all runners have seen, and rows that each of two runners has seen since then."""
    rng = np.random.default_rng(0)
    old_rows = rng.normal(0, 1, (40, 3))
    new_rows_of_first = rng.normal(1, 2, (7, 3))
    new_rows_of_second = rng.normal(2, 3, (23, 3))
    return old_rows, new_rows_of_first, new_rows_of_second


def test_statistics_since_a_state_are_those_of_the_new_rows(three_samples):
    old_rows, new_rows, _ = three_samples
    before = compute_statistics(old_rows)
    after = compute_statistics(np.concatenate([old_rows, new_rows]))

    statistics = since(before, after)

    expected = compute_statistics(new_rows)
    np.testing.assert_allclose(statistics["m2"], expected["m2"])
    np.testing.assert_allclose(statistics["mean"], expected["mean"])


def test_merged_statistics_are_those_of_all_rows(three_samples):
    statistics = [compute_statistics(rows) for rows in three_samples]
    # What a runner has seen since a state, if it has seen no new rows.
    no_rows = since(statistics[0], statistics[0])

    total = merged([*statistics, no_rows])

    all_rows = np.concatenate(three_samples)
    expected = compute_statistics(all_rows)
    assert total["n"] == expected["n"]
    np.testing.assert_allclose(total["mean"], expected["mean"])
    # The sum of squared deviations from the mean.
    np.testing.assert_allclose(total["m2"], expected["m2"])


def test_statistics_of_another_form_are_rejected():
    without_m2 = {"n": np.array(1), "mean": np.zeros(2)}

    with pytest.raises(NotServedError, match=r"lacks m2.*env_to_module\.MeanStdFilter"):
        merged([without_m2])


def make_runners_with_filter(rllib):
    """Return three runners whose filters have seen nothing."""
    model = {"observation_filter": "MeanStdFilter"}
    config = rllib.configure("CartPole-v1", model, steps_per_env=30)
    return [rllib.make_runner(config) for _ in range(3)]


def connector_state(runner):
    """Return the state of a runner's connectors, of which `EncodeObservations` has a filter."""
    return runner.get_state(components="env_to_module_connector")["env_to_module_connector"]


def count_rows(state):
    """Return how many rows the filter in a connector's state has seen."""
    return int(state["EncodeObservations"]["default_policy"]["filter"]["n"])


def test_filter_counts_the_rows_of_several_runners(rllib):
    local, first, second = make_runners_with_filter(rllib)
    first.sample()
    second.sample()

    states = [connector_state(first), connector_state(second)]
    merged_state = local._env_to_module.merge_states(states)

    first_count, second_count = [count_rows(state) for state in states]
    assert first_count > 60  # 30 steps in each of two environments, and first observations
    assert count_rows(merged_state) == first_count + second_count


def test_filter_learns_nothing_without_exploring(rllib):
    runner, *_ = make_runners_with_filter(rllib)
    runner.sample()
    count_before = count_rows(connector_state(runner))

    runner.sample(num_timesteps=10, explore=False)

    assert count_rows(connector_state(runner)) == count_before


def test_to_policy_of_a_module_needs_its_filter(rllib):
    runner, *_ = make_runners_with_filter(rllib)

    with pytest.raises(ModelContractError, match=r"to_policy\(\) needs the algorithm"):
        rlcatalog_rllib.to_policy(runner.module)
