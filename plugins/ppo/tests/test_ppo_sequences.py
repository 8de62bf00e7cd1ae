"""PPO over models that remember: sequences, stored memories, views, and what a minibatch of them is
worth.
"""

from functools import partial
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.errors import ModelContractError, NotServedError, SavedPolicyError
from rlcatalog.spaces import map_tensors
from rlcatalog_ppo import PPO
from rlcatalog_ppo.env_state import Resumable
from rlcatalog_ppo.learner import minibatches
from rlcatalog_ppo.offline import Reader
from rlcatalog_ppo.rollout import Collector
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

SMALL = {"num_envs": 3, "rollout_length": 17, "minibatch_size": 16, "num_epochs": 2, "seed": 0}
PLAIN = {"fcnet_hiddens": [8]}
NET = {**PLAIN, "max_seq_len": 4}
MEMORIES = {
    "lstm": {**NET, "use_lstm": True, "lstm_cell_size": 5},
    "lstm_past": {
        **NET,
        "use_lstm": True,
        "lstm_cell_size": 5,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    },
    "attention": {
        **NET,
        "use_attention": True,
        "attention_dim": 16,
        "attention_head_dim": 8,
        "attention_memory_inference": 6,
        "attention_memory_training": 6,
    },
    "attention_past": {
        **NET,
        "use_attention": True,
        "attention_dim": 16,
        "attention_head_dim": 8,
        "attention_memory_inference": 6,
        "attention_memory_training": 6,
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 3,
    },
    "lstm_apart": {
        **NET,
        "use_lstm": True,
        "lstm_cell_size": 5,
        "lstm_use_prev_action": True,
        "vf_share_layers": False,
    },
    "attention_apart": {
        **NET,
        "use_attention": True,
        "attention_dim": 16,
        "attention_head_dim": 8,
        "attention_memory_inference": 6,
        "attention_memory_training": 6,
        "vf_share_layers": False,
    },
}
both = pytest.mark.parametrize("framework", ["torch", "tf"])


class Walk(gym.Env):
    """Observes the episode's number and the step; pays the step; ends by itself (even episodes) or
    is cut.
    """

    observation_space, action_space = Box(-1e3, 1e3, (2,), np.float32), Discrete(3)
    lengths = (6, 3, 9, 1)

    def __init__(self):
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        over = self.t == self.lengths[self.episode % len(self.lengths)]
        return (
            self._obs(),
            float(self.t),
            over and self.episode % 2 == 0,
            over and self.episode % 2 == 1,
            {},
        )

    def _obs(self):
        return np.array([self.episode, self.t], np.float32) / 10


def array(x):
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


@pytest.mark.parametrize(
    ("framework", "memory"),
    [
        *(("torch", memory) for memory in MEMORIES),
        *(("tf", memory) for memory in ("lstm", "lstm_past", "lstm_apart", "attention_past")),
        *(
            pytest.param("tf", memory, marks=pytest.mark.attack)
            for memory in ("attention", "attention_apart")
        ),
    ],
)
def test_before_the_first_update_nothing_has_changed(framework, memory):
    """Sequences, stored memories and views score the stored actions as acting did, minibatch by
    minibatch.
    """
    algo = PPO(Walk, {**SMALL, "framework": framework, "model": MEMORIES[memory]})
    for _ in range(2):  # the second rollout begins in the middle of episodes
        rollout = algo._collector.collect(17)
        batch = rollout.batch(0.9, 0.9)
        assert batch["seq_lens"].max() <= 4
        assert batch["seq_lens"].sum() == 51
        rng = np.random.default_rng(0)
        parts = list(minibatches(batch, 16, rng))
        assert sum(len(part["logp"]) for part in parts) == 51
        for part in parts:
            found = algo.policy.evaluate(part)
            np.testing.assert_allclose(array(found.logp), part["logp"], rtol=1e-4, atol=1e-5)
            assert found.value.shape == found.entropy.shape == part["logp"].shape


def test_sequences_begin_with_episodes_and_every_max_seq_len_steps():
    algo = PPO(Walk, {**SMALL, "model": MEMORIES["lstm"]})
    for _ in range(2):
        rollout = algo._collector.collect(17)
        batch = rollout.batch(0.9, 0.9)
        obs = batch["obs"] * 10
        begins = np.concatenate([[0], np.cumsum(batch["seq_lens"])[:-1]])
        for first, length, h in zip(begins, batch["seq_lens"], batch["state"][0], strict=True):
            episode, t = obs[first]
            # It does not cross episodes.
            np.testing.assert_allclose(obs[first : first + length, 0], episode)
            np.testing.assert_allclose(np.diff(obs[first : first + length, 1]), 1, rtol=1e-4)
            assert np.any(h != 0) == (t > 0)  # a fresh episode begins with an empty memory


def test_the_value_of_a_truncated_episode_is_read_with_its_own_memory():
    policy = rlcatalog.build(env=Walk(), config=MEMORIES["lstm_past"])
    envs = gym.vector.SyncVectorEnv([Walk], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    rollout = Collector(policy, envs, 0, gamma=0.5).collect(9)
    # Episode 1 is cut after 3 steps, the last of them at t = 8; play it again by hand, with the
    # same actions.
    assert rollout.done[:, 0].tolist() == [False] * 5 + [True] + [False] * 2 + [True]
    state, reward = None, None
    for t in range(6, 9):
        state = policy.act(rollout.obs[t], state, prev_reward=reward).state
        state.history.windows["action_inputs"][:, -1] = np.eye(3)[rollout.raw_action[t, :, 0]]
        reward = np.array([t - 5.0])
    value = policy.act(np.array([[0.1, 0.3]], np.float32), state, prev_reward=reward).value
    np.testing.assert_array_equal(rollout.reward[:, 0], [1, 2, 3, 4, 5, 6, 1, 2, 3])
    assert not rollout.bootstrap[:8].any()
    np.testing.assert_allclose(rollout.bootstrap[8], 0.5 * value, rtol=1e-5)


@both
def test_batch_of_mixed_lengths_equals_its_sequences_one_by_one(framework):
    """Padding enters no loss, no statistic and no gradient."""
    algo = PPO(
        Walk, {**SMALL, "num_envs": 1, "framework": framework, "model": MEMORIES["lstm_past"]}
    )
    batch = algo._collector.collect(17).batch(0.9, 0.9)
    assert len(set(batch["seq_lens"])) > 2

    def loss(part):
        found = algo.policy.evaluate(part)
        if framework == "torch":
            return found.logp.sum() + found.value.square().sum() + found.entropy.sum()
        return (
            tf.reduce_sum(found.logp) + tf.reduce_sum(found.value**2) + tf.reduce_sum(found.entropy)
        )

    def gradients(parts):
        model = algo.policy.model
        if framework == "torch":
            model.zero_grad(set_to_none=True)
            sum(loss(part) for part in parts).backward()
            return {name: p.grad.numpy().copy() for name, p in model.named_parameters()}
        variables = model.trainable_variables(as_dict=True)
        with tf.GradientTape() as tape:
            total = sum(loss(part) for part in parts)
        found = tape.gradient(total, list(variables.values()))
        return {
            name: tf.convert_to_tensor(g).numpy() for name, g in zip(variables, found, strict=True)
        }

    ends = np.cumsum(batch["seq_lens"])
    alone = []
    for s, (end, length) in enumerate(zip(ends, batch["seq_lens"], strict=True)):
        rows = {n: v for n, v in batch.items() if n not in ("seq_lens", "state")}
        part = map_tensors(rows, lambda a, end=end, length=length: a[end - length : end])
        alone.append(
            {
                **part,
                "seq_lens": np.array([length]),
                "state": [m[s : s + 1] for m in batch["state"]],
            }
        )
    together, apart = gradients([batch]), gradients(alone)
    for name, gradient in together.items():
        np.testing.assert_allclose(gradient, apart[name], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("framework", "memory"),
    [
        *(("torch", memory) for memory in MEMORIES),
        # It is slow to trace; attention takes a step in test_ppo_one_algorithm.py.
        ("tf", "lstm_apart"),
        pytest.param("tf", "attention_past", marks=pytest.mark.attack),
    ],
)
def test_training_changes_every_weight(framework, memory):
    algo = PPO(Walk, {**SMALL, "framework": framework, "model": MEMORIES[memory]})
    before = algo.policy.model.get_weights()
    result = algo.train()
    assert np.isfinite(result["info"]["learner"]["policy_loss"])
    assert abs(result["info"]["learner"]["kl"]) < 0.1
    for name, weight in algo.policy.model.get_weights().items():
        assert np.any(weight != before[name]), name
    assert len(algo.evaluate(4, seed=1)) == 4


def test_memory_of_another_form_is_refused():
    policy = rlcatalog.build(env=Walk(), config=MEMORIES["lstm"])
    rows = {"obs": np.zeros((4, 2), np.float32), "raw_action": np.zeros((4, 1), np.int64)}
    with pytest.raises(
        ModelContractError, match=r"batch\['state'\]: expected 2 parts with a row for each of 2 seq"
    ):
        policy.evaluate({**rows, "seq_lens": [2, 2], "state": [np.zeros((4, 5))] * 2})
    with pytest.raises(
        ModelContractError, match=r"seq_lens: expected lengths .* add up to 4 rows, found \[2, 3\]"
    ):
        policy.evaluate({**rows, "seq_lens": [2, 3]})


class Ahead(TorchModelV2):
    """Asks for what only training knows."""

    views: ClassVar = {
        "new_obs": ViewRequirement(used_for_compute_actions=False),
        "next_two": ViewRequirement("obs", shift="1:2", used_for_compute_actions=False),
        "taken": ViewRequirement("actions", used_for_compute_actions=False),
        "over": ViewRequirement("dones", used_for_compute_actions=False),
    }

    def __init__(self, *args):
        super().__init__(*args)
        self.layer, self.seen = torch.nn.Linear(2, self.num_outputs), []
        self.view_requirements |= self.views

    def forward(self, input_dict, state, seq_lens):
        if input_dict["is_training"]:
            self.seen.append(
                {name: input_dict[name].numpy().copy() for name in ("obs", *self.views)}
            )
        self._value = input_dict["obs"].sum(dim=1)
        return self.layer(input_dict["obs"]), state

    def value_function(self):
        return self._value


def test_training_alone_sees_what_comes_next():
    algo = PPO(Walk, {**SMALL, "num_epochs": 1, "model": {"custom_model": Ahead}})
    rollout = algo._collector.collect(17)
    obs, views = rollout.obs * 10, rollout.views
    for n in range(3):
        for t in range(17):
            episode, step = obs[t, n]
            np.testing.assert_allclose(views["new_obs"][t, n] * 10, [episode, step + 1], rtol=1e-4)
            for k in (1, 2):
                inside = t + k < 17 and obs[t + k, n, 0] == episode
                expected = obs[t + k, n] if inside else [0, 0]
                np.testing.assert_allclose(views["next_two"][t, n, k - 1] * 10, expected, rtol=1e-4)
            assert views["taken"][t, n] == rollout.raw_action[t, n, 0]
            assert views["over"][t, n] == (
                step + 1 == Walk.lengths[round(episode) % 4] and round(episode) % 2 == 0
            )
    algo.train()
    assert len(algo.policy.model.seen[0]["new_obs"]) == 16


def with_what_follows(policy, sample_batch, other_agent_batches, episode):
    """In RLlib's form: the discounted returns that follow, and how long the trajectory is."""
    assert (other_agent_batches, episode) == ({}, None)
    rewards = sample_batch["rewards"]
    returns = np.zeros_like(rewards)
    for t in range(len(rewards) - 1, -1, -1):
        returns[t] = rewards[t] + (0.5 * returns[t + 1] if t + 1 < len(rewards) else 0.0)
    sample_batch["returns"] = returns
    sample_batch["steps_in_all"] = np.full((len(rewards), 1), len(rewards), np.int64)
    return sample_batch


class Adviced(Ahead):
    views: ClassVar = {
        "returns": ViewRequirement(used_for_compute_actions=False),
        "length": ViewRequirement("steps_in_all", used_for_compute_actions=False),
        "later": ViewRequirement("returns", shift=1, used_for_compute_actions=False),
    }


def test_columns_that_a_postprocessing_step_adds_can_be_views():
    settings = {**SMALL, "num_epochs": 1, "model": {"custom_model": Adviced}}
    algo = PPO(Walk, settings, postprocess_fn=with_what_follows)
    rollout = algo._collector.collect(17)
    views = rollout.views
    assert views["length"].shape == (17, 3, 1)
    for n in range(3):
        ends = [*np.flatnonzero(rollout.done[:, n]) + 1, 17]
        for start, end in zip([0, *ends], ends, strict=False):
            returns = 0.0
            assert (views["length"][start:end, n] == end - start).all()
            for t in range(end - 1, start - 1, -1):
                np.testing.assert_allclose(views["later"][t, n], returns, rtol=1e-5)
                returns = rollout.reward[t, n] + 0.5 * returns
                np.testing.assert_allclose(views["returns"][t, n], returns, rtol=1e-5)
    algo.train()
    assert algo.policy.model.seen[0]["length"].shape == (16, 1)


class Timed(Ahead):
    views: ClassVar = {"t_next": ViewRequirement("t", shift=1, used_for_compute_actions=False)}


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_a_trajectory_holds_the_steps_of_one_episode_in_their_order(mode):
    trajectories = []

    def noted(policy, sample_batch, other_agent_batches, episode):
        trajectories.append(sample_batch)
        return sample_batch

    def made(first):
        env = Walk()
        env.episode = first  # so that their episodes end at different steps
        return Resumable(env) if mode is AutoresetMode.SAME_STEP else env

    envs = SyncVectorEnv([partial(made, first) for first in range(3)], autoreset_mode=mode)
    collector = Collector(
        rlcatalog.build(env=Walk(), config={"custom_model": Timed}), envs, 0, 0.9, noted
    )
    for _ in range(2):  # the second rollout begins in the middle of episodes
        trajectories.clear()
        rollout = collector.collect(17)
        assert sum(len(trajectory["t"]) for trajectory in trajectories) == rollout.steps
        for trajectory in trajectories:
            episode, t = (trajectory["obs"] * 10).round().astype(int).T
            assert (episode == episode[0]).all()
            np.testing.assert_array_equal(t, np.arange(t[0], t[0] + len(t)))
            np.testing.assert_array_equal(trajectory["t"], t)
            np.testing.assert_array_equal(trajectory["rewards"], t + 1)


def test_what_is_not_added_and_what_is_added_wrongly_is_named():
    settings = {**SMALL, "model": {"custom_model": Adviced}}
    with pytest.raises(
        NotServedError,
        match="Adviced requests the view 'returns' into 'returns', which this rollout",
    ):
        PPO(Walk, settings).train()

    def too_short(policy, sample_batch, other_agent_batches, episode):
        return {**sample_batch, "returns": np.zeros(1)}

    with pytest.raises(
        ModelContractError,
        match=r"too_short\(\) must return a row for each of \d+ steps; found.*'ret",
    ):
        PPO(Walk, settings, postprocess_fn=too_short).train()
    with pytest.raises(
        ModelContractError, match="must return the trajectory's columns, found NoneType"
    ):
        PPO(Walk, settings, postprocess_fn=lambda *trajectory: None).train()


def layer(framework, outputs):
    return torch.nn.Linear(2, outputs) if framework == "torch" else tf.keras.layers.Dense(outputs)


# --- what models add to training ------------------------------------------------------------------


def test_batch_normalisation_learns_in_training_and_never_while_acting():
    class TorchNorm(TorchModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.norm, self.layer = torch.nn.BatchNorm1d(2), torch.nn.Linear(2, self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            self.train(mode=bool(input_dict["is_training"]))
            x = self.norm(input_dict["obs"])
            self._value = x.sum(dim=1)
            return self.layer(x), state

        def value_function(self):
            return self._value

    class TFNorm(TFModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.norm, self.layer = (
                tf.keras.layers.BatchNormalization(),
                tf.keras.layers.Dense(self.num_outputs),
            )

        def forward(self, input_dict, state, seq_lens):
            x = self.norm(input_dict["obs"], training=input_dict["is_training"])
            self._value = tf.reduce_sum(x, axis=1)
            return self.layer(x), state

        def value_function(self):
            return self._value

    moving = "norm.running_mean"
    for cls in (TorchNorm, TFNorm):
        algo = PPO(Walk, {**SMALL, "model": {"custom_model": cls}})
        before = algo.policy.model.get_weights()[moving].copy()
        algo._collector.collect(8)
        np.testing.assert_array_equal(algo.policy.model.get_weights()[moving], before)
        algo.train()
        after = algo.policy.model.get_weights()[moving]
        assert np.all(after != before), cls
        algo.evaluate(2)
        np.testing.assert_array_equal(algo.policy.model.get_weights()[moving], after)


@both
def test_update_ops_run_once_per_optimiser_step(framework):
    base = {"torch": TorchModelV2, "tf": TFModelV2}[framework]

    class Counting(base):
        def __init__(self, *args, ops=()):
            super().__init__(*args)
            self.layer = (
                torch.nn.Linear(2, self.num_outputs)
                if framework == "torch"
                else tf.keras.layers.Dense(self.num_outputs)
            )
            self.calls = 0

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs"]), state

        def value_function(self):
            return self.last_output()[:, 0]

        def update_ops(self):
            return [self.count]

        def count(self):
            self.calls += 1

    algo = PPO(Walk, {**SMALL, "model": {"custom_model": Counting}})
    algo.train()
    assert algo.policy.model.calls == 2 * 4  # two passes of four minibatches: 16 + 16 + 16 + 3 rows
    algo.policy.model.update_ops = lambda: ["not a callable"]
    with pytest.raises(ModelContractError, match=r"update_ops\(\) must return callables"):
        algo.train()


@both
def test_memory_passes_on_what_its_trunk_adds(framework):
    base = {"torch": TorchModelV2, "tf": TFModelV2}[framework]

    class Trunk(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.layer, self.num_outputs, self.calls = layer(framework, 3), 3, 0
            self.view_requirements["prev_rewards"] = ViewRequirement("rewards", shift=-1)

        def forward(self, input_dict, state, seq_lens):
            self.names = sorted(input_dict)
            return self.layer(input_dict["obs"]), state

        def custom_loss(self, policy_loss, loss_inputs):
            self.called = True
            return policy_loss

        def metrics(self):
            return {"of_the_trunk": 1.0}

        def update_ops(self):
            return [lambda: setattr(self, "calls", self.calls + 1)]

    algo = PPO(Walk, {**SMALL, "model": {**MEMORIES["lstm"], "custom_model": Trunk}})
    assert algo.train()["info"]["learner"]["model"] == {"of_the_trunk": 1.0}
    trunk = algo.policy.model.trunk
    assert trunk.called
    assert trunk.calls >= 4
    assert "prev_rewards" in trunk.names


@both
def test_a_traced_loss_and_its_metrics(framework):
    base = {"torch": TorchModelV2, "tf": TFModelV2}[framework]

    class Regularised(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.layer = (
                torch.nn.Linear(2, self.num_outputs)
                if framework == "torch"
                else tf.keras.layers.Dense(self.num_outputs)
            )

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs"]), state

        def value_function(self):
            return self.last_output()[:, 0]

        def custom_loss(self, policy_loss, loss_inputs):
            weight = self.layer.weight if framework == "torch" else self.layer.kernel
            self.norm = (
                (weight**2).sum()
                if framework == "torch"
                else tf.reduce_sum(tf.convert_to_tensor(weight) ** 2)
            )
            if framework == "torch":
                return [loss + 100 * self.norm for loss in policy_loss]  # a list in, a list out
            return policy_loss + 100 * self.norm

        def metrics(self):
            return {"norm": self.norm, "steps": 3}

    algo = PPO(Walk, {**SMALL, "lr": 0.01, "model": {"custom_model": Regularised}})
    found = [algo.train()["info"]["learner"]["model"] for _ in range(12)]
    assert found[-1]["norm"] < 0.2 * found[0]["norm"]
    assert found[0]["steps"] == 3.0


def test_eager_loss_runs_any_python():
    calls = []

    class Eager(TFModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.layer = tf.keras.layers.Dense(self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs"]), state

        def value_function(self):
            return self.last_output()[:, 0]

        def custom_loss(self, policy_loss, loss_inputs):
            calls.append(float(policy_loss.numpy()))
            return [policy_loss, tf.constant(0.0)]

    algo = PPO(Walk, {**SMALL, "eager_tracing": False, "model": {"custom_model": Eager}})
    algo.train()
    assert len(calls) == 8


def with_custom_loss(framework, custom_loss):
    """A model whose value is the sum of what it observes, with a loss of its own."""
    base = {"torch": TorchModelV2, "tf": TFModelV2}[framework]

    class WithLoss(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.layer = layer(framework, self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            self._value = (
                tf.reduce_sum(input_dict["obs"], 1)
                if framework == "tf"
                else input_dict["obs"].sum(1)
            )
            return self.layer(input_dict["obs"]), state

        def value_function(self):
            return self._value

    WithLoss.custom_loss = custom_loss
    return WithLoss


@both
def test_custom_loss_sees_the_columns_of_rllib_s_batches(framework):
    seen = []

    def custom_loss(self, policy_loss, loss_inputs):
        names = (
            "obs",
            "new_obs",
            "actions",
            "rewards",
            "terminateds",
            "truncateds",
            "dones",
            "action_logp",
            "action_dist_inputs",
            "vf_preds",
            "advantages",
            "value_targets",
        )
        seen.append({name: array(loss_inputs[name]) for name in names})
        return policy_loss

    model = {"custom_model": with_custom_loss(framework, custom_loss)}
    PPO(Walk, {**SMALL, "framework": framework, "eager_tracing": False, "model": model}).train()
    for batch in seen:
        rows = np.arange(len(batch["obs"]))
        episode, t = (batch["obs"] * 10).round().astype(int).T
        np.testing.assert_allclose(batch["new_obs"] * 10, np.stack([episode, t + 1], 1), rtol=1e-5)
        over = t + 1 == np.array(Walk.lengths)[episode % 4]
        np.testing.assert_array_equal(batch["dones"], over)
        np.testing.assert_array_equal(batch["terminateds"], over & (episode % 2 == 0))
        np.testing.assert_array_equal(batch["truncateds"], over & (episode % 2 == 1))
        np.testing.assert_array_equal(batch["rewards"], t + 1)
        logits = batch["action_dist_inputs"].astype(np.float64)
        logp = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        assert batch["actions"].shape == rows.shape
        np.testing.assert_allclose(batch["action_logp"], logp[rows, batch["actions"]], atol=1e-5)
        np.testing.assert_allclose(batch["vf_preds"], batch["obs"].sum(1), rtol=1e-5)
        np.testing.assert_allclose(
            batch["value_targets"], batch["advantages"] + batch["vf_preds"], atol=1e-4
        )
    assert sum(batch["truncateds"].sum() for batch in seen) > 0


@pytest.mark.grid
@both
@pytest.mark.parametrize(
    ("returned", "named"),
    [
        (None, "found None"),
        (0.5, r"found 0\.5"),
        ([], r"found \[\]"),
        ([None], r"found \[None\]"),
        ("loss", "found 'loss'"),
        (np.float32(1), r"found (np\.float32\()?1\.0"),
    ],
)
def test_custom_loss_that_returns_no_tensor_is_named(framework, returned, named):
    model = {
        "custom_model": with_custom_loss(framework, lambda self, policy_loss, loss_inputs: returned)
    }
    algo = PPO(Walk, {**SMALL, "framework": framework, "model": model})
    with pytest.raises(
        ModelContractError, match=r"WithLoss: custom_loss\(\) must return a tensor.*" + named
    ):
        algo.train()


@both
def test_custom_loss_without_a_gradient_is_named(framework):
    def cut_off(self, policy_loss, loss_inputs):
        return policy_loss.detach() if framework == "torch" else tf.stop_gradient(policy_loss)

    algo = PPO(
        Walk,
        {
            **SMALL,
            "framework": framework,
            "model": {"custom_model": with_custom_loss(framework, cut_off)},
        },
    )
    with pytest.raises(
        ModelContractError, match="the loss does not depend on any weight of WithLoss"
    ):
        algo.train()


# --- experience on disk ---------------------------------------------------------------------------


def test_recorded_experience_is_read_back(tmp_path):
    algo = PPO(Walk, {**SMALL, "model": PLAIN}, record=tmp_path / "data")
    algo.train()
    algo.train()
    assert len(list((tmp_path / "data").iterdir())) == 2
    reader = Reader(tmp_path / "data", batch_size=500)
    batch = reader.next()
    assert batch["obs"].shape == (500, 2)
    assert batch["actions"].shape == (500,)
    episode, t = (batch["obs"] * 10).round().astype(int).T
    over = t + 1 == np.array(Walk.lengths)[episode % 4]
    np.testing.assert_array_equal(batch["dones"], over)
    np.testing.assert_array_equal(batch["rewards"], t + 1)
    assert not np.array_equal(reader.next()["obs"], batch["obs"])

    @tf.function
    def drawn():
        return reader.tf_input_ops()["obs"]

    assert drawn().shape == (500, 2)
    assert not np.array_equal(drawn(), drawn())
    with pytest.raises(
        SavedPolicyError, match=r"no recorded rollouts\. Record some: `rlcatalog train ENV --record"
    ):
        Reader(tmp_path)
