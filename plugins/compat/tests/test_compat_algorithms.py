"""RLlib's names of algorithms: their configs, acting with a state, and going on from what was
saved.
"""

import copy
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
from rlcatalog_compat.rllib.algorithms.ppo import PPOConfig
from rlcatalog_compat.rllib.env import EnvContext
from rlcatalog_compat.tune.registry import get_trainable_cls, register_env

if find_spec("torch") is None:  # not imported: the processes of environments import this file
    pytest.skip("PyTorch is not installed", allow_module_level=True)


class Guess(gym.Env):
    """One guess per episode."""

    def __init__(self, config):
        self.observation_space, self.action_space = (
            spaces.Box(0, 1, (2,)),
            spaces.Discrete(config.get("n", 2)),
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(2, np.float32), {}

    def step(self, action):
        return self.np_random.random(2, np.float32), float(action == 0), True, False, {}


SMALL = {
    "model": {"fcnet_hiddens": [4]},
    "train_batch_size": 16,
    "minibatch_size": 16,
    "num_epochs": 1,
    "num_envs": 2,
}


def test_ppo_takes_rllibs_arguments():
    register_env("guess", Guess)
    trainer = ppo.PPOTrainer({**SMALL, "env_config": {"n": 3}}, "guess")
    assert trainer.train()["timesteps_total"] == 16
    assert trainer.policy.model is trainer.get_policy().model
    assert trainer.config.rollout_length == 8
    assert trainer.compute_single_action(np.zeros(2, np.float32)) in range(3)
    trainer.stop()
    with pytest.raises(ConfigError, match="config is the first argument"):
        ppo.PPOTrainer("guess", SMALL)
    with pytest.raises(UnknownConfigKeyError, match="learning_rate"):
        ppo.PPOTrainer({**SMALL, "learning_rate": 1}, "guess")


@pytest.mark.parametrize(
    ("batch", "fragment", "envs", "steps"),
    [
        (100, 16, 2, 128),
        (100, 16, 8, 128),
        (100, None, 8, 104),
        (96, 16, 2, 96),
        (1, None, 8, 8),
        (100, "auto", 2, 100),
    ],
)
def test_a_batch_is_rounded_up_to_whole_fragments(batch, fragment, envs, steps):
    fragments = {} if fragment is None else {"rollout_fragment_length": fragment}
    trainer = ppo.PPOTrainer(
        config={**SMALL, "train_batch_size": batch, "num_envs": envs, **fragments}, env=Guess
    )
    assert trainer.train()["timesteps_total"] == steps
    trainer.stop()


class Placed(Guess):
    def __init__(self, context):
        super().__init__(context)
        self.context = context


@pytest.mark.parametrize(
    ("how", "env"),
    [
        pytest.param("sync", "placed", id="name-sync"),
        pytest.param("async", "placed", id="name-async", marks=pytest.mark.attack),
        pytest.param("sync", Placed, id="class-sync"),
        pytest.param("async", Placed, id="class-async"),
    ],
)
def test_environments_are_made_from_a_context(how, env):
    register_env("placed", lambda context: Placed(context))
    trainer = ppo.PPOTrainer(config={**SMALL, "env_config": {"n": 3}, "vector": how}, env=env)
    contexts = trainer._algorithm._envs.get_attr("context")
    assert [dict(context) for context in contexts] == [{"n": 3}] * 2
    assert all(isinstance(context, EnvContext) for context in contexts)
    assert [context.vector_index for context in contexts] == [0, 1]
    assert [(context.worker_index, context.num_workers) for context in contexts] == [(0, 0)] * 2
    assert [context.remote for context in contexts] == [how == "async"] * 2
    trainer.stop()


def test_a_context_is_copied_with_other_values():
    context = EnvContext({"n": {"m": 3}}, worker_index=2, num_workers=4)
    other = context.copy_with_overrides(vector_index=1, remote=True)
    other["n"]["m"] = 5
    assert (other.worker_index, other.vector_index, other.num_workers, other.remote) == (
        2,
        1,
        4,
        True,
    )
    assert context == {"n": {"m": 3}}
    assert context.vector_index == 0
    assert context.copy_with_overrides({"k": 1}) == {"k": 1}
    context.set_defaults({"n": 0, "seed": 7})
    assert context == {"n": {"m": 3}, "seed": 7}


def test_keys_without_effect_are_named():
    with pytest.warns(CatalogWarning, match="no effect: num_gpus, num_workers"):
        ppo.PPOTrainer({**SMALL, "num_workers": 2, "num_gpus": 0}, Guess)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("multiagent", {"policies": {"a": None}}, "rlcatalog-rllib"),
        ("optimizer", {"type": "sgd"}, "Adam"),
        ("exploration_config", {"type": "Curiosity"}, "drawn"),
        ("normalize_actions", False, "action_bounds"),
    ],
)
def test_keys_that_are_not_served_say_why(key, value, why):
    with pytest.raises(NotServedError, match=f"PPO: {key}=.* is not supported: .*{why}"):
        ppo.PPOTrainer({**SMALL, key: value}, Guess)
    ppo.PPOTrainer(
        {
            **SMALL,
            key: None,
            "multiagent": {},
            "exploration_config": {"type": "StochasticSampling"},
            "normalize_actions": True,
        },
        Guess,
    )


def test_the_default_config_can_be_written_into():
    config = copy.deepcopy(ppo.DEFAULT_CONFIG)
    config["model"]["fcnet_hiddens"] = [4]
    config["env_config"]["n"] = 4
    assert ppo.PPOTrainer(config, Guess).policy.action_space.n == 4
    assert PPOConfig().to_dict()["model"] == PPOConfig()["env_config"] == {}


MEMORY = {
    **SMALL,
    "model": {
        "use_lstm": True,
        "lstm_cell_size": 3,
        "fcnet_hiddens": [4],
        "max_seq_len": 4,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    },
}


def test_the_state_goes_round_as_in_rllib():
    """Against the policy's own steps: memory, past actions and past rewards."""
    trainer = ppo.PPOTrainer({**MEMORY, "explore": False}, Guess)
    policy = trainer.get_policy()
    obs = np.random.default_rng(0).random((4, 2), np.float32)
    state, own, reward = policy.model.get_initial_state(), None, 0.0
    for one in obs:
        step = policy.act([one], own, prev_reward=np.array([reward], np.float32), explore=False)
        own = step.state
        action, state, extra = trainer.compute_action(one, state, prev_reward=reward)
        assert action == step.action[0]
        assert extra["vf_preds"] == pytest.approx(step.value[0])
        assert extra["action_dist_inputs"] == pytest.approx(step.dist_inputs[0])
        for part, expected in zip(state, step.state.memory, strict=True):
            assert part.tolist() == expected[0].tolist()
        reward += 1.0
    assert np.any(state[0])
    assert trainer.compute_single_action(obs[0]) in range(3)  # without a state, the action alone
    assert len(trainer.compute_single_action(obs[0], full_fetch=True)) == 3
    with pytest.raises(
        ModelContractError, match=r"has a state of shapes \[\(3,\), \(3,\)\], found \[\(5,\)\]"
    ):
        trainer.compute_action(obs[0], [np.zeros(5)])
    with pytest.raises(NotServedError, match="Pass the state that the last call returned"):
        trainer.compute_action(obs[0], [np.zeros(3), np.zeros(3)], prev_action=1)


def test_actions_are_drawn_unless_the_config_says_otherwise():
    trainer = ppo.PPOTrainer(SMALL, Guess)
    seen = {int(trainer.compute_action(np.zeros(2, np.float32))) for _ in range(60)}
    assert len(seen) > 1
    assert (
        len(
            {int(trainer.compute_action(np.zeros(2, np.float32), explore=False)) for _ in range(20)}
        )
        == 1
    )


def test_training_goes_on_from_what_save_wrote(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer = ppo.PPOTrainer({**SMALL, "seed": 0}, Guess)
    trainer.train()
    folder = trainer.save()
    assert folder.startswith("runs/PPO-")
    expected = trainer.train()["timesteps_total"], trainer.policy.model.get_weights()
    other = ppo.PPOTrainer({**SMALL, "seed": 5}, Guess)
    other.restore(folder)
    for algo in (other, None):
        algo = algo or ppo.PPOTrainer.from_checkpoint(folder, env=Guess)
        assert algo.train()["timesteps_total"] == expected[0]
        for name, array in algo.policy.model.get_weights().items():
            np.testing.assert_array_equal(array, expected[1][name])
    with pytest.raises(
        AttributeError, match=r"PPO of rlcatalog_compat has no 'workers'. It has train, "
    ):
        trainer.workers


def test_the_builder_gives_the_same_algorithm(tmp_path):
    config = (
        PPOConfig()
        .environment(Guess, env_config={"n": 4})
        .framework("torch")
        .training(**SMALL, lr=0.01)
    )
    algo = config.training(model={"fcnet_activation": "relu"}).build()
    assert algo.config.model == {"fcnet_hiddens": [4], "fcnet_activation": "relu"}
    assert algo.config.lr == 0.01
    assert algo.policy.action_space.n == 4
    assert rlcatalog.load(f"{algo.save(tmp_path / 'saved')}/policy").framework == "torch"


def test_a2c_takes_one_step_on_the_whole_rollout():
    trainer = a3c.A2CTrainer({"model": {"fcnet_hiddens": [4]}, "num_envs": 2}, Guess)
    assert trainer.config.rollout_length == 20
    assert trainer.train()["timesteps_total"] == 40
    assert trainer._algorithm._learner.optimizer.get_state()["step"] == 1
    assert set(trainer.train()["info"]["learner"]) == {
        "policy_loss",
        "vf_loss",
        "entropy",
        "grad_norm",
        "lr",
        "model",
    }
    trainer.stop()
    given = {"train_batch_size": 30, "num_envs": 2, "lambda_": 0.9, "model": {"fcnet_hiddens": [4]}}
    assert a3c.A3CTrainer(given, Guess).train()["timesteps_total"] == 30
    assert get_trainable_cls("PPO") is ppo.PPOTrainer
    with pytest.raises(ConfigError, match="'SAC' is not supported"):
        get_trainable_cls("SAC")


def test_ray_itself_does_nothing():
    assert ray.init(num_cpus=4) is None
    assert ray.is_initialized()
    ray.shutdown()


@pytest.mark.parametrize("algorithm", [ppo.PPOTrainer, a3c.A3CTrainer])
def test_an_environment_may_be_passed(algorithm):
    """It says how many there are, by which the length of rollouts is reckoned."""
    config = {key: SMALL[key] for key in ("model", "train_batch_size")} | {"framework": "torch"}
    config |= {"minibatch_size": 8, "num_epochs": 1} if algorithm is ppo.PPOTrainer else {}
    for env, n in ((gym.make("CartPole-v1"), 1), (gym.make_vec("CartPole-v1", 2, "sync"), 2)):
        trainer = algorithm(env=env, config=config)
        assert trainer.config.num_envs * trainer.config.rollout_length == 16
        assert trainer.config.num_envs == n
        trainer.train()
        trainer.stop()
