"""A2C and plain policy gradient: their losses against NumPy, what they learn from, and their
interfaces.
"""

from __future__ import annotations

import importlib
import json
import re

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch

import rlcatalog
import rlcatalog_ppo
from rlcatalog import ModelCatalog
from rlcatalog.errors import (
    ConfigError,
    NonFiniteError,
    NotServedError,
    SavedPolicyError,
    UnknownConfigKeyError,
)
from rlcatalog.frameworks import Evaluation, tensor_ops
from rlcatalog_ppo import A2C, PG, PPO
from rlcatalog_ppo.config import A2CConfig, PGConfig
from rlcatalog_ppo.loss import policy_gradient_losses
from rlcatalog_ppo.offline import Reader
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
algorithms = pytest.mark.parametrize("algorithm", [A2C, PG])
SMALL = {
    "num_envs": 2,
    "rollout_length": 12,
    "seed": 0,
    "lr": 0.01,
    "model": {"fcnet_hiddens": [8]},
}


class Clock(gym.Env):
    """Observes the step it is at; pays what the step is worth; ends, or is truncated, after `limit`
    steps.
    """

    observation_space = gym.spaces.Box(0, 100, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        config = config or {}
        self.limit, self.cut, self.worth = (
            config.get("limit", 5),
            config.get("cut", False),
            config.get("worth", 1.0),
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([self.t], np.float32), {}

    def step(self, action):
        self.t += 1
        over = self.t == self.limit
        return (
            np.array([self.t], np.float32),
            self.worth * self.t,
            over and not self.cut,
            over and self.cut,
            {},
        )


class Valueless(TorchModelV2, torch.nn.Module):
    """A model that only chooses."""

    def __init__(self, *args):
        TorchModelV2.__init__(self, *args)
        torch.nn.Module.__init__(self)
        self.logits = torch.nn.Linear(1, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.logits(input_dict["obs"]), state


class Whole(TorchModelV2, torch.nn.Module):
    """A custom model of the page, filled in."""

    def __init__(self, *args):
        TorchModelV2.__init__(self, *args)
        torch.nn.Module.__init__(self)
        self.logits, self.value = torch.nn.Linear(4, self.num_outputs), torch.nn.Linear(4, 1)

    def forward(self, input_dict, state, seq_lens):
        self._value = self.value(input_dict["obs"])
        return self.logits(input_dict["obs"]), state

    def value_function(self):
        return self._value[:, 0]


def tensors(framework, **columns):
    convert = torch.from_numpy if framework == "torch" else tf.constant
    return {name: convert(column) for name, column in columns.items()}


@frameworks
@pytest.mark.parametrize("normalized", [False, True])
def test_losses_equal_numpy(framework, normalized):
    logp, advantage, value, target, entropy = (
        np.random.default_rng(1).normal(size=(5, 32)).astype(np.float32)
    )
    given = tensors(framework, logp=logp, entropy=entropy, value=value)
    evaluation = Evaluation(entropy_kind="exact", dist=None, kl=None, **given)
    batch = tensors(framework, advantage=advantage, target=target)
    weight = (
        (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8) if normalized else advantage
    )
    policy_loss, vf_loss = -(logp * weight).mean(), 0.5 * ((value - target) ** 2).mean()
    keys = {"entropy_coeff": 0.3, "normalize_advantage": normalized}
    found = policy_gradient_losses(
        evaluation, batch, A2CConfig(vf_loss_coeff=0.7, **keys), tensor_ops(framework)
    )
    expected = [
        policy_loss,
        vf_loss,
        entropy.mean(),
        policy_loss + 0.7 * vf_loss - 0.3 * entropy.mean(),
    ]
    np.testing.assert_allclose(
        [float(x) for x in (found.policy_loss, found.vf_loss, found.entropy, found.total)],
        expected,
        rtol=1e-5,
    )
    found = policy_gradient_losses(evaluation, batch, PGConfig(**keys), tensor_ops(framework))
    assert found.vf_loss is None
    np.testing.assert_allclose(
        [float(x) for x in (found.policy_loss, found.total)],
        [policy_loss, policy_loss - 0.3 * entropy.mean()],
        rtol=1e-5,
    )


@frameworks
def test_step_follows_the_gradient_worked_out_by_hand(framework):
    """Of a linear policy, with the first moment of Adam after one step as a witness of the
    gradient.
    """
    model = {"fcnet_hiddens": [], "vf_share_layers": False}
    algo = A2C(
        Clock,
        {**SMALL, "model": model, "framework": framework, "grad_clip": None, "vf_loss_coeff": 0.25},
    )
    rollout = algo._collector.collect(12)
    batch = algo._batch(rollout)
    weights = algo.policy.model.get_weights()
    assert sum(weight.size for weight in weights.values()) == 2 + 2 + 1 + 1
    before = (
        algo.policy.evaluate(batch)
        if framework == "tf"
        else algo.policy.evaluate(
            {name: torch.from_numpy(column) for name, column in batch.items()}
        )
    )
    value = np.asarray(before.value.detach() if framework == "torch" else before.value)
    algo._learner.update(batch, 0.01)
    gradients = {
        name: 10 * moment for name, moment in algo._learner.optimizer.get_state()["first"].items()
    }
    obs, action, rows = (
        batch["obs"][:, 0],
        batch["raw_action"].reshape(-1).astype(int),
        len(batch["obs"]),
    )
    logits = (
        np.concatenate([w for n, w in weights.items() if w.size == 2 and w.ndim == 2]) @ obs[None]
    )
    probability = np.exp(logits) / np.exp(logits).sum(0)
    # d policy_loss / d logits.
    slope = -(np.eye(2)[action].T - probability) * batch["advantage"] / rows
    error = 0.25 * (value - batch["target"]) / rows
    expected = sorted([(slope @ obs).tolist(), slope.sum(1).tolist(), [error @ obs], [error.sum()]])
    found = sorted(gradient.reshape(-1).tolist() for gradient in gradients.values())
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    algo.stop()


@pytest.mark.parametrize("cut", [False, True])
def test_returns_to_go_end_with_the_episode_and_with_the_rollout(cut):
    """A truncated episode's end is an end: nothing stands for what would have come."""
    algo = PG(Clock, {**SMALL, "gamma": 0.5, "env_config": {"limit": 5, "cut": cut}})
    rewards = [1, 2, 3, 4, 5] * 2 + [1, 2]
    expected, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + 0.5 * (0.0 if reward == 5 else running)
        expected.append(running)
    batch = algo._batch(algo._collector.collect(12))
    np.testing.assert_allclose(batch["advantage"], expected[::-1] * 2, rtol=1e-6)
    algo.stop()


def test_a2c_bootstraps_where_an_episode_is_cut_or_goes_on():
    """With lambda 1 its targets are the rewards of the rollout and the value of what
    follows them.
    """
    algo = A2C(Clock, {**SMALL, "gamma": 0.5, "env_config": {"limit": 5, "cut": True}})
    rollout = algo._collector.collect(7)
    values = algo.policy.values(np.array([[5.0], [2.0]], np.float32))
    expected, running = [], values[1]
    for reward in [2, 1, 5, 4, 3, 2, 1]:
        running = reward + 0.5 * (values[0] if reward == 5 else running)
        expected.append(running)
    np.testing.assert_allclose(algo._batch(rollout)["target"], expected[::-1] * 2, rtol=1e-5)
    assert algo.config.lambda_ == 1.0
    algo.stop()


@pytest.mark.grid
@algorithms
@frameworks
@pytest.mark.parametrize("memory", [False, True])
def test_rollout_is_one_step(algorithm, framework, memory):
    model = {
        "fcnet_hiddens": [8],
        **({"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5} if memory else {}),
    }
    algo = algorithm(Clock, {**SMALL, "framework": framework, "model": model})
    before = algo.policy.model.get_weights()
    results = [algo.train() for _ in range(3)]
    assert algo._learner.optimizer.get_state()["step"] == 3
    assert results[-1]["timesteps_total"] == 72
    after = algo.policy.model.get_weights()
    moved = {name for name, weight in after.items() if np.any(before[name] != weight)}
    assert {name for name in after if "value" not in name} <= moved
    assert (moved == set(after)) == (algorithm is A2C)  # PG leaves the value branch alone
    figures = {
        "A2C": {"policy_loss", "vf_loss", "entropy", "grad_norm"},
        "PG": {"policy_loss", "entropy", "grad_norm"},
    }
    assert set(results[0]["info"]["learner"]) == figures[algorithm.__name__] | {"lr", "model"}
    json.dumps(results)
    algo.stop()


def test_model_without_a_value_trains_with_pg_alone(tmp_path):
    config = {**SMALL, "model": {"custom_model": Valueless}, "env_config": {"cut": True}}
    algo = PG(Clock, config, record=tmp_path)
    before = algo.policy.model.get_weights()
    assert algo.train()["info"]["learner"]["grad_norm"] > 0
    assert all(
        np.any(before[name] != weight) for name, weight in algo.policy.model.get_weights().items()
    )
    assert set(Reader(tmp_path).next()) == {"obs", "actions", "rewards", "dones"}
    algo.stop()
    with pytest.raises(NotServedError, match="A2C needs a value estimate; Valueless"):
        A2C(Clock, config)


class Steered(Clock):
    """The same with numbers for actions, at a path of its own where there are several."""

    def __init__(self, config):
        super().__init__(config)
        number = gym.spaces.Box(-1, 1, (2,))
        self.action_space = (
            gym.spaces.Dict(gear=gym.spaces.Discrete(3), wheel=number) if config["both"] else number
        )


@pytest.mark.parametrize("algorithm", [PPO, A2C, PG])
@frameworks
@pytest.mark.parametrize(("both", "path"), [(False, "action"), (True, r"action\['wheel'\]")])
def test_actions_without_a_density_are_refused_before_training(algorithm, framework, both, path):
    model = {"custom_action_dist": "deterministic", "fcnet_hiddens": [4]}
    config = {
        **SMALL,
        "rollout_length": 128,
        "framework": framework,
        "model": model,
        "env_config": {"both": both},
    }
    message = (
        rf"^{path}: {algorithm.__name__} learns from the density of actions, but"
        r" Deterministic has none"
    )
    with pytest.raises(NotServedError, match=message):
        algorithm(Steered, config)


def test_point_mass_of_the_program_says_so_too():
    from rlcatalog_gaussian.torch import DiagGaussian

    class Mean(DiagGaussian):
        has_density = False

    ModelCatalog.register_custom_action_dist("mean_alone", Mean)
    with pytest.raises(NotServedError, match=r"action: PG learns .*, but Mean has none"):
        PG(
            Steered,
            {**SMALL, "model": {"custom_action_dist": "mean_alone"}, "env_config": {"both": False}},
        )


@pytest.mark.grid
@algorithms
@frameworks
def test_what_is_not_finite_is_named_and_nothing_is_learned(algorithm, framework):
    """Of a loss beyond float32; the error is of this algorithm, and lists its figures."""
    algo = algorithm(
        Clock, {**SMALL, "framework": framework, "env_config": {"worth": 6e37}, "gamma": 0.0}
    )
    before = algo.policy.model.get_weights()
    message = f"^{algorithm.__name__}: a minibatch has the loss .*This minibatch: policy_loss"
    with np.errstate(over="ignore"), pytest.raises(NonFiniteError, match=message):
        algo.train()
    for name, weight in algo.policy.model.get_weights().items():
        np.testing.assert_array_equal(weight, before[name])
    algo.stop()


@algorithms
def test_custom_loss_metrics_and_postprocessing_work_as_in_ppo(algorithm):
    class Regularised(TorchModelV2, torch.nn.Module):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)
            torch.nn.Module.__init__(self)
            self.logits, self.value = torch.nn.Linear(1, self.num_outputs), torch.nn.Linear(1, 1)
            self.view_requirements["twice"] = rlcatalog.ViewRequirement(
                "twice", space=gym.spaces.Box(-1e9, 1e9, ()), used_for_compute_actions=False
            )

        def forward(self, input_dict, state, seq_lens):
            self._out = self.value(input_dict["obs"])
            return self.logits(input_dict["obs"]), state

        def value_function(self):
            return self._out[:, 0]

        def custom_loss(self, policy_loss, loss_inputs):
            self.seen = loss_inputs["views"]["twice"].numpy(), loss_inputs["rewards"].numpy()
            return [policy_loss, 1000 * self.logits.weight.square().sum()]

        def metrics(self):
            return {"norm": self.logits.weight.detach().square().sum()}

    def doubled(policy, columns, others, episode):
        return {**columns, "twice": 2 * columns["rewards"]}

    algo = algorithm(
        Clock, {**SMALL, "model": {"custom_model": Regularised}}, postprocess_fn=doubled
    )
    norms = [algo.train()["info"]["learner"]["model"]["norm"] for _ in range(60)]
    assert norms[-1] < 0.2 * norms[0]
    np.testing.assert_array_equal(algo.policy.model.seen[0], 2 * algo.policy.model.seen[1])
    algo.stop()


@pytest.mark.parametrize(
    ("algorithm", "framework"), [(A2C, "torch"), pytest.param(PG, "tf", marks=pytest.mark.attack)]
)
def test_the_rest_of_a_run_is_what_it_would_have_been(algorithm, framework, tmp_path):
    model = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5}
    keys = {
        "framework": framework,
        "model": model,
        "lr_schedule": [[0, 0.01], [100, 0.0]],
        "reward_scale": True,
    }
    whole = algorithm(Clock, {**SMALL, **keys, "env_config": {"worth": 3.0}})
    whole.train()
    whole.save_checkpoint(tmp_path)
    rest = [whole.train()["info"] for _ in range(2)]
    gone_on = algorithm.restore(tmp_path, Clock)
    assert [gone_on.train()["info"] for _ in range(2)] == rest
    for name, weight in whole.policy.model.get_weights().items():
        np.testing.assert_array_equal(gone_on.policy.model.get_weights()[name], weight)
    with pytest.raises(
        SavedPolicyError, match=f"{algorithm.__name__} wrote this checkpoint; PPO cannot"
    ):
        PPO.restore(tmp_path, Clock)


def test_names_as_the_seeds_write_them():
    a3c = pg = rlcatalog_ppo
    ModelCatalog.register_custom_model("my_torch_model", Whole)
    with (
        pytest.warns(DeprecationWarning, match="A2CTrainer is now called A2C"),
        pytest.warns(DeprecationWarning, match="'use_pytorch' is now"),
    ):
        trainer = a3c.A2CTrainer(
            env="CartPole-v1",
            config={
                "use_pytorch": True,
                "model": {
                    "custom_model": "my_torch_model",
                    "custom_options": {},  # extra options to pass to your model
                },
            },
        )
    assert isinstance(trainer.policy.model, Whole)
    assert trainer.train()["timesteps_total"] == 40
    trainer.stop()
    for make, message in (
        (a3c.A2CTrainer, "A2CTrainer is now called A2C"),
        (pg.PGTrainer, "PGTrainer is now called PG"),
    ):
        with pytest.warns(DeprecationWarning, match=re.escape(message)):
            trainer = make(env=Clock, config=SMALL)
        assert trainer.train()["training_iteration"] == 1
        trainer.stop()
    with pytest.raises(
        NotServedError, match=r"A3C is not supported: its workers .* rlcatalog_ppo\.A2C"
    ):
        a3c.A3CTrainer(env=Clock, config=SMALL)


@pytest.mark.parametrize(
    ("algorithm", "config", "error", "message"),
    [
        (A2C, {"clip_param": 0.2}, UnknownConfigKeyError, "Unknown A2C config key 'clip_param'"),
        (PG, {"lambda_": 0.9}, UnknownConfigKeyError, "Unknown PG config key 'lambda_'"),
        (PG, {"gamma": 2}, ConfigError, "PG config key 'gamma'"),
        (
            A2C,
            {"num_envs": 1, "rollout_length": 1, "normalize_advantage": True},
            ConfigError,
            "needs at least two steps",
        ),
    ],
)
def test_bad_configs(algorithm, config, error, message):
    with pytest.raises(error, match=message):
        algorithm(Clock, config)


def test_algorithm_of_ones_own_is_a_config_an_objective_and_rows():
    """What the three share is there for a fourth."""
    objective = importlib.import_module("rlcatalog_ppo.loss").PG_OBJECTIVE

    class Rewards(PG):
        """Weighs each action by its own reward alone."""

        def _batch(self, rollout):
            return rollout.batch(0.0, 1.0)

    assert Rewards.objective is objective
    algo = Rewards(Clock, SMALL)
    np.testing.assert_array_equal(
        (batch := algo._batch(algo._collector.collect(12)))["advantage"], batch["reward"]
    )
    algo.stop()
