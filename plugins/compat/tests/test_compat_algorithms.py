"""Algorithms under RLlib's names: configs, environments, acting with a state, and saving."""

import copy
import linecache
from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
import rlcatalog_compat as ray
from rlcatalog.errors import (
    CatalogWarning,
    ConfigError,
    ModelContractError,
    NotServedError,
    UnknownConfigKeyError,
)
from rlcatalog_compat.rllib.agents import a3c, ppo
from rlcatalog_compat.rllib.algorithms.ppo import PPO, PPOConfig
from rlcatalog_compat.rllib.env import EnvContext
from rlcatalog_compat.tune.registry import get_trainable_cls, register_env

if find_spec("torch") is None:  # not imported: the processes of environments import this file
    pytest.skip("PyTorch is not installed", allow_module_level=True)


class OneStepEnv(gym.Env):
    """Episodes of one step; action 0 is rewarded. `env_config` sets the number of actions."""

    def __init__(self, config):
        self.observation_space = spaces.Box(0, 1, (2,))
        self.action_space = spaces.Discrete(config.get("n", 2))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(2, np.float32), {}

    def step(self, action):
        return self.np_random.random(2, np.float32), float(action == 0), True, False, {}


#: A small network, and one short update.
SHORT_RUN = {
    "model": {"fcnet_hiddens": [4]},
    "train_batch_size": 16,
    "minibatch_size": 16,
    "num_epochs": 1,
    "num_envs": 2,
}


# --- configs --------------------------------------------------------------------------------------


def test_ppo_trains_in_a_registered_environment():
    register_env("one_step", OneStepEnv)  # `env_config` sets its number of actions
    config = {**SHORT_RUN, "train_batch_size": 16, "num_envs": 2, "env_config": {"n": 3}}
    trainer = ppo.PPOTrainer(config, "one_step")

    result = trainer.train()

    assert result["timesteps_total"] == 16
    assert trainer.config.rollout_length == 16 / 2  # in each of two environments
    assert trainer.compute_single_action(np.zeros(2, np.float32)) in {0, 1, 2}
    trainer.stop()


def test_ppo_takes_the_config_first():
    with pytest.raises(ConfigError, match="config is the first argument"):
        ppo.PPOTrainer("CartPole-v1", SHORT_RUN)


def test_ppo_rejects_unknown_keys():
    with pytest.raises(UnknownConfigKeyError, match="learning_rate"):
        ppo.PPOTrainer({**SHORT_RUN, "learning_rate": 1}, OneStepEnv)


@pytest.mark.parametrize(
    ("batch", "fragment", "envs", "steps"),
    [
        pytest.param(100, {"rollout_fragment_length": 16}, 2, 128, id="4-fragments-of-16-by-2"),
        pytest.param(100, {"rollout_fragment_length": 16}, 8, 128, id="1-fragment-of-16-by-8"),
        pytest.param(100, {}, 8, 104, id="13-steps-by-8"),
        pytest.param(100, {"rollout_fragment_length": "auto"}, 2, 100, id="auto"),
    ],
)
def test_train_batch_size_is_rounded_up_to_fragments(batch, fragment, envs, steps):
    config = {**SHORT_RUN, "train_batch_size": batch, "num_envs": envs, **fragment}
    trainer = ppo.PPOTrainer(config=config, env=OneStepEnv)

    result = trainer.train()

    assert result["timesteps_total"] == steps
    trainer.stop()


def test_keys_without_effect_are_warned_of():
    with pytest.warns(CatalogWarning, match="no effect: num_gpus, num_workers"):
        ppo.PPOTrainer({**SHORT_RUN, "num_workers": 2, "num_gpus": 0}, OneStepEnv)


class OwnPPO(PPO):
    """A user's subclass."""

    def __init__(self, **options):
        super().__init__(**options)


def build_by_keywords(config):
    return PPO(config=config, env=OneStepEnv)


def build_subclass(config):
    return OwnPPO(config=config, env=OneStepEnv)


def build_by_builder(config):
    return PPOConfig().environment(OneStepEnv).training(**config).build()


@pytest.mark.parametrize(
    ("build", "line"),
    [
        (build_by_keywords, "return PPO(config=config, env=OneStepEnv)"),
        (build_subclass, "super().__init__(**options)"),
        (build_by_builder, "return PPOConfig().environment"),
    ],
)
def test_warning_of_keys_without_effect_points_at_the_users_line(build, line):
    with pytest.warns(CatalogWarning, match="no effect: num_workers") as caught:
        build({**SHORT_RUN, "num_workers": 2})

    [warning] = [warning for warning in caught if "no effect" in str(warning.message)]
    assert warning.filename == __file__
    assert line in linecache.getline(warning.filename, warning.lineno)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("multiagent", {"policies": {"a": None}}, "rlcatalog-rllib"),
        ("optimizer", {"type": "sgd"}, "Adam"),
        ("exploration_config", {"type": "Curiosity"}, "drawn"),
        ("normalize_actions", False, "action_bounds"),
    ],
)
def test_key_that_is_not_supported_says_why(key, value, reason):
    message = f"PPO: {key}=.* is not supported: .*{reason}"

    with pytest.raises(NotServedError, match=message):
        ppo.PPOTrainer({**SHORT_RUN, key: value}, OneStepEnv)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("multiagent", {}),
        ("optimizer", None),
        ("exploration_config", {"type": "StochasticSampling"}),
        ("normalize_actions", True),
    ],
)
def test_key_with_the_value_of_ppo_is_accepted(key, value):
    ppo.PPOTrainer({**SHORT_RUN, key: value}, OneStepEnv)


def test_default_config_can_be_copied_and_changed():
    config = copy.deepcopy(ppo.DEFAULT_CONFIG)
    config["model"]["fcnet_hiddens"] = [4]
    config["env_config"]["n"] = 4

    trainer = ppo.PPOTrainer(config, OneStepEnv)

    assert trainer.policy.action_space.n == 4


def test_new_ppo_config_has_empty_dictionaries():
    assert PPOConfig().to_dict()["model"] == {}
    assert PPOConfig()["env_config"] == {}


# --- environments ---------------------------------------------------------------------------------


class EnvWithContext(OneStepEnv):
    """Keeps the config it was made with."""

    def __init__(self, context):
        super().__init__(context)
        self.context = context


@pytest.mark.parametrize(
    ("env", "vector"), [("with_context", "sync"), (EnvWithContext, "async")], ids=["name", "class"]
)
def test_environments_are_made_with_a_context(env, vector):
    register_env("with_context", EnvWithContext)
    config = {**SHORT_RUN, "num_envs": 2, "env_config": {"n": 3}, "vector": vector}

    trainer = ppo.PPOTrainer(config=config, env=env)

    # The environment keeps the context that it was made with.
    first, second = trainer._algorithm._envs.get_attr("context")
    assert first.vector_index == 0
    assert second.vector_index == 1
    for context in (first, second):
        assert isinstance(context, EnvContext)
        assert dict(context) == {"n": 3}
        assert context.worker_index == 0
        assert context.num_workers == 0
        assert context.remote == (vector == "async")  # in a process of its own
    trainer.stop()


def test_env_context_is_copied_with_overrides():
    context = EnvContext({"n": {"m": 3}}, worker_index=2, num_workers=4)

    other = context.copy_with_overrides(vector_index=1, remote=True)

    assert other.worker_index == 2
    assert other.num_workers == 4
    assert other.vector_index == 1
    assert other.remote is True
    assert context.vector_index == 0


def test_copy_of_an_env_context_has_its_own_values():
    context = EnvContext({"n": {"m": 3}}, worker_index=2, num_workers=4)

    other = context.copy_with_overrides(vector_index=1)
    other["n"]["m"] = 5

    assert context == {"n": {"m": 3}}


def test_copy_of_an_env_context_may_have_another_config():
    context = EnvContext({"n": {"m": 3}}, worker_index=2, num_workers=4)

    assert context.copy_with_overrides({"k": 1}) == {"k": 1}


def test_env_context_takes_defaults_for_missing_keys():
    context = EnvContext({"n": {"m": 3}}, worker_index=2, num_workers=4)

    context.set_defaults({"n": 0, "seed": 7})

    assert context == {"n": {"m": 3}, "seed": 7}


@pytest.mark.parametrize(
    ("algorithm", "make_env", "num_envs"),
    [
        pytest.param(ppo.PPOTrainer, lambda: gym.make("CartPole-v1"), 1, id="ppo"),
        pytest.param(
            ppo.PPOTrainer, lambda: gym.make_vec("CartPole-v1", 2, "sync"), 2, id="ppo, vector"
        ),
        pytest.param(
            a3c.A2CTrainer, lambda: gym.make_vec("CartPole-v1", 2, "sync"), 2, id="a2c, vector"
        ),
    ],
)
def test_env_argument_sets_the_number_of_environments(algorithm, make_env, num_envs):
    config = {"model": {"fcnet_hiddens": [4]}, "train_batch_size": 512, "framework": "torch"}

    trainer = algorithm(env=make_env(), config=config)

    assert trainer.config.num_envs == num_envs
    assert trainer.config.rollout_length == 512 / num_envs
    trainer.stop()


# --- acting ---------------------------------------------------------------------------------------


@pytest.fixture
def lstm_trainer():
    """A trainer with an LSTM of 3 cells, which reads past actions and rewards."""
    model = {
        "use_lstm": True,
        "lstm_cell_size": 3,
        "fcnet_hiddens": [4],
        "max_seq_len": 4,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    }
    return ppo.PPOTrainer({**SHORT_RUN, "model": model, "explore": False}, OneStepEnv)


def test_compute_action_returns_and_takes_the_state(lstm_trainer):
    policy = lstm_trainer.get_policy()
    obs = np.array([0.2, 0.8], np.float32)

    state = policy.model.get_initial_state()
    _, state, _ = lstm_trainer.compute_action(obs, state, prev_reward=0.0)
    action, state, extra = lstm_trainer.compute_action(obs, state, prev_reward=1.0)

    first_step = policy.act([obs], prev_reward=np.float32([0.0]), explore=False)
    second_step = policy.act([obs], first_step.state, prev_reward=np.float32([1.0]), explore=False)
    assert action == second_step.action[0]
    assert extra["vf_preds"] == pytest.approx(second_step.value[0])
    assert extra["action_dist_inputs"] == pytest.approx(second_step.dist_inputs[0])
    h, c = second_step.state.memory
    assert np.any(h)
    assert state[0].tolist() == h[0].tolist()
    assert state[1].tolist() == c[0].tolist()


def test_compute_single_action_without_state_returns_action(lstm_trainer):
    action = lstm_trainer.compute_single_action(np.zeros(2, np.float32))

    assert action in range(2)


def test_compute_single_action_with_full_fetch_returns_three(lstm_trainer):
    result = lstm_trainer.compute_single_action(np.zeros(2, np.float32), full_fetch=True)

    assert len(result) == 3  # action, state, and extra outputs


def test_compute_action_rejects_a_state_of_another_shape(lstm_trainer):
    with pytest.raises(ModelContractError, match="has a state of shapes ") as caught:
        lstm_trainer.compute_action(np.zeros(2, np.float32), [np.zeros(5)])

    assert "state of shapes [(3,), (3,)], found [(5,)]" in str(caught.value)


def test_compute_action_rejects_a_past_action_without_its_state(lstm_trainer):
    state = [np.zeros(3), np.zeros(3)]  # not one that compute_action returned

    with pytest.raises(NotServedError, match="state that the last call returned"):
        lstm_trainer.compute_action(np.zeros(2, np.float32), state, prev_action=1)


def test_compute_action_draws_actions():
    trainer = ppo.PPOTrainer(SHORT_RUN, OneStepEnv)

    actions = {int(trainer.compute_action(np.zeros(2, np.float32))) for _ in range(60)}

    assert len(actions) > 1


def test_compute_action_without_exploration_repeats_its_action():
    trainer = ppo.PPOTrainer(SHORT_RUN, OneStepEnv)
    obs = np.zeros(2, np.float32)

    actions = {int(trainer.compute_action(obs, explore=False)) for _ in range(20)}

    assert len(actions) == 1


# --- saving ---------------------------------------------------------------------------------------


def restore(folder):
    trainer = ppo.PPOTrainer({**SHORT_RUN, "seed": 5}, OneStepEnv)
    trainer.restore(folder)
    return trainer


def load_checkpoint(folder):
    return ppo.PPOTrainer.from_checkpoint(folder, env=OneStepEnv)


@pytest.mark.parametrize("resume", [restore, load_checkpoint])
def test_saved_training_is_resumed(tmp_path, monkeypatch, resume):
    monkeypatch.chdir(tmp_path)  # `save` writes into ./runs
    trainer = ppo.PPOTrainer({**SHORT_RUN, "seed": 0}, OneStepEnv)
    trainer.train()
    folder = trainer.save()
    assert folder.startswith("runs/PPO-")
    expected = trainer.train()
    expected_weights = trainer.policy.model.get_weights()

    resumed = resume(folder)
    result = resumed.train()

    assert result["timesteps_total"] == expected["timesteps_total"]
    for name, weight in resumed.policy.model.get_weights().items():
        np.testing.assert_array_equal(weight, expected_weights[name])


def test_attribute_of_rllib_that_is_missing_is_named():
    trainer = ppo.PPOTrainer(SHORT_RUN, OneStepEnv)

    with pytest.raises(AttributeError, match=r"has no 'workers'\. It has train, ") as caught:
        trainer.workers

    assert "PPO of rlcatalog_compat has no 'workers'" in str(caught.value)


def test_config_builder_makes_the_same_algorithm():
    config = PPOConfig().environment(OneStepEnv, env_config={"n": 4}).framework("torch")
    config = config.training(**SHORT_RUN, lr=0.01)

    algo = config.training(model={"fcnet_activation": "relu"}).build()

    assert algo.config.model == {"fcnet_hiddens": [4], "fcnet_activation": "relu"}
    assert algo.config.lr == 0.01
    assert algo.policy.action_space.n == 4


def test_saved_algorithm_contains_a_policy(tmp_path):
    algo = ppo.PPOTrainer({**SHORT_RUN, "framework": "torch"}, OneStepEnv)

    folder = algo.save(tmp_path / "saved")

    assert rlcatalog.load(f"{folder}/policy").framework == "torch"


# --- other algorithms -----------------------------------------------------------------------------


def test_a2c_takes_one_optimizer_step_per_rollout():
    trainer = a3c.A2CTrainer({"model": {"fcnet_hiddens": [4]}, "num_envs": 2}, OneStepEnv)

    result = trainer.train()

    assert trainer.config.rollout_length == 20
    assert result["timesteps_total"] == 40
    assert trainer._algorithm._learner.minibatch_optimizer.get_state()["step"] == 1
    trainer.stop()


def test_a2c_reports_its_losses():
    trainer = a3c.A2CTrainer({"model": {"fcnet_hiddens": [4]}, "num_envs": 2}, OneStepEnv)

    learner = trainer.train()["info"]["learner"]

    expected = {"policy_loss", "vf_loss", "entropy", "grad_norm", "lr", "model"}
    assert set(learner) == expected
    trainer.stop()


def test_a3c_trains():
    config = {
        "train_batch_size": 30,
        "num_envs": 2,
        "lambda_": 0.9,
        "model": {"fcnet_hiddens": [4]},
    }

    assert a3c.A3CTrainer(config, OneStepEnv).train()["timesteps_total"] == 30


def test_get_trainable_cls_finds_ppo():
    assert get_trainable_cls("PPO") is ppo.PPOTrainer


def test_get_trainable_cls_rejects_other_algorithms():
    with pytest.raises(ConfigError, match="'SAC' is not supported"):
        get_trainable_cls("SAC")


def test_ray_init_and_shutdown_do_nothing():
    assert ray.init(num_cpus=4) is None
    assert ray.is_initialized()
    ray.shutdown()
