"""Recorded episodes under BC and MARWIL: learners get what an environment runner
would have stored.
"""

import inspect

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.iql.iql import IQLConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.offline.offline_prelearner import OfflinePreLearner
from ray.tune.registry import register_env

import rlcatalog_rllib
from rlcatalog.errors import NotServedError

VECTOR = Box(-1, 1, (3,), np.float32)
#: Name → observation space, action space, model config.
CASES = {
    "plain": (VECTOR, Discrete(3, start=2), {}),
    "bounded": (Discrete(4), Box(-2, 3, (2,), np.float32), {"action_bounds": "affine"}),
    "nested": (
        Dict({"a": VECTOR, "b": Discrete(3)}),
        Tuple([Discrete(2), Box(-1, 1, (1,), np.float32)]),
        {},
    ),
    "masked": (Dict({"seen": VECTOR, "action_mask": MultiBinary(4)}), Discrete(4), {}),
    "views": (
        VECTOR,
        Discrete(3),
        {
            "use_lstm": True,
            "lstm_cell_size": 4,
            "lstm_use_prev_action": True,
            "lstm_use_prev_reward": True,
            "max_seq_len": 20,
        },
    ),
}


class Shown(gym.Env):
    """Shows samples of a space."""

    def __init__(self, config):
        self.observation_space, self.action_space, _ = CASES[config["case"]]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.5, False, False, {}


def configured(case, make=MARWILConfig, **more):
    register_env("shown", Shown)
    config = make().debugging(log_level="ERROR").training(train_batch_size_per_learner=8, **more)
    model = {"fcnet_hiddens": [8], **CASES[case][2]}
    return rlcatalog_rllib.configure(config, "shown", model=model, env_config={"case": case})


def recorded(case, steps=7):
    """Return an episode as an environment emitted it, and what it took."""
    obs_space, action_space, _ = CASES[case]
    for number, space in enumerate((obs_space, action_space)):
        space.seed(number)
    seen = [obs_space.sample() for _ in range(steps + 1)]
    for obs in seen if case == "masked" else []:
        obs["action_mask"][:] = 1
    return SingleAgentEpisode(
        observations=seen,
        actions=[action_space.sample() for _ in range(steps)],
        rewards=[0.1 * (t + 1) for t in range(steps)],
        terminated=True,
        len_lookback_buffer=0,
        observation_space=obs_space,
        action_space=action_space,
    )


def read(config, episode):
    """Return the batch that Ray's reader makes of an episode for the learner, and the module."""
    spec = config.get_multi_rl_module_spec(env=Shown(config.env_config))
    options = {}
    if "module_spec" in inspect.signature(OfflinePreLearner.__init__).parameters:
        # Later versions of Ray read both from the config.
        options = {"module_spec": spec, "module_state": {}}
    reader = OfflinePreLearner(
        config=config, spaces=(episode.observation_space, episode.action_space), **options
    )
    modules = spec.build()
    batch = reader._learner_connector(
        rl_module=modules, batch={}, episodes=[episode], shared_data={}, metrics=None
    )
    return batch["default_policy"], modules["default_policy"]


@pytest.mark.parametrize("case", CASES)
def test_learners_get_encoded_observations_and_raw_actions(case):
    episode = recorded(case)
    seen, taken = list(episode.observations), list(episode.actions)
    batch, module = read(configured(case), episode)
    policy = module.policy
    obs = batch[Columns.OBS]
    encoded = obs["obs"] if isinstance(obs, dict) else obs
    rows = encoded.reshape(-1, *encoded.shape[2:]) if case == "views" else encoded
    np.testing.assert_allclose(rows[:7], policy.preprocess(seen)[:7], rtol=1e-6)
    raw = batch[Columns.ACTIONS].numpy().reshape(-1, policy.action_codec.width)[:7]
    again = policy.action_codec.adapt(raw)
    for t, action in enumerate(taken):
        for part, own in zip(
            again if isinstance(again, tuple) else [again],
            action if isinstance(action, tuple) else [action],
            strict=True,
        ):
            np.testing.assert_allclose(part[t], own, rtol=1e-5, atol=1e-6)
    if case == "masked":
        assert obs["mask"].all()
    if case == "views":
        past = obs["views"]["past_actions"][0]
        np.testing.assert_array_equal(past[0], 0)
        np.testing.assert_array_equal(past[1:7], np.eye(3)[taken[:6]])
        np.testing.assert_allclose(
            obs["views"]["past_rewards"][0, :7].ravel(),
            [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            rtol=1e-6,
        )


def test_what_the_catalogs_own_connectors_recorded_is_left_as_it_is():
    case = "nested"
    config = configured(case)
    first, module = read(config, recorded(case))
    encoded = [row.numpy() for row in first[Columns.OBS]]  # Ray adds a step after the last
    episode = SingleAgentEpisode(
        observations=encoded,
        actions=[row.numpy() for row in first[Columns.ACTIONS][:7]],
        rewards=[0.0] * 7,
        terminated=True,
        len_lookback_buffer=0,
        observation_space=module.observation_space,
        action_space=module.action_space,
    )
    second, _ = read(config, episode)
    for column in (Columns.OBS, Columns.ACTIONS):
        np.testing.assert_array_equal(first[column].numpy()[:7], second[column].numpy()[:7])


class Halved(ConnectorV2):
    """Halves rewards; a connector of the user's own."""

    def __call__(self, *, batch, episodes, **kwargs):
        for episode in episodes:
            episode.set_rewards(new_data=[reward / 2 for reward in episode.get_rewards()])
        return batch


def test_a_learner_connector_of_the_users_own_stays():
    config = configured("plain", learner_connector=lambda obs_space, action_space: Halved())
    batch, _ = read(
        rlcatalog_rllib.configure(config, model={"fcnet_hiddens": [8]}), recorded("plain")
    )
    np.testing.assert_allclose(
        batch[Columns.REWARDS].numpy()[:7], [0.05 * (t + 1) for t in range(7)], rtol=1e-5
    )


def test_what_is_not_served_is_named():
    register_env("shown", Shown)
    with pytest.raises(NotServedError, match=r"observation_filter: BC and MARWIL read data"):
        rlcatalog_rllib.configure(
            BCConfig(),
            "shown",
            model={"observation_filter": "MeanStdFilter"},
            env_config={"case": "plain"},
        )
    with pytest.raises(
        NotServedError,
        match=r"IQLConfig is not supported\. Supported: PPO, APPO, IMPALA, DQN, SAC, BC and MARWIL",
    ):
        rlcatalog_rllib.configure(IQLConfig(), "shown", env_config={"case": "plain"})


def expert(obs):
    """Return the side to push a cart to: it holds the pole for 500 steps nearly always."""
    x, v, angle, turning = obs
    return int(angle + 0.5 * turning + 0.05 * x + 0.1 * v > 0)


def record(path, episodes):
    """Write episodes of CartPole as a table, one step a row."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    env, rows = gym.make("CartPole-v1"), []
    for number in range(episodes):
        obs, _ = env.reset(seed=number)
        ended = cut = False
        while not (ended or cut):
            action = expert(obs)
            new, reward, ended, cut, _ = env.step(action)
            rows.append(
                {
                    "eps_id": str(number),
                    "obs": obs,
                    "actions": action,
                    "rewards": reward,
                    "new_obs": new,
                    "terminateds": ended,
                    "truncateds": cut,
                }
            )
            obs = new
    pandas.DataFrame(rows).to_parquet(path)
    return len(rows) / episodes


@pytest.mark.attack
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")  # Ray Data's own
def test_bc_learns_cartpole_from_a_table(local_ray, tmp_path):
    assert record(tmp_path / "steps.parquet", 12) > 400
    config = BCConfig().debugging(seed=0, log_level="ERROR").reporting(min_time_s_per_iteration=0)
    config.offline_data(
        input_=[str(tmp_path / "steps.parquet")],
        dataset_num_iters_per_learner=60,
        map_batches_kwargs={"concurrency": 1},
    )
    config.training(lr=3e-3, train_batch_size_per_learner=256).env_runners(num_env_runners=0)
    rlcatalog_rllib.configure(
        config, "CartPole-v1", model={"fcnet_hiddens": [32], "observation_filter": "NoFilter"}
    )
    algo = config.build_algo()
    try:
        for _ in range(3):
            algo.train()
        policy = rlcatalog_rllib.to_policy(algo)
    finally:
        algo.stop()
    assert np.mean([played(policy, seed) for seed in range(5)]) > 300


def played(policy, seed):
    """Return what one episode pays."""
    env, total, over = gym.make("CartPole-v1"), 0.0, False
    obs, _ = env.reset(seed=1000 + seed)
    while not over:
        obs, reward, ended, cut, _ = env.step(int(policy.act(obs[None], explore=False).action[0]))
        total, over = total + reward, ended or cut
    return total
