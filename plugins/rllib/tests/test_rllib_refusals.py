"""What Ray's API has no place for, and what is not served, is refused by name before
anything runs.
"""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
from ray.rllib.algorithms.cql import CQLConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig

import rlcatalog_rllib
from rlcatalog import ViewRequirement
from rlcatalog.choice import Pins
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
from rlcatalog_rllib.refusals import check_served
from rlcatalog_torch import FullyConnectedNetwork

OBS, ACTIONS = gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(2)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            CQLConfig,
            "CQLConfig is not supported. Supported: PPO, APPO, IMPALA, DQN, SAC, BC and MARWIL",
        ),
        (lambda: PPOConfig().framework("tf2"), "framework='tf2'.*only PyTorch"),
        (
            lambda: PPOConfig().api_stack(
                enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False
            ),
            "old API stack",
        ),
        (lambda: DQNConfig().training(noisy=True), "noisy=True"),
    ],
    ids=["algorithm", "framework", "old stack", "noisy"],
)
def test_an_algorithm_or_setting_that_is_not_served_is_named(config, says):
    with pytest.raises(NotServedError, match=says):
        rlcatalog_rllib.configure(config(), "CartPole-v1")


def test_a_wrong_model_config_is_found_where_the_run_begins():
    with pytest.raises(UnknownConfigKeyError, match="fcnet_hiddens"):
        rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", model={"fcnet_hidens": [8]})
    with pytest.raises(UnknownNameError, match="CartPole-v7"):
        rlcatalog_rllib.configure(PPOConfig(), "CartPole-v7")
    with pytest.raises(ConfigError, match="expected a Gymnasium id"):
        rlcatalog_rllib.configure(PPOConfig())


def test_configuring_twice_takes_the_later_model():
    config = rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", model={"fcnet_hiddens": [8]})
    config = rlcatalog_rllib.configure(config, model={"fcnet_hiddens": [9]})
    assert config.rl_module_spec.model_config["fcnet_hiddens"] == [9]
    assert config.env == "CartPole-v1"


class Ahead(FullyConnectedNetwork):
    """Asks for the reward that its action will bring."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.view_requirements["rewards"] = ViewRequirement(shift=0, used_for_compute_actions=False)


class Updating(FullyConnectedNetwork):
    """Wants something done after each optimiser step."""

    def update_ops(self):
        return [lambda: None]


def built(model):
    return rlcatalog_rllib.spec(OBS, ACTIONS, {"custom_model": model}).build()


def test_a_view_that_only_a_finished_rollout_has_is_named():
    with pytest.raises(NotServedError, match="Ahead requests the view 'rewards'"):
        built(Ahead)


def test_work_after_each_optimiser_step_is_named():
    with pytest.raises(NotServedError, match=r"Updating\.update_ops\(\)"):
        built(Updating)


# --- plugins --------------------------------------------------------------------------------------


def test_a_plugin_missing_on_a_worker_is_named_with_the_node():
    import platform

    recipe = Recipe(
        {},
        Pins({"trunk": "example-compass/example_compass_glu"}, versions={"example-compass": "3.1"}),
    )
    with pytest.raises(MissingPluginError) as caught:
        build_policy(recipe, OBS, ACTIONS)
    for said in ("example-compass", "not installed", platform.node(), "example-compass 3.1"):
        assert said in str(caught.value)


# --- checkpoints ----------------------------------------------------------------------------------


def module_of(obs=OBS, actions=ACTIONS, **model):
    return rlcatalog_rllib.spec(obs, actions, {"fcnet_hiddens": [8], **model}).build()


def test_a_state_goes_back_where_it_came_from():
    import torch

    one, two = module_of(), module_of()
    two.set_state(one.get_state())
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            {"obs": gym.spaces.Box(-1, 1, (3,), np.float32)},
            r"its observation space is Box.*\(3,\).*, but Box.*\(4,\).* here",
        ),
        (
            {"obs": gym.spaces.Box(-2, 1, (4,), np.float32)},
            "a different environment: its observation space",
        ),
        ({"actions": gym.spaces.Discrete(2, start=1)}, "a different environment: its action space"),
        (
            {"use_lstm": True},
            r"a different model: its parts are trunk 'fcnet', memory 'lstm', but here .*'fcnet'\.",
        ),
        ({"fcnet_hiddens": [9]}, r"hidden\.layers\.0\.weight: \(9, 4\) instead of \(8, 4\)"),
        ({"vf_share_layers": False}, r"unknown: \['model\.value_hidden"),
    ],
    ids=["shape", "bounds", "actions", "parts", "sizes", "layers"],
)
def test_a_state_from_elsewhere_is_refused(other, says):
    with pytest.raises(SavedPolicyError, match=says):
        module_of().set_state(module_of(**other).get_state())


def test_a_state_of_another_kind_of_module_is_refused():
    with pytest.raises(SavedPolicyError, match=r"Missing: \['model\."):
        module_of().set_state({"encoder.weight": np.zeros(3)})


def test_a_policy_is_made_of_what_configure_set_up():
    with pytest.raises(ModelContractError, match="this one's module is int"):
        rlcatalog_rllib.to_policy(3)


# --- filters --------------------------------------------------------------------------------------


def moments(rows):
    return {
        "n": np.array(len(rows)),
        "mean": rows.mean(0),
        "m2": ((rows - rows.mean(0)) ** 2).sum(0),
    }


def test_statistics_of_several_runners_are_those_of_all_they_saw():
    rng = np.random.default_rng(0)
    begun, one, two = (rng.normal(i, 1 + i, (n, 3)) for i, n in enumerate((40, 7, 23)))
    grown = [moments(np.concatenate([begun, rows])) for rows in (one, two, begun[:0])]
    parts = [since(moments(begun), state) for state in grown]
    for found, truth in zip(parts, (one, two), strict=False):
        np.testing.assert_allclose(found["m2"], moments(truth)["m2"])
        np.testing.assert_allclose(found["mean"], moments(truth)["mean"])
    total, truth = merged([moments(begun), *parts]), moments(np.concatenate([begun, one, two]))
    for name in truth:
        np.testing.assert_allclose(total[name], truth[name])


def test_statistics_of_another_form_name_rays_own_filter():
    with pytest.raises(NotServedError, match=r"lacks m2.*env_to_module\.MeanStdFilter"):
        merged([{"n": np.array(1), "mean": np.zeros(2)}])


def test_a_filter_learns_while_exploring_and_its_runners_share_what_they_learned(bench):
    config = bench.config("CartPole-v1", {"observation_filter": "MeanStdFilter"}, fragment=30)
    local, *runners = (bench.runner(config) for _ in range(3))
    seen = []
    for runner in runners:
        runner.sample()
        (state,) = runner.get_state(components="env_to_module_connector")[
            "env_to_module_connector"
        ].values()
        seen.append(int(state["default_policy"]["filter"]["n"]))
    assert min(seen) > 60
    states = [
        r.get_state(components="env_to_module_connector")["env_to_module_connector"]
        for r in runners
    ]
    together = local._env_to_module.merge_states(states)
    assert int(together["EncodeObservations"]["default_policy"]["filter"]["n"]) == sum(seen)
    for runner in (local, *runners):
        runner.set_state({"env_to_module_connector": together})
    runners[0].sample(num_timesteps=10, explore=False)  # evaluation teaches nothing
    again = [
        r.get_state(components="env_to_module_connector")["env_to_module_connector"]
        for r in runners
    ]
    merged_again = local._env_to_module.merge_states(again)["EncodeObservations"]
    assert int(merged_again["default_policy"]["filter"]["n"]) == sum(seen)
    with pytest.raises(ModelContractError, match=r"to_policy\(\) needs the algorithm"):
        rlcatalog_rllib.to_policy(runners[0].module)


class Skipping(FullyConnectedNetwork):
    """Asks for its state of two steps ago."""

    def __init__(self, *args):
        super().__init__(*args)
        space = gym.spaces.Box(-1, 1, (3,), np.float32)
        self.view_requirements["state_in_0"] = ViewRequirement("state_out_0", shift=-2, space=space)


def test_views_of_states_that_leave_some_out_are_refused():
    policy = build_policy(Recipe({"custom_model": Skipping}), OBS, ACTIONS)
    with pytest.raises(
        NotServedError, match=r"Skipping has a view of its states that skips some.*shift='-n:-1'"
    ):
        check_served(policy)
