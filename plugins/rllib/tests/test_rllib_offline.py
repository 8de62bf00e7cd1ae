"""Recorded episodes under BC and MARWIL: what the learner gets of them."""

import inspect

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.offline.offline_prelearner import OfflinePreLearner
from ray.tune.registry import register_env

import rlcatalog_rllib
from rlcatalog.errors import NotServedError
from rlcatalog_rllib.offline import EncodeEpisodes

THREE_NUMBERS = Box(-1, 1, (3,), np.float32)
THREE_NUMBERS_AND_MASK = Dict({"seen": THREE_NUMBERS, "action_mask": MultiBinary(4)})
THREE_CHOICES = Discrete(3)


class RandomEnv(gym.Env):
    """Random observations of the space in its config."""

    def __init__(self, config):
        self.observation_space = config["observation_space"]
        self.action_space = config["action_space"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.5, False, False, {}


def configure(
    config=None, *, observation_space=THREE_NUMBERS, action_space=THREE_CHOICES, model=None
):
    """Configure an algorithm for recorded episodes, by default MARWIL."""
    register_env("random-env", RandomEnv)
    if config is None:
        config = MARWILConfig().training(train_batch_size_per_learner=8)
    config.debugging(log_level="ERROR")
    return rlcatalog_rllib.configure(
        config,
        "random-env",
        model={"fcnet_hiddens": [8], **(model or {})},
        env_config={"observation_space": observation_space, "action_space": action_space},
    )


def record_episode(observation_space=THREE_NUMBERS, action_space=THREE_CHOICES):
    """Return an episode of seven random steps, whose rewards are 0.1, 0.2, ..., 0.7."""
    observation_space.seed(0)
    action_space.seed(1)
    observations = [observation_space.sample() for _ in range(8)]
    for obs in observations:
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"][:] = 1
    return SingleAgentEpisode(
        observations=observations,
        actions=[action_space.sample() for _ in range(7)],
        rewards=[0.1 * (step + 1) for step in range(7)],
        terminated=True,
        len_lookback_buffer=0,
        observation_space=observation_space,
        action_space=action_space,
    )


def read_episode(config, episode):
    """Return the batch that Ray's reader makes of an episode for the learner, and the module."""
    env = RandomEnv(config.env_config)
    spec = config.get_multi_rl_module_spec(env=env)
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


#: Model config with which a batch has sequences of 20 steps, and views of past actions and rewards.
LSTM_WITH_PAST = {
    "use_lstm": True,
    "lstm_cell_size": 4,
    "lstm_use_prev_action": True,
    "lstm_use_prev_reward": True,
    "max_seq_len": 20,
}
each_case = pytest.mark.parametrize(
    ("observation_space", "action_space", "model"),
    [
        pytest.param(THREE_NUMBERS, Discrete(3, start=2), {}, id="vector"),
        pytest.param(
            Discrete(4), Box(-2, 3, (2,), np.float32), {"action_bounds": "affine"}, id="Box actions"
        ),
        pytest.param(
            Dict({"a": THREE_NUMBERS, "b": Discrete(3)}),
            Tuple([Discrete(2), Box(-1, 1, (1,), np.float32)]),
            {},
            id="Dict and Tuple",
        ),
        pytest.param(THREE_NUMBERS_AND_MASK, Discrete(4), {}, id="masked"),
        pytest.param(THREE_NUMBERS, Discrete(3), LSTM_WITH_PAST, id="lstm with past"),
    ],
)


@each_case
def test_learner_gets_encoded_observations(observation_space, action_space, model):
    config = configure(observation_space=observation_space, action_space=action_space, model=model)
    episode = record_episode(observation_space, action_space)
    first_seven = list(episode.observations)[:7]

    batch, module = read_episode(config, episode)

    encoded = batch["obs"]
    if isinstance(encoded, dict):  # with masks or views beside the observations
        encoded = encoded["obs"]
    # Ray adds rows after those of the seven steps: one for the last observation, and padding.
    encoded = encoded.reshape(-1, encoded.shape[-1])[:7]
    np.testing.assert_allclose(encoded, module.policy.preprocess(first_seven), rtol=1e-6)


@each_case
def test_learner_gets_raw_actions(observation_space, action_space, model):
    config = configure(observation_space=observation_space, action_space=action_space, model=model)
    episode = record_episode(observation_space, action_space)
    actions = list(episode.actions)

    batch, module = read_episode(config, episode)

    codec = module.policy.action_codec
    # Ray adds rows after those of the seven steps: one for the last observation, and padding.
    raw_actions = batch["actions"].numpy().reshape(-1, codec.width)[:7]
    adapted = codec.adapt(raw_actions)
    if isinstance(action_space, Tuple):
        choices, vectors = adapted
        np.testing.assert_array_equal(choices, [choice for choice, _ in actions])
        np.testing.assert_allclose(vectors, [vector for _, vector in actions], rtol=1e-5)
    else:
        np.testing.assert_allclose(adapted, actions, rtol=1e-5, atol=1e-6)


def test_learner_gets_masks():
    config = configure(observation_space=THREE_NUMBERS_AND_MASK, action_space=Discrete(4))

    batch, _ = read_episode(config, record_episode(THREE_NUMBERS_AND_MASK, Discrete(4)))

    assert batch["obs"]["mask"].all()  # the recorded masks allow everything


def test_learner_gets_past_actions_and_rewards():
    config = configure(model=LSTM_WITH_PAST)
    episode = record_episode()  # of seven steps
    actions = list(episode.actions)

    batch, _ = read_episode(config, episode)

    views = batch["obs"]["views"]
    past_actions = views["past_actions"][0]
    past_rewards = views["past_rewards"][0].ravel()
    np.testing.assert_array_equal(past_actions[0], 0)
    one_hots = np.eye(3)[actions]  # of three choices
    np.testing.assert_array_equal(past_actions[1:7], one_hots[:6])
    # The recorded rewards are 0.1, 0.2, ..., 0.7. None comes before the first step.
    np.testing.assert_allclose(past_rewards[:7], [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6], rtol=1e-6)


def test_encoded_episodes_are_not_encoded_again():
    observation_space = Dict({"a": THREE_NUMBERS, "b": Discrete(3)})
    action_space = Tuple([Discrete(2), Box(-1, 1, (1,), np.float32)])
    config = configure(observation_space=observation_space, action_space=action_space)
    batch, module = read_episode(config, record_episode(observation_space, action_space))
    obs = batch["obs"].numpy()  # of seven steps, and the last observation
    raw_actions = batch["actions"].numpy()[:7]
    # The same episode, of seven steps, as the connectors of a catalog policy record it.
    encoded_episode = SingleAgentEpisode(
        observations=list(obs),
        actions=list(raw_actions),
        rewards=[0.0] * 7,
        terminated=True,
        len_lookback_buffer=0,
        observation_space=module.observation_space,
        action_space=module.action_space,
    )

    new_batch, _ = read_episode(config, encoded_episode)

    np.testing.assert_array_equal(new_batch["obs"][:7].numpy(), obs[:7])
    np.testing.assert_array_equal(new_batch["actions"][:7].numpy(), raw_actions)


@pytest.fixture
def encoded_episode_like_the_envs():
    """An episode with raw actions, whose encoded observations are in the environment's space.

    The actions are mapped from [-1, 1] to the bounds of the action space.
    """
    observation_space = Box(-9, 9, (3,), np.float32)
    action_space = Box(-2, 6, (1,), np.float32)
    config = configure(observation_space=observation_space, action_space=action_space)
    episode = record_episode(observation_space, action_space)
    module = config.get_multi_rl_module_spec(env=RandomEnv(config.env_config)).build()
    module = module["default_policy"]
    [encoded_episode] = encode_episodes([episode], module)
    raw_actions = np.array(encoded_episode.actions)
    np.testing.assert_allclose(raw_actions, (np.array(episode.actions) - 2) / 4, rtol=1e-5)
    return encoded_episode, module


def encode_episodes(episodes, module):
    """Return what the learner connector makes of a list of episodes."""
    episodes = list(episodes)
    EncodeEpisodes()(rl_module=module, batch={}, episodes=episodes)
    return episodes


@pytest.mark.parametrize("way", ["again", "stored", "slice"])
def test_raw_actions_are_not_converted_again(encoded_episode_like_the_envs, way):
    episode, module = encoded_episode_like_the_envs
    raw_actions = np.array(episode.actions)
    if way == "stored":
        episode = SingleAgentEpisode.from_state(episode.get_state())
    if way == "slice":
        episode = episode[0:7]

    [again] = encode_episodes([episode], module)

    np.testing.assert_array_equal(np.array(again.get_actions()), raw_actions)


def test_episodes_of_a_runner_are_known_to_be_encoded(rllib):
    config = rllib.configure("Pendulum-v1", model={"action_bounds": "affine"})
    training = rllib.make_training(config)
    [episode, *_] = training.runner.sample(num_timesteps=12)
    # Pendulum's own space contains its encoded observations.
    assert training.runner.env.single_observation_space.contains(episode.get_observations(0))

    [again] = encode_episodes([episode], training.module)

    assert again is episode


class HalveRewards(ConnectorV2):
    """A user's connector that halves rewards."""

    def __call__(self, *, batch, episodes, **kwargs):
        for episode in episodes:
            episode.set_rewards(new_data=[reward / 2 for reward in episode.get_rewards()])
        return batch


def test_learner_connector_of_a_user_runs_once():
    config = MARWILConfig().training(
        train_batch_size_per_learner=8,
        learner_connector=lambda observation_space, action_space: HalveRewards(),
    )
    configure(config)
    # Configuring a config again must not add the connector again.
    config = rlcatalog_rllib.configure(config, model={"fcnet_hiddens": [8]})

    batch, _ = read_episode(config, record_episode())

    # The user's connector halves the recorded rewards, 0.1, 0.2, ..., 0.7.
    expected = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35]
    np.testing.assert_allclose(batch["rewards"][:7].numpy(), expected, rtol=1e-5)


def test_filters_are_rejected():
    with pytest.raises(NotServedError, match="BC and MARWIL read data"):
        configure(BCConfig(), model={"observation_filter": "MeanStdFilter"})


# --- learning from a table ------------------------------------------------------------------------


def choose_side(obs):
    """Return the side to push a cart to: it holds the pole for 500 steps nearly always."""
    position, velocity, angle, angular_velocity = obs
    return int(angle + 0.5 * angular_velocity + 0.05 * position + 0.1 * velocity > 0)


def record_cartpole(path, num_episodes):
    """Write episodes of `choose_side` as a table, one step a row; return the mean of their
    lengths.
    """
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    env = gym.make("CartPole-v1")
    rows = []
    for number in range(num_episodes):
        obs, _ = env.reset(seed=number)
        is_over = False
        while not is_over:
            action = choose_side(obs)
            new_obs, reward, terminated, truncated, _ = env.step(action)
            rows.append(
                {
                    "eps_id": str(number),
                    "obs": obs,
                    "actions": action,
                    "rewards": reward,
                    "new_obs": new_obs,
                    "terminateds": terminated,
                    "truncateds": truncated,
                }
            )
            obs = new_obs
            is_over = terminated or truncated
    pandas.DataFrame(rows).to_parquet(path)
    return len(rows) / num_episodes


def play_cartpole(policy, seed):
    """Return the return of one episode."""
    env = gym.make("CartPole-v1")
    obs, _ = env.reset(seed=1000 + seed)
    total = 0.0
    is_over = False
    while not is_over:
        action = policy.act(obs[None], explore=False).action[0]
        obs, reward, terminated, truncated, _ = env.step(int(action))
        total += reward
        is_over = terminated or truncated
    return total


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")  # Ray Data's own
def test_bc_learns_cartpole_from_a_table(local_ray, rllib, tmp_path):
    path = tmp_path / "steps.parquet"
    mean_recorded_return = record_cartpole(path, num_episodes=12)
    config = BCConfig().debugging(seed=0, log_level="ERROR").reporting(min_time_s_per_iteration=0)
    config.offline_data(
        input_=[str(path)],
        dataset_num_iters_per_learner=60,
        map_batches_kwargs={"concurrency": 1},
    )
    config.training(lr=3e-3, train_batch_size_per_learner=256).env_runners(num_env_runners=0)
    model = {"fcnet_hiddens": [32], "observation_filter": "NoFilter"}
    rlcatalog_rllib.configure(config, "CartPole-v1", model=model)

    with rllib.build_algorithm(config) as algorithm:
        for _ in range(3):
            algorithm.train()
        policy = rlcatalog_rllib.to_policy(algorithm)

    mean_return = np.mean([play_cartpole(policy, seed) for seed in range(5)])
    # The highest return is 500, and random actions return about 20.
    assert mean_recorded_return > 400
    assert mean_return > 300
