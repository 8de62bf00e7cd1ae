"""What a collector makes of environments: rewards, bootstraps and advantages, in each way of
resetting them.
"""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcatalog
from rlcatalog.errors import ConfigError
from rlcatalog.spaces import Repeated
from rlcatalog_ppo import PPO
from rlcatalog_ppo.env_state import Resumable
from rlcatalog_ppo.learner import minibatches, optimizer_of
from rlcatalog_ppo.loss import Rates
from rlcatalog_ppo.offline import Reader
from rlcatalog_ppo.rollout import Collector
from rlcatalog_runs.evaluation import play
from rlcatalog_tf import TFModelV2, keras
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

both = pytest.mark.parametrize("framework", ["torch", "tf"])
modes = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
GAMMA, LAMBDA = 0.9, 0.7
#: How the episodes end, in turn: terminated, truncated.
ENDS = [(True, False), (False, True), (True, True), (False, True)]


class Written(gym.Env):
    """Writes down what happens, and hands out one and the same array, which it writes over."""

    observation_space, action_space = Box(-100, 100, (2,), np.float32), Discrete(3)

    def __init__(self, number=0):
        self.number, self.log, self.obs = number, [], np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.obs[:] = [len(self.log) + 0.1 * self.number, 0]
        self.log.append({"obs": [self.obs.copy()], "reward": [], "end": None})
        return self.obs, {}

    def step(self, action):
        episode = self.log[-1]
        assert episode["end"] is None, "a step after the end"
        self.obs[1] += 0.1 * float(action) + 0.5
        t = len(episode["reward"]) + 1
        episode["obs"].append(self.obs.copy())
        episode["reward"].append(float(np.sin(3 * t + len(self.log))))
        end = (False, False)
        if t == 2 + (len(self.log) + self.number) % 4:
            end = episode["end"] = ENDS[(len(self.log) + self.number) % 4]
        return self.obs, episode["reward"][-1], *end, {}


class Known(TorchModelV2):
    """Its value of an observation is known."""

    def __init__(self, *args):
        super().__init__(*args)
        self.layer = torch.nn.Linear(2, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self._value = value_of(input_dict["obs"])
        return self.layer(input_dict["obs"]), state

    def value_function(self):
        return self._value


def value_of(obs):
    return obs[..., 0] * 0.3 - obs[..., 1] ** 2


def vectorised(mode, n=3, make=Written):
    """Return a vector environment, and its environments."""
    made = [make(i) for i in range(n)]
    # Under SAME_STEP the vector environment resets before anyone sees the last observation.
    wrap = Resumable if mode is AutoresetMode.SAME_STEP else lambda env: env
    return SyncVectorEnv(
        [lambda env=env: wrap(env) for env in made], copy=False, autoreset_mode=mode
    ), made


def lambda_returns(episode):
    """Return an episode's lambda-returns, each the weighted mean of all n-step returns (Sutton and
    Barto, 12.2).
    """
    rewards, values = episode["reward"], [float(value_of(obs)) for obs in episode["obs"]]
    if episode["end"] is not None and episode["end"][0]:
        values[-1] = 0.0  # it ended by itself, whether or not a time limit came with it
    found = []
    for t in range(len(rewards)):
        left = len(rewards) - t
        of_n = [
            sum(GAMMA**k * rewards[t + k] for k in range(n)) + GAMMA**n * values[t + n]
            for n in range(1, left + 1)
        ]
        weights = [(1 - LAMBDA) * LAMBDA ** (n - 1) for n in range(1, left)] + [
            LAMBDA ** (left - 1)
        ]
        found.append(float(np.dot(weights, of_n)))
    return found


@modes
def test_targets_are_the_returns_of_what_the_environments_wrote_down(mode):
    envs, written = vectorised(mode)
    policy = rlcatalog.build(env=Written(), config={"custom_model": Known})
    rollout = Collector(policy, envs, 0, GAMMA).collect(23)
    batch = rollout.batch(GAMMA, LAMBDA)
    episodes = [episode for env in written for episode in env.log if episode["reward"]]
    assert {episode["end"] for episode in episodes} >= {*ENDS, None}
    assert (
        rollout.steps == sum(len(episode["reward"]) for episode in episodes) == len(batch["logp"])
    )
    np.testing.assert_array_equal(
        batch["obs"], np.concatenate([episode["obs"][:-1] for episode in episodes])
    )
    np.testing.assert_allclose(
        batch["reward"], np.concatenate([e["reward"] for e in episodes]), rtol=1e-6
    )
    expected = np.concatenate([lambda_returns(episode) for episode in episodes])
    np.testing.assert_allclose(batch["target"], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        batch["advantage"], expected - value_of(batch["obs"]), rtol=1e-4, atol=1e-4
    )


@modes
def test_episodes_are_counted_as_they_were(mode):
    envs, written = vectorised(mode)
    collector = Collector(
        rlcatalog.build(env=Written(), config={"custom_model": Known}), envs, 0, GAMMA
    )
    for length in (1, 7, 2, 9):
        collector.collect(length)
    over = [episode for env in written for episode in env.log if episode["end"] is not None]
    assert collector.episodes.total == len(over)
    np.testing.assert_allclose(
        sorted(collector.episodes.returns), sorted(sum(e["reward"]) for e in over), rtol=1e-5
    )
    assert sorted(collector.episodes.lengths) == sorted(len(e["reward"]) for e in over)


@modes
def test_filter_learns_from_what_is_acted_on_and_once(mode):
    """Not from last observations, on which nobody acts."""
    envs, written = vectorised(mode)
    policy = rlcatalog.build(
        env=Written(), config={"observation_filter": "MeanStdFilter", "fcnet_hiddens": [4]}
    )
    collector = Collector(policy, envs, 0, GAMMA)
    for length in (5, 12):
        collector.collect(length)
    seen = []
    for episode in (episode for env in written for episode in env.log):
        seen += episode["obs"] if episode["end"] is None else episode["obs"][:-1]
    learned = policy.filter.get_state()
    assert learned["n"] == len(seen)
    np.testing.assert_allclose(learned["mean"], np.mean(seen, axis=0), rtol=1e-5)
    np.testing.assert_allclose(learned["m2"], len(seen) * np.var(seen, axis=0), rtol=1e-4)


MEMORIES = {
    "lstm": {"fcnet_hiddens": [8], "max_seq_len": 4, "use_lstm": True, "lstm_cell_size": 5,
             "lstm_use_prev_action": True, "lstm_use_prev_reward": True},
    "attention": {"fcnet_hiddens": [8], "max_seq_len": 3, "use_attention": True, "attention_dim": 8,
                  "attention_head_dim": 4, "attention_use_n_prev_rewards": 2},
}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize(
    ("memory", "framework"), [("lstm", "torch"), ("attention", "torch"), ("lstm", "tf")]
)
@modes
def test_memories_are_those_of_episodes_played_alone(memory, framework, mode):
    envs, written = vectorised(mode)
    policy = rlcatalog.build(env=Written(), config=MEMORIES[memory], framework=framework)
    collector = Collector(policy, envs, 0, GAMMA)
    found = [collector.collect(length) for length in (10, 8)]
    for rollout in found:
        batch = rollout.batch(GAMMA, LAMBDA)
        assert batch["seq_lens"].sum() == rollout.steps
        again = policy.evaluate(batch)  # stored memories and sequences
        logp, value = (
            np.asarray(x.detach() if framework == "torch" else x) for x in (again.logp, again.value)
        )
        np.testing.assert_allclose(logp, batch["logp"], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(
            value, batch["target"] - batch["advantage"], rtol=1e-3, atol=1e-4
        )
    # Played again one by one, each from a fresh state: the values of all steps, and of what was cut
    # off.
    for i, env in enumerate(written):
        rows = [
            (rollout.raw_action[t, i], rollout.value[t, i], rollout.bootstrap[t, i])
            for rollout in found
            for t in range(len(rollout.done))
            if rollout.idle is None or not rollout.idle[t, i]
        ]
        for episode in env.log:
            state = reward = None
            for obs, paid in zip(episode["obs"], episode["reward"], strict=False):
                action, value, bootstrap = rows.pop(0)
                encoded = policy.preprocess(obs[None])
                np.testing.assert_allclose(
                    policy.values(encoded, state, prev_reward=reward), value, atol=1e-4
                )
                state = policy.act(obs[None], state, prev_reward=reward).state
                if "action_inputs" in state.history.windows:
                    state.history.windows["action_inputs"][:, -1] = np.eye(3)[action[0]]
                reward = np.array([paid])
            if episode["end"] == (False, True):
                last = policy.values(
                    policy.preprocess(episode["obs"][-1][None]), state, prev_reward=reward
                )
                np.testing.assert_allclose(bootstrap, GAMMA * last[0], atol=1e-4)
            elif episode["end"] is not None:
                assert bootstrap == 0.0
        assert not rows


# --- what others are shown ------------------------------------------------------------------------


class Pays(gym.Env):
    """Pays 1 per step and is cut after five; hands out one array."""

    observation_space, action_space = Box(-10, 10, (1,), np.float32), Discrete(2)
    metadata: ClassVar = {"render_modes": []}

    def __init__(self):
        self.obs = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.obs[:] = 0
        return self.obs, {}

    def step(self, action):
        self.obs += 1
        return self.obs, 1.0, False, bool(self.obs[0] == 5), {}


SHORT = {"num_envs": 2, "rollout_length": 12, "minibatch_size": 8, "num_epochs": 1, "seed": 0}


@both
def test_losses_and_records_are_shown_the_rewards_of_the_environment(framework, tmp_path):
    base, seen = {"torch": TorchModelV2, "tf": TFModelV2}[framework], []

    class Looks(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.layer = torch.nn.Linear(1, 2) if framework == "torch" else keras.layers.Dense(2)

        def forward(self, input_dict, state, seq_lens):
            return self.layer(input_dict["obs"]), state

        def value_function(self):
            return self.last_output()[:, 0] + 7.0

        def custom_loss(self, policy_loss, loss_inputs):
            seen.append(np.asarray(loss_inputs["rewards"]))
            return policy_loss

    config = {
        **SHORT,
        "eager_tracing": False,
        "framework": framework,
        "model": {"custom_model": Looks},
    }
    algo = PPO(Pays, config, record=tmp_path)
    algo.train()
    assert np.concatenate(seen).tolist() == [1.0] * 24
    assert set(Reader(tmp_path).next()["rewards"].tolist()) == {1.0}
    algo.train()
    algo.train()
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        f"rollout-0000{i}.npz" for i in range(3)
    ]


def test_its_own_environments_may_reuse_their_buffers():
    """The value of the last observation, 5, not of the next episode's first."""

    class One(Known):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)
            self.layer = torch.nn.Linear(1, self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            self._value = input_dict["obs"][:, 0] + 100.0
            return self.layer(input_dict["obs"]), state

    algo = PPO(Pays, {**SHORT, "gamma": 0.5, "model": {"custom_model": One}})
    rollout = algo._collector.collect(12)
    expected = np.zeros((12, 2))
    expected[[4, 9]] = 0.5 * 105.0
    np.testing.assert_allclose(rollout.bootstrap, expected)
    # Which all vector environments over the class would share.
    assert "autoreset_mode" not in Pays.metadata


class RunsOut(gym.Env):
    """Offers as many actions as it has steps left, by a list and by a mask."""

    action_space = Discrete(4)
    observation_space = Dict(
        {
            "left": Box(0, 9, (1,)),
            "avail_actions": Repeated(Box(-1, 1, (2,)), 4),
            "action_mask": Box(0, 1, (4,), np.int8),
        }
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3
        return self._seen(), {}

    def step(self, action):
        assert action < self.left
        self.left -= 1
        return self._seen(), 1.0, False, self.left == 0, {}

    def _seen(self):
        listed = [np.full(2, 0.1 * i, np.float32) for i in range(self.left)]
        mask = (np.arange(4) < self.left).astype(np.int8)
        return {"left": np.float32([self.left]), "avail_actions": listed, "action_mask": mask}


@modes
def test_nor_need_one_be_where_a_vector_environment_resets_later(mode):
    envs = SyncVectorEnv([RunsOut] * 2, autoreset_mode=mode)
    policy = rlcatalog.build(env=RunsOut(), config={"fcnet_hiddens": [8]})
    batch = Collector(policy, envs, 0, GAMMA).collect(15).batch(GAMMA, LAMBDA)
    assert set(batch["obs"][:, policy.preprocessor.leaves()[-1].start]) <= {1.0, 2.0, 3.0}
    assert batch["mask"].sum(axis=1).tolist() == [3, 2, 1] * (len(batch["mask"]) // 6) * 2
    assert play(policy, envs, 4) == [3.0] * 4


@pytest.mark.parametrize(
    ("framework", "memory"),
    [
        pytest.param("torch", {}, id="torch-"),
        pytest.param(
            "torch", {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5}, id="torch-lstm"
        ),
        pytest.param("tf", {}, id="tf-"),
        pytest.param(
            "tf",
            {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5},
            id="tf-lstm",
            marks=pytest.mark.attack,
        ),
    ],
)
def test_episode_may_be_cut_where_no_action_is_available(framework, memory):
    algo = PPO(
        RunsOut, {**SHORT, "framework": framework, "model": {"fcnet_hiddens": [8], **memory}}
    )
    result = algo.train()
    assert result["episode_return_mean"] == 3.0
    assert np.isfinite(result["info"]["learner"]["vf_loss"])
    assert algo.evaluate(2) == [3.0, 3.0]


# --- playing --------------------------------------------------------------------------------------


@modes
def test_episodes_are_played_in_any_vector_environment(mode):
    envs, written = vectorised(mode, 2)
    policy = rlcatalog.build(env=Written(), config=MEMORIES["lstm"])
    noted = []
    returns = play(policy, envs, 7, on_episode=noted.append)
    assert returns == noted
    expected = [
        sum(e["reward"]) for env, n in zip(written, (4, 3), strict=True) for e in env.log[:n]
    ]
    np.testing.assert_allclose(sorted(returns), sorted(expected), rtol=1e-5)
    envs.reset()  # it is left open


# --- minibatches, learning rates, configs ---------------------------------------------------------


def test_minibatch_of_one_row_is_left_out():
    """Its advantage has no deviation; normalised by it, all weights would be no numbers."""
    rng, rows = np.random.default_rng(0), {"logp": np.zeros(33), "obs": np.zeros((33, 2))}
    assert [len(part["logp"]) for part in minibatches(rows, 16, rng)] == [16, 16]
    assert [len(part["logp"]) for part in minibatches(rows, 11, rng)] == [11, 11, 11]
    rows |= {"seq_lens": np.array([4, 4, 4, 4, 1]), "state": [np.zeros((5, 3))]}
    rows = {name: array[:17] if name in ("logp", "obs") else array for name, array in rows.items()}
    alone = 0
    for _ in range(20):
        parts = [part["seq_lens"].tolist() for part in minibatches(rows, 16, rng)]
        assert [1] not in parts
        alone += sum(map(sum, parts)) == 16
    assert alone > 1


def test_last_row_alone_does_no_harm():
    algo = PPO(Pays, {**SHORT, "rollout_length": 13, "minibatch_size": 25})
    assert np.isfinite(algo.train()["info"]["learner"]["policy_loss"])
    assert all(np.isfinite(weight).all() for weight in algo.policy.model.get_weights().values())


def test_learning_rate_falls_to_zero_over_all_steps():
    config = {**SHORT, "lr": 0.5, "total_steps": 96}
    algo = PPO(Pays, config)
    assert [algo.train()["info"]["learner"]["lr"] for _ in range(5)] == [
        0.5,
        0.375,
        0.25,
        0.125,
        0.0,
    ]
    for kept in ({**config, "anneal_lr": False}, {**config, "total_steps": None}):
        algo = PPO(Pays, kept)
        assert [algo.train()["info"]["learner"]["lr"] for _ in range(3)] == [0.5] * 3


@both
def test_learning_rate_is_that_of_the_optimiser(framework):
    algo = PPO(
        Pays,
        {
            **SHORT,
            "framework": framework,
            "lr": 1e-2,
            "grad_clip": None,
            "model": {"fcnet_hiddens": [4]},
        },
    )
    batch = algo._collector.collect(12).batch(0.9, 0.9)
    start, moved = algo.policy.model.get_weights(), []
    for lr in (1e-3, 1e-4):  # a first step is the learning rate's size
        algo.policy.model.set_weights(start)
        optimizer_of(framework)(algo.policy, algo.config, algo.objective).step({**batch}, Rates(lr))
        moved.append(
            max(
                np.abs(w - start[name]).max() for name, w in algo.policy.model.get_weights().items()
            )
        )
    np.testing.assert_allclose(moved, [1e-3, 1e-4], rtol=0.05)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"minibatch_size": 1}, r"minibatch_size = 1: advantages are normalised .* Set 2 or more"),
        ({"num_envs": 1, "rollout_length": 1, "minibatch_size": 1}, "Set 2 or more"),
        (
            {"num_envs": 1, "rollout_length": 1},
            r"num_envs \* rollout_length = 1: advantages are normalised",
        ),
    ],
)
def test_single_step_is_refused_before_anything_is_made(config, message):
    with pytest.raises(ConfigError, match=message):
        PPO("Nowhere-v0", config)


def test_two_steps_are_enough():
    algo = PPO(
        Pays, {"num_envs": 2, "rollout_length": 1, "minibatch_size": 2, "num_epochs": 1, "seed": 0}
    )
    assert np.isfinite(algo.train()["info"]["learner"]["policy_loss"])
