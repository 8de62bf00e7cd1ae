"""rsl_rl's PPO with a catalog policy: its weights, groups, filter, checkpoints and conversion."""

import numpy as np
import pytest
import torch

pytest.importorskip("rsl_rl", reason="rsl_rl is not installed; `make test` runs it apart")

from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from rsl_rl_runs import RslEnv, catalog_config, learn, make_runner
from tensor_envs import RandomGroupsEnv, TensorCartPole, TensorPendulum
from tensordict import TensorDict
from torch import nn
from users_losses import WithCustomLoss

import rlcatalog
from rlcatalog.errors import (
    ActionMaskError,
    ConfigError,
    NonFiniteError,
    NotServedError,
    UnsupportedSpaceError,
)
from rlcatalog_rsl_rl import CatalogActor, CatalogEnv, to_policy
from rlcatalog_torch import FreeLogStd

SMALL = {"fcnet_hiddens": [16]}
LSTM = {**SMALL, "use_lstm": True, "lstm_cell_size": 8}
FREE = Box(-np.inf, np.inf, (2,), np.float32)
VECTOR = Box(-3, 3, (5,), np.float32)
#: What only a simulator knows is in a group of its own.
SIDES = Dict({"joints": VECTOR, "friction": Box(0, 1, (1,), np.float32)})
SIDE_GROUPS = {"actor": ["joints"], "critic": ["joints", "friction"]}


def make_pendulum_runner(model_config=SMALL, num_envs=8, log_dir=None, **settings):
    env = RslEnv(TensorPendulum(num_envs), reward_scale=0.1)
    config = catalog_config(model_config, steps=8, **settings)
    return make_runner(env, config, log_dir=log_dir)


def make_groups_runner(
    observation_space, action_space=FREE, model_config=SMALL, groups=None, *, with_space=True
):
    """Return a runner for random observations, and their environment."""
    tensor_env = RandomGroupsEnv(8, observation_space, action_space)
    names = list(observation_space)
    groups = groups or {"actor": names, "critic": names}
    env = CatalogEnv(RslEnv(tensor_env), action_space, observation_space if with_space else None)
    return make_runner(env, catalog_config(model_config, groups, steps=6)), tensor_env


def weights_of(module):
    return {name: weight.detach().clone() for name, weight in module.state_dict().items()}


def test_learning_changes_every_weight():
    runner = make_pendulum_runner(LSTM)
    before = weights_of(runner.alg.actor)
    learn(runner, 1)
    for name, weight in weights_of(runner.alg.actor).items():
        assert not torch.equal(weight, before[name]), name


def test_default_layers_begin_with_values_of_torch():
    runner = make_pendulum_runner({"fcnet_hiddens": [400]}, num_envs=2)
    model = to_policy(runner).model
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            # nn.Linear draws from a uniform distribution within 1 / sqrt(inputs)
            bound = 1 / layer.in_features**0.5
            assert layer.weight.abs().max() <= bound
            assert layer.weight.abs().max() > 0.9 * bound
            assert 0 < layer.bias.abs().max() <= bound
    log_stds = [layer.log_std for layer in model.modules() if isinstance(layer, FreeLogStd)]
    assert [log_std.tolist() for log_std in log_stds] == [[0.0]]


def test_explicit_initializers_are_kept():
    config = {**SMALL, "fcnet_weights_initializer": "zeros"}
    model = to_policy(make_pendulum_runner(config, num_envs=2)).model
    zeros = [w for w in model.state_dict().values() if w.shape == (16, 3) and not w.any()]
    assert len(zeros) == 2  # the policy's layer and the critic's


def test_update_equals_that_of_rsl_rls_own_net():
    """With the same weights and random numbers, both collect the same rollout, and an epoch of
    minibatches with an adaptive learning rate ends in the same weights.
    """
    net = {"class_name": "MLPModel", "hidden_dims": [16, 16], "activation": "elu"}
    own_config = catalog_config(steps=8)
    own_config["actor"] = {**net, "distribution_cfg": {"class_name": "GaussianDistribution"}}
    own_config["actor"]["distribution_cfg"]["std_type"] = "log"
    own_config["critic"] = net
    own_config["algorithm"]["class_name"] = "PPO"
    own = make_runner(RslEnv(TensorPendulum(8), reward_scale=0.1), own_config)
    runner = make_pendulum_runner({"fcnet_hiddens": [16, 16], "fcnet_activation": "elu"})
    own_weights = [*own.alg.actor.mlp.parameters(), *own.alg.critic.mlp.parameters()]
    model = to_policy(runner).model
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    first, second, value_first, value_second, logits, value = layers
    weights = [
        weight
        for layer in (first, second, logits, value_first, value_second, value)
        for weight in (layer.weight, layer.bias)
    ]
    with torch.no_grad():
        for weight, own_weight in zip(weights, own_weights, strict=True):
            weight.copy_(own_weight)

    for one in (own, runner):
        torch.manual_seed(1)
        learn(one, 1)

    storages = own.alg.storage, runner.alg.storage
    torch.testing.assert_close(storages[1].returns, storages[0].returns)
    assert runner.alg.learning_rate == own.alg.learning_rate
    for weight, own_weight in zip(weights, own_weights, strict=True):
        torch.testing.assert_close(weight, own_weight, rtol=0, atol=1e-5)


# --- the two sides' weights -----------------------------------------------------------------------


def test_critic_has_weights_that_only_the_value_depends_on():
    runner = make_pendulum_runner()
    actor, critic = runner.alg.actor, runner.alg.critic
    policy = to_policy(runner)
    of_actor = {id(weight) for weight in actor.parameters()}
    of_critic = {id(weight) for weight in critic.parameters()}
    assert not of_actor & of_critic
    assert of_actor | of_critic == {id(weight) for weight in policy.model.parameters()}
    # One layer of 16 units and an output on each side, and a standard deviation for the actions.
    assert sum(weight.numel() for weight in actor.parameters()) == 3 * 16 + 16 + 16 + 1 + 1
    assert sum(weight.numel() for weight in critic.parameters()) == 3 * 16 + 16 + 16 + 1


def test_shared_layers_belong_to_the_actor():
    runner = make_pendulum_runner({**SMALL, "vf_share_layers": True})
    # The value layer alone: 16 weights and a bias.
    assert sum(weight.numel() for weight in runner.alg.critic.parameters()) == 17


def test_norms_of_both_sides_are_limited_apart(monkeypatch):
    runner = make_pendulum_runner(num_learning_epochs=1, num_mini_batches=1)
    clipped = []
    clip = nn.utils.clip_grad_norm_

    def record(weights, max_norm):
        weights = list(weights)
        clipped.append({id(weight) for weight in weights})
        return clip(weights, max_norm)

    monkeypatch.setattr(nn.utils, "clip_grad_norm_", record)
    learn(runner, 1)
    assert clipped[0] == {id(weight) for weight in runner.alg.actor.parameters()}
    assert clipped[1] == {id(weight) for weight in runner.alg.critic.parameters()}


# --- spaces and groups ----------------------------------------------------------------------------


def test_spaces_are_read_from_groups():
    space = Dict(
        {
            "action_mask": MultiBinary(3),
            "camera": Box(0, 255, (10, 10, 3), np.uint8),
            "joints": VECTOR,
        }
    )
    runner, _ = make_groups_runner(space, Discrete(3), with_space=False)
    policy = to_policy(runner)
    free = Box(-np.inf, np.inf, (5,), np.float32)
    assert policy.observation_space == Dict({**space.spaces, "joints": free})
    assert policy.masks.key == "action_mask"
    assert runner.alg.storage.observations["camera"].dtype == torch.uint8
    learn(runner, 1)


def test_only_group_is_the_observation_itself():
    runner = make_pendulum_runner()
    assert to_policy(runner).observation_space == Box(-np.inf, np.inf, (3,), np.float32)


def test_integers_without_a_space_are_refused():
    space = Dict({"gear": Discrete(3), "joints": VECTOR})
    with pytest.raises(UnsupportedSpaceError, match=r"obs\['gear'\].*int64.*range is"):
        make_groups_runner(space, with_space=False)


def test_space_without_a_group_is_refused():
    tensor_env = RandomGroupsEnv(2, SIDES, FREE)
    env = CatalogEnv(RslEnv(tensor_env), FREE, Dict({"joints": VECTOR}))
    with pytest.raises(ConfigError, match=r"lacks \['friction'\]"):
        make_runner(env, catalog_config(SMALL, SIDE_GROUPS))


def test_groups_of_the_critic_alone_make_an_asymmetric_critic():
    runner, _ = make_groups_runner(SIDES, groups=SIDE_GROUPS)
    learn(runner, 1)
    policy = to_policy(runner)
    plan = policy.explain().as_dict()["plan"]
    seen_by = {leaf["path"]: leaf["seen_by"] for leaf in plan}
    assert seen_by == {"obs['friction']": ["critic"], "obs['joints']": ["policy", "critic"]}
    step = policy.act({"joints": np.zeros((3, 5), np.float32)})
    assert step.value is None
    # The runner's policy, too, acts where nobody knows the friction.
    actor = runner.get_inference_policy()
    actions = actor(TensorDict({"joints": torch.zeros(3, 5)}, [3]))
    assert actions.shape == (3, 2)


def test_obs_groups_in_the_model_config_are_refused():
    config = {**SMALL, "obs_groups": {"policy": ["joints"]}}
    with pytest.raises(ConfigError, match="the runner's config says which groups"):
        make_groups_runner(SIDES, model_config=config, groups=SIDE_GROUPS)


# --- actions --------------------------------------------------------------------------------------


def test_env_gets_actions_of_its_space():
    action_space = Tuple([Discrete(3, start=5), Box(-1, 2, (2,), np.float32)])
    runner, tensor_env = make_groups_runner(Dict({"joints": VECTOR}), action_space)
    learn(runner, 1)
    gears = torch.cat([gear for gear, _ in tensor_env.actions])
    assert gears.dtype == torch.int64
    assert set(gears.tolist()) == {5, 6, 7}
    assert runner.alg.storage.actions.shape == (6, 8, 3)  # raw values


def test_env_without_spaces_gets_raw_actions():
    runner = make_pendulum_runner()
    assert to_policy(runner).action_space == Box(-np.inf, np.inf, (1,), np.float32)
    learn(runner, 1)


def test_mask_that_allows_nothing_is_an_error():
    space = Dict({"action_mask": MultiBinary(3), "joints": VECTOR})
    runner, tensor_env = make_groups_runner(space, Discrete(3))
    tensor_env.observe()["action_mask"][2] = False
    tensor_env._check = lambda actions: None
    with pytest.raises(ActionMaskError, match=r"step 1 since.*row 2 allows no"):
        learn(runner, 1)


# --- memory ---------------------------------------------------------------------------------------


def test_memory_restarts_where_an_episode_ends():
    runner = make_pendulum_runner(LSTM, num_envs=3)
    actor = runner.alg.actor
    obs = runner.env.get_observations()
    with torch.inference_mode():
        for _ in range(3):
            actor(obs, stochastic_output=True)
        before = actor.get_hidden_state()
        actor.reset(torch.tensor([0, 1, 0]))
    for part, old in zip(actor.get_hidden_state(), before, strict=True):
        assert torch.equal(part[0, 1], torch.zeros(8))
        assert torch.equal(part[0, [0, 2]], old[0, [0, 2]])
        assert old.any()


def test_memory_is_restored_from_a_hidden_state():
    runner = make_pendulum_runner(LSTM, num_envs=3)
    actor = runner.alg.actor
    obs = runner.env.get_observations()
    with torch.inference_mode():
        actor(obs, stochastic_output=True)
        kept = actor.get_hidden_state()
        once = actor(obs)
        actor.reset(hidden_state=kept)
        assert torch.equal(actor(obs), once)


# --- filter, checkpoints, conversion --------------------------------------------------------------


def test_filter_learns_from_each_rollout_once():
    config = {**SMALL, "observation_filter": "MeanStdFilter"}
    runner = make_pendulum_runner(config)
    stored = runner.alg.storage.observations["policy"]
    seen = []
    for _ in range(3):
        learn(runner, 1)
        seen.append(stored.flatten(0, 1).double().numpy().copy())
    rows = np.concatenate(seen)
    statistics = to_policy(runner).filter.get_state()
    assert any(np.array_equal(value, len(rows)) for value in statistics.values())
    assert any(
        np.shape(value) == (3,) and np.allclose(value, rows.mean(0), rtol=1e-12)
        for value in statistics.values()
    )


def test_checkpoint_restores_weights_and_filter(tmp_path):
    config = {**LSTM, "observation_filter": "MeanStdFilter"}
    runner = make_pendulum_runner(config, log_dir=str(tmp_path / "log"))
    learn(runner, 2)
    runner.save(str(tmp_path / "model.pt"))
    other = make_pendulum_runner(config)
    other.load(str(tmp_path / "model.pt"))
    observations = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    steps = [to_policy(one).act(observations, explore=False) for one in (runner, other)]
    np.testing.assert_array_equal(steps[0].dist_inputs, steps[1].dist_inputs)
    np.testing.assert_array_equal(steps[0].value, steps[1].value)


@pytest.mark.parametrize("config", [SMALL, LSTM], ids=["mlp", "lstm"])
def test_converted_policy_acts_like_the_runners(config, tmp_path):
    env = RslEnv(TensorCartPole(8))
    runner = make_runner(CatalogEnv(env, Discrete(2)), catalog_config(config, steps=8))
    learn(runner, 1)
    policy = to_policy(runner)
    obs = env.get_observations()
    raw = runner.get_inference_policy()(obs)

    policy.save(tmp_path / "policy")
    loaded = rlcatalog.load(tmp_path / "policy")
    # The runner's memory is in the middle of episodes.
    states = [None, None]
    if config is LSTM:
        states = [policy.initial_state(8), loaded.initial_state(8)]
        runner.alg.actor.reset()
        raw = runner.alg.actor(obs)
    for one, state in zip((policy, loaded), states, strict=True):
        step = one.act(obs["policy"].numpy(), state, explore=False)
        assert raw[:, 0].tolist() == step.action.tolist()


def test_converted_policy_is_exported(tmp_path):
    runner = make_pendulum_runner()
    learn(runner, 1)
    policy = to_policy(runner)
    policy.export(tmp_path / "policy.onnx")
    obs = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    actions = rlcatalog.Actor(tmp_path / "policy.onnx").act(obs, explore=False).action
    np.testing.assert_allclose(actions, policy.act(obs, explore=False).action, atol=1e-5)


def test_runner_of_rsl_rl_alone_is_not_converted():
    sides = {"class_name": "MLPModel", "hidden_dims": [8]}
    config = catalog_config(steps=4)
    config["actor"] = {**sides, "distribution_cfg": {"class_name": "GaussianDistribution"}}
    config["critic"] = sides
    config["algorithm"] = {"class_name": "PPO"}
    runner = make_runner(RslEnv(TensorPendulum(2)), config)
    with pytest.raises(NotServedError, match="MLPModel has no catalog parts"):
        to_policy(runner)


def test_curiosity_of_rsl_rl_trains_beside_a_catalog_policy():
    config = catalog_config(SMALL, steps=4)
    config["obs_groups"]["rnd_state"] = ["policy"]
    config["algorithm"]["rnd_cfg"] = {
        "num_outputs": 4,
        "predictor_hidden_dims": [8],
        "target_hidden_dims": [8],
        "weight": 0.1,
    }
    env = RslEnv(TensorPendulum(4))
    env.unwrapped = env  # as Gymnasium's wrappers have it
    env.step_dt = 0.05
    runner = make_runner(env, config)
    learn(runner, 1)
    assert runner.alg.rnd is not None


# --- refusals -------------------------------------------------------------------------------------


REFUSED = {
    "past actions": ({**LSTM, "lstm_use_prev_action": True}, "lstm_use_prev_action"),
    "past rewards": ({**LSTM, "lstm_use_prev_reward": True}, "lstm_use_prev_reward"),
    "a loss": ({"custom_model": WithCustomLoss}, "custom_loss"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_model_that_rsl_rl_cannot_train_is_refused(name):
    config, named = REFUSED[name]
    with pytest.raises(NotServedError, match=named):
        make_pendulum_runner(config)


@pytest.mark.parametrize("key", ["symmetry_cfg", "share_cnn_encoders"])
def test_setting_that_is_not_carried_is_refused(key):
    with pytest.raises(NotServedError, match=key):
        make_pendulum_runner(**{key: {"use_mirror_loss": True}})


def test_compiling_is_refused():
    config = catalog_config(SMALL)
    config["torch_compile_mode"] = "default"
    with pytest.raises(NotServedError, match="torch_compile_mode"):
        make_runner(RslEnv(TensorPendulum(2)), config)


def test_settings_of_rsl_rls_own_models_are_refused():
    config = catalog_config(SMALL)
    config["actor"]["hidden_dims"] = [64]
    with pytest.raises(ConfigError, match=r"actor\['hidden_dims'\].*fcnet_hiddens"):
        make_runner(RslEnv(TensorPendulum(2)), config)
    config = catalog_config(SMALL)
    config["critic"]["hidden_dims"] = [64]
    with pytest.raises(ConfigError, match=r"critic\['hidden_dims'\]"):
        make_runner(RslEnv(TensorPendulum(2)), config)


def test_models_of_rsl_rl_under_catalog_ppo_are_refused():
    config = catalog_config(SMALL)
    config["critic"]["class_name"] = "MLPModel"
    with pytest.raises(NotServedError, match="found 'MLPModel'"):
        make_runner(RslEnv(TensorPendulum(2)), config)


def test_plain_ppo_with_catalog_models_is_refused():
    config = catalog_config(SMALL)
    config["algorithm"]["class_name"] = "PPO"
    with pytest.raises(NotServedError, match="rlcatalog_rsl_rl:CatalogPPO"):
        make_runner(RslEnv(TensorPendulum(2)), config)


def test_distillation_is_refused():
    obs = TensorDict({"policy": torch.zeros(2, 3)}, [2])
    with pytest.raises(NotServedError, match="'student' of distillation"):
        CatalogActor(obs, {"student": ["policy"]}, "student", 1)


def test_other_number_of_actions_is_refused():
    obs = TensorDict({"policy": torch.zeros(2, 3)}, [2])
    groups = {"actor": ["policy"], "critic": ["policy"]}
    with pytest.raises(NotServedError, match=r"takes 3 numbers.*has 1 raw"):
        CatalogActor(obs, groups, "actor", 3, action_space=Discrete(4))


@pytest.mark.parametrize("export", ["export_policy_to_jit", "export_policy_to_onnx"])
def test_exporters_of_rsl_rl_are_refused(export, tmp_path):
    runner = make_pendulum_runner()
    with pytest.raises(NotServedError, match=r"to_policy\(runner\)\.export"):
        getattr(runner, export)(str(tmp_path))


def test_observation_that_is_not_finite_is_an_error():
    runner = make_pendulum_runner()
    runner.cfg["check_for_nan"] = False
    runner.env.tensor_env.state[5, 0] = torch.nan
    with pytest.raises(NonFiniteError, match="row 5 of 8"):
        learn(runner, 1)
