"""Action masks in MaskablePPO, PPO and A2C, and memories in RecurrentPPO of sb3-contrib."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import sb3_contrib
import torch
from engine_models import WithBatchStatistics
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from sb3_contrib import MaskablePPO
from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from sb3_contrib.common.wrappers import ActionMasker
from sb3_helpers import score_rollout
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import rlcatalog
from rlcatalog.errors import ActionMaskError, NotServedError
from rlcatalog.spaces import Repeated
from rlcatalog_sb3 import (
    CatalogMaskablePolicy,
    CatalogPolicy,
    CatalogRecurrentPolicy,
    RecurrentPPO,
    for_sb3,
    to_policy,
)
from rlcatalog_sb3.contrib import sequence_lengths
from rlcatalog_torch import RecurrentNetwork

# One config serves environments with and without masks, which read different keys.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")

#: Rollouts of 64 steps, with two passes over each.
SETTINGS = {"n_steps": 64, "batch_size": 64, "n_epochs": 2, "seed": 0, "device": "cpu"}
#: With two environments: 32 actions before the first update and 32 after it. A choice at random is
#: forbidden most times.
SHORT_ROLLOUTS = {**SETTINGS, "n_steps": 16, "batch_size": 32}
LSTM_OF_6_UNITS = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 6}


class Doors(gym.Env):
    """One or more choices among doors. For each choice, two doors are open at a time.

    The open door with the largest number pays. The environment counts how often an action tries a
    closed door: `forbidden`.

    Args:
        action_space: Choices with six doors in all.
        mask_in_observation: Whether observations contain a mask of the open doors.
        closes_at_end: Whether no door is open in an episode's last observation.
    """

    def __init__(self, action_space=None, mask_in_observation=True, closes_at_end=False):
        self.action_space = Discrete(6) if action_space is None else action_space
        self.first_doors = np.ravel(getattr(self.action_space, "start", 0))
        self.doors_per_choice = [6] if isinstance(self.action_space, Discrete) else [3, 3]
        self.mask_in_observation = mask_in_observation
        self.closes_at_end = closes_at_end
        spaces = {"light": Box(-1, 1, (2,), np.float32)}
        if mask_in_observation:
            spaces["action_mask"] = Box(0, 1, (6,), np.int8)
        self.observation_space = Dict(spaces)
        self.forbidden = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        doors = np.ravel(action) - self.first_doors
        masks = np.split(self.open, np.cumsum(self.doors_per_choice)[:-1])
        reward = 0.0
        for mask, door in zip(masks, doors, strict=True):
            if not mask[door]:
                self.forbidden += 1
            if door == np.flatnonzero(mask)[-1]:
                reward += 1 / len(doors)
        self.steps += 1
        return self._observe(), reward, self.steps == 10, False, {}

    def _observe(self):
        masks = []
        for doors in self.doors_per_choice:
            mask = np.zeros(doors, np.int8)
            mask[self.np_random.choice(doors, 2, replace=False)] = 1
            masks.append(mask)
        self.open = np.concatenate(masks)
        if self.closes_at_end and self.steps == 10:
            self.open[:] = 0
        obs = {"light": self.np_random.uniform(-1, 1, 2).astype(np.float32)}
        if self.mask_in_observation:
            obs["action_mask"] = self.open
        return obs


class DoorsWithMethod(Doors):
    """Gives its masks by the method `action_masks` only."""

    def __init__(self):
        super().__init__(mask_in_observation=False)

    def action_masks(self):
        return self.open.astype(bool)


def count_forbidden(algorithm):
    """Return how many actions the masks of `Doors` forbade."""
    return sum(algorithm.env.get_attr("forbidden"))


# --- MaskablePPO, PPO and A2C ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "make_env",
    [
        pytest.param(lambda: for_sb3(Doors()), id="observation"),
        pytest.param(lambda: ActionMasker(Doors(), lambda env: env.open), id="both, not flattened"),
        pytest.param(lambda: for_sb3(DoorsWithMethod()), id="method"),
        pytest.param(DoorsWithMethod, id="method, not flattened"),
        pytest.param(lambda: for_sb3(Doors(MultiDiscrete([3, 3]))), id="MultiDiscrete"),
        pytest.param(lambda: for_sb3(Doors(Tuple([Discrete(3), Discrete(3)]))), id="Tuple"),
        pytest.param(lambda: for_sb3(Doors(Discrete(6, start=4))), id="Discrete from 4"),
        pytest.param(lambda: for_sb3(Doors(closes_at_end=True)), id="nothing allowed at the end"),
    ],
)
def test_maskable_ppo_takes_no_forbidden_action(make_env):
    envs = make_vec_env(make_env, n_envs=2)
    model = MaskablePPO(CatalogMaskablePolicy, envs, **SHORT_ROLLOUTS)

    model.learn(64)

    assert count_forbidden(model) == 0


def test_maskable_ppo_masks_by_observation_without_use_masking():
    model = MaskablePPO(CatalogMaskablePolicy, make_vec_env(Doors, 2), **SHORT_ROLLOUTS)

    # Stable-Baselines3 then asks the environment for no masks.
    model.learn(64, use_masking=False)

    assert count_forbidden(model) == 0


@pytest.mark.grid
@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize(
    "make_env",
    [
        pytest.param(Doors, id="observation"),
        pytest.param(lambda: for_sb3(DoorsWithMethod()), id="method"),
        pytest.param(lambda: for_sb3(Doors(closes_at_end=True)), id="nothing allowed at the end"),
    ],
)
def test_ppo_and_a2c_take_no_forbidden_action(algorithm, make_env):
    settings = {"n_steps": 16, "seed": 0, "device": "cpu"}
    if algorithm is PPO:
        settings["batch_size"] = 32
    model = algorithm(CatalogPolicy, make_vec_env(make_env, 2), **settings)

    model.learn(64)

    assert count_forbidden(model) == 0


@pytest.mark.parametrize("env_class", [Doors, DoorsWithMethod])
def test_maskable_ppo_rejects_memory_and_advises_recurrent_ppo(env_class):
    kwargs = {"model_config": {"use_lstm": True, "lstm_cell_size": 6}}

    with pytest.raises(NotServedError, match=r"^use_lstm.*: MaskablePPO keeps no state") as caught:
        MaskablePPO(CatalogMaskablePolicy, for_sb3(env_class()), policy_kwargs=kwargs)

    advice = "Use RecurrentPPO(CatalogRecurrentPolicy, for_sb3(env), ...) from rlcatalog_sb3"
    assert advice in str(caught.value)
    assert "A2C" not in str(caught.value)  # it keeps no state either


@pytest.mark.parametrize("env_class", [Doors, DoorsWithMethod])
def test_recurrent_ppo_takes_no_forbidden_action(env_class):
    kwargs = {"model_config": {"use_lstm": True, "lstm_cell_size": 6}}
    env = for_sb3(env_class())
    model = RecurrentPPO(
        CatalogRecurrentPolicy, env, policy_kwargs=kwargs, n_steps=16, batch_size=16, device="cpu"
    )

    model.learn(64)

    assert count_forbidden(model) == 0


@pytest.fixture
def doors_policy():
    """A policy of MaskablePPO for `Doors`: six actions, masks in the observation."""
    return MaskablePPO(CatalogMaskablePolicy, for_sb3(Doors()), **SETTINGS).policy


def make_doors_obs(mask):
    """Return one observation of flattened `Doors` as tensors."""
    return {"obs": torch.zeros(1, 2), "action_mask": torch.tensor([mask])}


def test_maskable_policy_samples_what_both_masks_allow(doors_policy):
    obs = make_doors_obs(mask=[1, 1, 0, 0, 0, 0])
    mask_of_method = np.array([[0, 1, 1, 1, 1, 1]], bool)

    for _ in range(5):
        action, _, _ = doors_policy(obs, action_masks=mask_of_method)
        assert action.item() == 1


def test_maskable_policy_predicts_what_both_masks_allow(doors_policy):
    obs = {"obs": np.zeros((1, 2)), "action_mask": np.array([[1, 1, 0, 0, 0, 0]])}
    mask_of_method = np.array([[0, 1, 1, 1, 1, 1]], bool)

    action, _ = doors_policy.predict(obs, action_masks=mask_of_method)

    assert action[0] == 1


def test_maskable_policy_scores_the_only_allowed_action(doors_policy):
    obs = make_doors_obs(mask=[1, 1, 0, 0, 0, 0])
    mask_of_method = torch.tensor([[0.0, 1, 1, 1, 1, 1]])

    values, logp, entropy = doors_policy.evaluate_actions(obs, torch.tensor([1]), mask_of_method)

    assert values.shape == (1, 1)
    assert logp.item() == 0.0
    assert entropy.item() == 0.0


def test_maskable_policy_distribution_has_both_masks(doors_policy):
    obs = make_doors_obs(mask=[1, 1, 0, 0, 0, 0])
    mask_of_method = np.array([[0, 1, 1, 1, 1, 1]], bool)

    distribution = doors_policy.get_distribution(obs, mask_of_method)

    assert distribution.mode().item() == 1


def test_maskable_policy_rejects_masks_without_common_action(doors_policy):
    obs = make_doors_obs(mask=[1, 1, 0, 0, 0, 0])
    mask_of_method = np.array([[0, 0, 1, 1, 1, 1]], bool)

    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        doors_policy(obs, action_masks=mask_of_method)


def test_maskable_policy_scores_actions_like_its_exported_policy():
    model = MaskablePPO(CatalogMaskablePolicy, for_sb3(Doors()), **SETTINGS)
    mask = [1, 1, 0, 0, 0, 0]

    _, logp, _ = model.policy.evaluate_actions(make_doors_obs(mask), torch.tensor([1]))
    batch = {"obs": np.zeros((1, 2)), "raw_action": np.ones((1, 1)), "mask": np.array([mask])}
    exported = to_policy(model).evaluate(batch)

    torch.testing.assert_close(logp, exported.logp)


class Offers(gym.Env):
    """Offers its available actions as a list of vectors, which may be empty."""

    observation_space = Dict(
        {"seen": Box(-1, 1, (2,), np.float32), "avail_actions": Repeated(Box(-1, 1, (3,)), 4)}
    )
    action_space = Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(num_actions=2), {}

    def step(self, action):
        is_over = bool(self.np_random.random() < 0.2)
        return self.observe(num_actions=2), 1.0, False, is_over, {}

    def observe(self, num_actions):
        actions = [self.np_random.uniform(-1, 1, 3).astype(np.float32) for _ in range(num_actions)]
        seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"seen": seen, "avail_actions": actions}


def make_offers_obs(env):
    """Return two encoded observations of `Offers` as at the end of an episode: of the first, no
    action is available.
    """
    env.reset(seed=0)
    encoded = []
    for num_actions in (0, 2):
        obs = env.unwrapped.observe(num_actions)
        encoded.append(env.flattening.observe(obs, None, last=True))
    return torch.as_tensor(np.stack(encoded))


def test_value_needs_no_available_action():
    # Stable-Baselines3 asks for the value of the last observation if an episode is cut.
    config = {"fcnet_hiddens": [4], "use_parametric": True}
    env = for_sb3(Offers(), config)
    policy = PPO(CatalogPolicy, env, device="cpu").policy
    obs = make_offers_obs(env)  # in row 0, no action is available

    assert torch.isfinite(policy.predict_values(obs)).all()
    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        policy.get_distribution(obs)


def test_value_with_memory_needs_no_available_action():
    config = {
        "fcnet_hiddens": [4],
        "use_parametric": True,
        "use_lstm": True,
        "lstm_cell_size": 4,
        "vf_share_layers": True,
    }
    env = for_sb3(Offers(), config)
    policy = RecurrentPPO(CatalogRecurrentPolicy, env, device="cpu").policy
    obs = make_offers_obs(env)  # in row 0, no action is available
    lstm_states = (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))  # 1 layer, 2 rows, 4 units
    episode_starts = torch.zeros(2)

    assert torch.isfinite(policy.predict_values(obs, lstm_states, episode_starts)).all()
    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        policy.get_distribution(obs, lstm_states, episode_starts)


class ToolAndForce(gym.Env):
    """A tool, whose mask is part of the observation, and a force; forbidden tools raise."""

    action_space = Dict({"tool": Discrete(4, start=1), "force": Box(0, 10, (1,), np.float32)})
    observation_space = Dict(
        {"action_mask": Dict({"tool": MultiBinary(4)}), "lamp": Box(0, 1, (2,), np.float32)}
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        assert self.mask[action["tool"] - 1]
        is_over = bool(self.np_random.random() < 0.2)
        return self._observe(), float(action["force"][0]), is_over, False, {}

    def _observe(self):
        self.mask = np.roll(np.array([1, 0, 1, 0], np.int8), self.np_random.integers(4))
        lamp = self.np_random.random(2, np.float32)
        return {"action_mask": {"tool": self.mask.copy()}, "lamp": lamp}


def test_maskable_ppo_rejects_actions_with_a_box():
    # The flat actions of this environment are a Box.
    env = for_sb3(ToolAndForce())

    with pytest.raises(AssertionError, match=r"only supports .*Discrete.* but Box"):
        MaskablePPO(CatalogMaskablePolicy, env, **SETTINGS)


# --- RecurrentPPO ---------------------------------------------------------------------------------


def make_recurrent_ppo(env, config, **settings):
    return RecurrentPPO(
        CatalogRecurrentPolicy,
        env,
        policy_kwargs={"model_config": config},
        **{**SETTINGS, **settings},
    )


class ThreeBits(gym.Env):
    """Takes three bits as an action."""

    observation_space = Tuple([Discrete(3)])
    action_space = MultiBinary(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return (int(self.np_random.integers(3)),), {}

    def step(self, action):
        assert self.action_space.contains(action)
        obs, _ = self.reset()
        return obs, 0.0, bool(self.np_random.random() < 0.2), False, {}


def make_affine_pendulum():
    return for_sb3("Pendulum-v1", {**LSTM_OF_6_UNITS, "action_bounds": "affine"})


@pytest.mark.parametrize(
    ("env", "config"),
    [
        pytest.param("Pendulum-v1", {"action_bounds": "clip"}, id="clipped Box"),
        pytest.param("Pendulum-v1", {"custom_action_dist": "squashed_gaussian"}, id="squashed Box"),
        pytest.param(make_affine_pendulum, {"action_bounds": "affine"}, id="scaled Box"),
        pytest.param("CartPole-v1", {}, id="Discrete"),
        pytest.param("CartPole-v1", {"vf_share_layers": False}, id="separate critic"),
        pytest.param(lambda: for_sb3(Doors()), {}, id="mask"),
        pytest.param(Doors, {}, id="mask, not flattened"),
        pytest.param(lambda: Doors(MultiDiscrete([3, 3])), {}, id="masked MultiDiscrete"),
        pytest.param(lambda: for_sb3(ThreeBits()), {}, id="MultiBinary"),
        pytest.param(lambda: for_sb3(ToolAndForce()), {}, id="masked Discrete and Box"),
    ],
)
def test_recurrent_ppo_scores_stored_actions_as_when_sampled(env, config):
    envs = make_vec_env(env, n_envs=2, seed=0)
    # A learning rate of 0 keeps the weights that sampled the actions.
    model = make_recurrent_ppo(envs, {**LSTM_OF_6_UNITS, **config}, learning_rate=0.0)
    model.learn(128)

    scores = score_rollout(model)

    assert len(scores.logp) == 128  # 64 steps in each of two environments
    torch.testing.assert_close(scores.logp, scores.stored_logp, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(scores.values, scores.stored_values, rtol=1e-4, atol=1e-5)
    assert torch.isfinite(scores.entropy).all()


#: Actor and critic share the LSTM, so that RecurrentPPO's state is the state of one LSTM.
LSTM_SHARED_WITH_CRITIC = {**LSTM_OF_6_UNITS, "vf_share_layers": True}


def test_recurrent_policy_evaluates_like_a_catalog_policy():
    # Actor and critic share an LSTM of 6 units.
    model = make_recurrent_ppo("CartPole-v1", LSTM_SHARED_WITH_CRITIC)
    # The layers of a catalog policy with the order and the biases of sb3-contrib's.
    config = {**LSTM_SHARED_WITH_CRITIC, "memory_first": True, "lstm_two_biases": True}
    policy = rlcatalog.build(model.observation_space, model.action_space, config)
    policy.model.set_weights(model.policy.model.get_weights())
    # Three sequences of four steps, and the LSTM's state before each sequence.
    obs = torch.randn(12, 4)
    actions = torch.tensor([0, 1, 1] * 4)
    h, c = torch.randn(3, 6), torch.randn(3, 6)

    states = (h[None], c[None])  # of one layer
    values, logp, entropy = model.policy.evaluate_actions(
        obs, actions, RNNStates(pi=states, vf=states), episode_starts=torch.zeros(12)
    )

    expected = policy.evaluate(
        {"obs": obs, "raw_action": actions[:, None], "seq_lens": [4, 4, 4], "state": [h, c]}
    )
    torch.testing.assert_close(values.flatten(), expected.value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(logp, expected.logp, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(entropy, expected.entropy, rtol=1e-5, atol=1e-6)


def test_recurrent_policy_clears_memory_at_episode_starts():
    # Actor and critic share an LSTM of 6 units.
    policy = make_recurrent_ppo("CartPole-v1", LSTM_SHARED_WITH_CRITIC).policy
    obs = torch.randn(5, 4)
    actions = torch.tensor([0, 1, 1, 0, 1])
    state = (torch.randn(1, 1, 6), torch.randn(1, 1, 6))
    cleared_state = (torch.zeros(1, 1, 6), torch.zeros(1, 1, 6))

    def compute_values(steps, state, episode_starts):
        values, _, _ = policy.evaluate_actions(
            obs[steps], actions[steps], RNNStates(state, state), torch.tensor(episode_starts)
        )
        return values

    # An episode starts at the third of five steps.
    values = compute_values(slice(0, 5), state, episode_starts=[0.0, 0.0, 1.0, 0.0, 0.0])

    before_start = compute_values(slice(0, 2), state, episode_starts=[0.0, 0.0])
    after_start = compute_values(slice(2, 5), cleared_state, episode_starts=[0.0, 0.0, 0.0])
    expected = torch.cat([before_start, after_start])
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-6)


def test_saved_recurrent_ppo_is_evaluated_by_stable_baselines(tmp_path):
    model = make_recurrent_ppo("CartPole-v1", LSTM_OF_6_UNITS)
    model.learn(64)
    model.save(tmp_path / "model.zip")

    loaded = RecurrentPPO.load(tmp_path / "model.zip", device="cpu")
    mean_return, _ = evaluate_policy(loaded, make_vec_env("CartPole-v1", 2), n_eval_episodes=2)

    assert mean_return > 5


# --- padding of sequences -------------------------------------------------------------------------


class DictCartPole(gym.ObservationWrapper):
    """CartPole with its observation as the one entry of a Dict, "all"."""

    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))
        self.observation_space = gym.spaces.Dict({"all": self.env.observation_space})

    def observation(self, observation):
        return {"all": observation}


@pytest.mark.parametrize("env", ["CartPole-v1", DictCartPole])
def test_recurrent_ppo_keeps_padding_out_of_batch_statistics(env):
    envs = make_vec_env(env, n_envs=2, seed=0)
    model = make_recurrent_ppo(envs, {**LSTM_OF_6_UNITS, "custom_model": WithBatchStatistics})
    model.learn(64)
    assert all(torch.isfinite(weight).all() for weight in model.policy.parameters())

    model.policy.set_training_mode(True)
    batch = next(model.rollout_buffer.get(30))  # 30 steps, and padding
    model.policy.evaluate_actions(
        batch.observations, batch.actions.flatten(), batch.lstm_states, batch.episode_starts
    )

    is_real = batch.mask > 0
    assert not is_real.all()
    obs = batch.observations
    if env is DictCartPole:
        obs = obs["all"]
    mean_without_padding = obs[is_real].mean(dim=0)
    network = model.policy.model
    for trunk in (network.trunk.trunk, network.value_trunk.trunk):
        # With momentum 1, a running mean is the mean of the last batch.
        running_mean = trunk.norm.running_mean
        torch.testing.assert_close(running_mean, mean_without_padding, rtol=1e-4, atol=1e-5)


def test_sequence_lengths_are_those_of_the_buffer():
    # A buffer of six steps in one environment, with an LSTM of one layer and three units.
    buffer = RecurrentRolloutBuffer(
        6, Box(-1, 1, (4,)), Discrete(2), hidden_state_shape=(6, 1, 1, 3)
    )
    state = (torch.zeros(1, 1, 3), torch.zeros(1, 1, 3))
    # Episodes of three, one and two steps.
    for episode_start in (True, False, False, True, True, False):
        buffer.add(
            obs=np.zeros((1, 4)),
            action=np.zeros((1, 1)),
            reward=np.zeros(1),
            episode_start=np.array([episode_start]),
            value=torch.zeros(1),
            log_prob=torch.zeros(1),
            lstm_states=RNNStates(state, state),
        )

    for samples in buffer.get(4):  # batches of four steps cut some episodes in two
        lengths = sequence_lengths(samples)

        num_steps = int(samples.mask.sum())  # without padding
        expected = np.diff(buffer.seq_start_indices, append=num_steps)
        assert lengths.dtype == np.int32
        np.testing.assert_array_equal(lengths, expected)


def train_recurrent_ppo_of_sb3_contrib(config):
    """Train with sb3-contrib's own class, which does not tell a policy which rows are padding."""
    envs = make_vec_env("CartPole-v1", n_envs=2, seed=0)
    kwargs = {"model_config": config}
    model = sb3_contrib.RecurrentPPO(CatalogRecurrentPolicy, envs, policy_kwargs=kwargs, **SETTINGS)
    model.learn(64)


def test_sb3_contrib_warns_once_of_batch_statistics_and_padding():
    with pytest.warns(UserWarning, match=r"batch statistics.*\.RecurrentPPO") as caught:
        train_recurrent_ppo_of_sb3_contrib({**LSTM_OF_6_UNITS, "custom_model": WithBatchStatistics})

    assert len(caught) == 1


def test_sb3_contrib_trains_an_lstm_without_a_warning():
    # Any warning fails a test.
    train_recurrent_ppo_of_sb3_contrib({"use_lstm": True, "lstm_cell_size": 6})


# --- a user's memory ------------------------------------------------------------------------------


class CountsSteps(RecurrentNetwork):
    """A recurrent model whose state, two vectors of three numbers, counts its steps."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.layer = torch.nn.Linear(4, num_outputs)

    def get_initial_state(self):
        return [torch.zeros(3), torch.zeros(3)]

    def forward_rnn(self, inputs, state, seq_lens):
        self._value = inputs.sum(-1).reshape(-1)
        return self.layer(inputs), [part + 1 for part in state]

    def value_function(self):
        return self._value


def test_recurrent_ppo_passes_on_the_state_of_a_custom_model():
    model = make_recurrent_ppo("CartPole-v1", {"custom_model": CountsSteps})
    obs = np.zeros(4, np.float32)

    _, state = model.predict(obs)
    _, state = model.predict(obs, state)

    assert state[0].tolist() == [[[2.0, 2.0, 2.0]]]  # two steps


def test_recurrent_ppo_trains_a_custom_model():
    model = make_recurrent_ppo("CartPole-v1", {"custom_model": CountsSteps})

    model.learn(64)

    assert model.num_timesteps == 64
