"""PPO: its estimates and losses against independent ones, its interface, and a short
learning run.
"""

import inspect
import json

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch

import rlcatalog
from rlcatalog.errors import (
    CatalogWarning,
    ConfigError,
    NotServedError,
    UnknownConfigKeyError,
    UnknownNameError,
)
from rlcatalog.frameworks import Evaluation, tensor_ops
from rlcatalog_ppo import PPO, PPOTrainer
from rlcatalog_ppo.advantages import estimate_advantages
from rlcatalog_ppo.config import ELSEWHERE, A2CConfig, PGConfig, PPOConfig, parse
from rlcatalog_ppo.loss import losses
from rlcatalog_ppo.rollout import Collector, Rollout
from rlcatalog_runs.evaluation import play
from rlcatalog_torch import TorchModelV2

SMALL = {"num_envs": 2, "rollout_length": 16, "minibatch_size": 16, "num_epochs": 2, "seed": 0}


class Clock(gym.Env):
    """Observes the step it is at; reward 1 per step; truncated after `limit` steps."""

    observation_space = gym.spaces.Box(0, 100, (1,))
    action_space = gym.spaces.Discrete(2, start=3)

    def __init__(self, config=None):
        self.limit = (config or {}).get("limit", 5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([self.t], np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        return np.array([self.t], np.float32), 1.0, False, self.t == self.limit, {}


def test_advantages_equal_the_definition():
    """Sum of discounted TD errors, cut at episode ends, written as the double sum of the paper."""
    rng = np.random.default_rng(0)
    T, N, gamma, lam = 7, 3, 0.9, 0.8
    reward, value = rng.normal(size=(2, T, N)).astype(np.float32)
    done, last = rng.random((T, N)) < 0.3, rng.normal(size=N).astype(np.float32)
    bootstrap = rng.normal(size=(T, N)).astype(np.float32) * done * (rng.random((T, N)) < 0.5)
    rollout = Rollout(None, None, None, value, reward, done, bootstrap, last)
    following = np.concatenate([value[1:], last[None]])
    delta = reward + np.where(done, bootstrap, gamma * following) - value
    expected = np.zeros((T, N))
    for n in range(N):
        for t in range(T):
            weight = 1.0
            for k in range(t, T):
                expected[t, n] += weight * delta[k, n]
                if done[k, n]:
                    break
                weight *= gamma * lam
    np.testing.assert_allclose(estimate_advantages(rollout, gamma, lam), expected, atol=1e-5)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_losses_equal_numpy(framework):
    convert, ops = torch.from_numpy if framework == "torch" else tf.constant, tensor_ops(framework)
    rng = np.random.default_rng(1)
    logp, old, advantage, value, target, entropy = rng.normal(size=(6, 32)).astype(np.float32)
    config = parse({"clip_param": 0.3, "vf_loss_coeff": 0.7, "entropy_coeff": 0.01})
    tensors = [convert(x) for x in (logp, entropy, value)]
    evaluation = Evaluation(tensors[0], tensors[1], "exact", tensors[2], None)
    batch = {
        k: convert(v) for k, v in {"logp": old, "advantage": advantage, "target": target}.items()
    }
    found = losses(evaluation, batch, config, ops)
    a = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    ratio = np.exp(logp - old)
    policy_loss = -np.minimum(ratio * a, np.clip(ratio, 0.7, 1.3) * a).mean()
    vf_loss = 0.5 * ((value - target) ** 2).mean()
    total = policy_loss + 0.7 * vf_loss - 0.01 * entropy.mean()
    np.testing.assert_allclose(
        [found.policy_loss, found.vf_loss, found.total], [policy_loss, vf_loss, total], rtol=1e-5
    )


def test_truncation_adds_the_value_of_the_last_observation():
    policy = rlcatalog.build(env=Clock())
    envs = gym.vector.SyncVectorEnv([Clock] * 2, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    collector = Collector(policy, envs, 0, gamma=0.5)
    rollout = collector.collect(10)
    at_end = policy.act(np.array([[5.0]], np.float32)).value[0]
    expected = np.zeros((10, 2))
    expected[[4, 9]] = 0.5 * at_end
    np.testing.assert_allclose(rollout.bootstrap, expected, rtol=1e-5)
    assert (rollout.reward == 1).all()
    assert rollout.done.sum() == 4
    assert rollout.obs[:, 0, 0].tolist() == [0, 1, 2, 3, 4] * 2
    assert list(collector.episodes.returns) == [5.0] * 4


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_train_reports_and_changes_weights(framework, tmp_path):
    algo = PPO(env=Clock, config={**SMALL, "framework": framework, "env_config": {"limit": 8}})
    before = algo.policy.model.get_weights()
    result = algo.train()
    assert result["training_iteration"] == 1
    assert result["timesteps_total"] == 32
    assert result["episode_return_mean"] == result["episode_reward_mean"] == 8.0
    assert {"policy_loss", "vf_loss", "entropy", "kl", "model"} <= result["info"]["learner"].keys()
    json.dumps(result)
    assert all(
        np.any(before[name] != value) for name, value in algo.policy.model.get_weights().items()
    )
    algo.save(tmp_path)
    obs = np.full((1, 1), 2.0, np.float32)
    np.testing.assert_array_equal(
        rlcatalog.load(tmp_path).act(obs).dist_inputs, algo.policy.act(obs).dist_inputs
    )
    assert algo.evaluate(3) == [8.0] * 3
    assert algo.evaluate() == [8.0] * 10
    algo.stop()


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_same_seed_same_result(framework):
    config = {**SMALL, "framework": framework}
    runs = [PPO("CartPole-v1", config).train()["info"]["learner"]["policy_loss"] for _ in range(2)]
    assert runs[0] == runs[1]


def test_continuous_actions_and_structured_observations():
    class Both(gym.Env):
        observation_space = gym.spaces.Dict(
            {"a": gym.spaces.Discrete(3), "b": gym.spaces.Box(-1, 1, (2, 2))}
        )
        action_space = gym.spaces.Box(-1, 1, (2,))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            assert self.action_space.contains(action)
            return (
                self.observation_space.sample(),
                0.0,
                False,
                bool(self.np_random.random() < 0.2),
                {},
            )

    result = PPO(Both, {**SMALL, "model": {"free_log_std": True}}).train()
    assert np.isfinite(result["info"]["learner"]["policy_loss"])


def test_custom_loss_and_metrics_reach_the_result():
    class Regularised(TorchModelV2, torch.nn.Module):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)
            torch.nn.Module.__init__(self)
            self.logits, self.value = torch.nn.Linear(1, self.num_outputs), torch.nn.Linear(1, 1)

        def forward(self, input_dict, state, seq_lens):
            self._out = self.value(input_dict["obs"])
            return self.logits(input_dict["obs"]), state

        def value_function(self):
            return self._out[:, 0]

        def custom_loss(self, policy_loss, loss_inputs):
            self.seen = len(loss_inputs["obs"])
            return [policy_loss, 1000 * self.logits.weight.square().sum()]

        def metrics(self):
            return {"norm": self.logits.weight.detach().square().sum()}

    algo = PPO(Clock, {**SMALL, "lr": 0.01, "model": {"custom_model": Regularised}})
    norms = [algo.train()["info"]["learner"]["model"]["norm"] for _ in range(20)]
    assert algo.policy.model.seen == 16
    assert norms[-1] < 0.2 * norms[0]


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        (
            {"learning_rate": 1},
            UnknownConfigKeyError,
            "Unknown PPO config key 'learning_rate'. Here it is called 'lr'.",
        ),
        (
            {"num_minibatches": 4},
            UnknownConfigKeyError,
            "'minibatch_size', the number of steps in one minibatch.",
        ),
        ({"gama": 1}, UnknownConfigKeyError, "Did you mean 'gamma'"),
        ({"lr": "fast"}, ConfigError, "expected 'float', got 'str'"),
        ({"gamma": 1.5}, ConfigError, "'gamma'"),
        ({"model": {"fcnet_hidden": []}}, UnknownConfigKeyError, "Did you mean 'fcnet_hiddens'"),
        ({"framework": "jax"}, UnknownNameError, "Unknown framework 'jax'"),
    ],
)
def test_bad_config(config, error, message):
    with pytest.raises(error, match=message):
        PPO("CartPole-v1", config)


@pytest.mark.parametrize("kind", [PPOConfig, A2CConfig, PGConfig])
def test_names_of_other_libraries_lead_to_keys_of_the_algorithm_alone(kind):
    for name, text in ELSEWHERE.items():
        key = text.partition(",")[0]
        assert any(key in other.__struct_fields__ for other in (PPOConfig, A2CConfig, PGConfig))
        with pytest.raises(UnknownConfigKeyError) as caught:
            parse({name: 1}, kind)
        assert (f"Here it is called {key!r}" in str(caught.value)) == (
            key in kind.__struct_fields__
        )


def test_names_of_stable_baselines_mean_the_same_keys():
    """The defaults of Stable-Baselines3 are valid values of these keys."""
    sb3 = pytest.importorskip("stable_baselines3")
    usual = {
        name: parameter.default for name, parameter in inspect.signature(sb3.PPO).parameters.items()
    }
    values = {
        ELSEWHERE[name].partition(",")[0]: usual[name] for name in ELSEWHERE.keys() & usual.keys()
    }
    assert {
        "lr",
        "rollout_length",
        "minibatch_size",
        "num_epochs",
        "lambda_",
        "clip_param",
        "entropy_coeff",
        "vf_loss_coeff",
        "grad_clip",
    } == values.keys()
    config = parse({**values, "num_envs": 1})
    assert (config.lr, config.rollout_length, config.minibatch_size) == (3e-4, 2048, 64)


def test_minibatch_beyond_the_rollout_is_the_rollout():
    """SB3 and users of RLlib keep their minibatch size when they shorten the rollout."""
    with pytest.warns(
        CatalogWarning,
        match=r"minibatch_size=1000 is larger than a rollout.* = 32\. The whole rollout",
    ):
        algo = PPO(Clock, {**SMALL, "minibatch_size": 1000, "num_epochs": 3})
    sizes, step = [], algo._learner.optimizer.step
    algo._learner.optimizer.step = lambda batch, *args, **how: (
        sizes.append(len(batch["logp"])) or step(batch, *args, **how)
    )
    algo.train()
    assert sizes == [32] * 3
    algo.stop()


def test_a_dictionary_as_a_model_is_told_where_config_keys_go():
    with pytest.raises(
        ConfigError, match=r"found a dictionary.*as config=\{'model': \{'fcnet_hiddens': \[8\]\}\}"
    ):
        PPO("CartPole-v1", model={"fcnet_hiddens": [8]})
    PPO("CartPole-v1", config={"model": {"fcnet_hiddens": [8]}}).stop()
    with pytest.raises(
        ConfigError, match=r"found a dictionary.*as config=\{'fcnet_hiddens': \[8\]\}"
    ):
        rlcatalog.build(env="CartPole-v1", model={"fcnet_hiddens": [8]})
    rlcatalog.build(env="CartPole-v1", config={"fcnet_hiddens": [8]})


def test_unknown_environment_names_itself():
    with pytest.raises(UnknownNameError, match="Environment 'Nowhere-v0' cannot be made"):
        PPO("Nowhere-v0")


def test_models_it_cannot_train_are_refused():
    class Valueless(TorchModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.logits = torch.nn.Linear(1, self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.logits(input_dict["obs"]), state

    with pytest.raises(NotServedError, match="needs a value estimate"):
        PPO(Clock, {**SMALL, "model": {"custom_model": Valueless}})


def test_old_names_warn():
    with pytest.warns(DeprecationWarning, match="PPOTrainer is now called PPO"):
        PPOTrainer(Clock, SMALL)
    with pytest.warns(DeprecationWarning, match="'num_sgd_iter' is now called 'num_epochs'"):
        assert parse({"num_sgd_iter": 3}).num_epochs == 3
    with pytest.warns(DeprecationWarning, match="use_pytorch"):
        assert parse({"use_pytorch": True}).framework == "torch"


def test_evaluation_counts_long_and_short_episodes_alike():
    """Half the environments have episodes of 2 steps, half of 20: the first ones to end are not the
    first ones.
    """
    limits = iter([2, 20] * 10)
    returns = play(rlcatalog.build(env=Clock()), lambda: Clock({"limit": next(limits)}), 20)
    assert sorted(returns) == [2.0] * 10 + [20.0] * 10


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=pytest.mark.attack)])
def test_learns_cartpole_a_little(framework):
    """A short run: the mean return of the last episodes is several times that of a random policy
    (about 22).
    """
    algo = PPO(
        "CartPole-v1",
        {"seed": 0, "lr": 3e-3, "minibatch_size": 128, "num_epochs": 5, "framework": framework},
    )
    for _ in range(14):
        result = algo.train()
    assert result["episode_return_mean"] > 80
