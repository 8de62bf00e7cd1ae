"""A critic of its own under Stable-Baselines3 and sb3-contrib: it sees an entry of the observation
that the policy does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import torch
from gymnasium.spaces import Box, Dict, Discrete
from random_observations import RandomObservations
from sb3_contrib import MaskablePPO
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from sb3_helpers import extractor_kwargs, score_rollout
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from torch import nn
from torch_weights import assert_every_weight_changed, copy_weights

import rlcatalog
from rlcatalog.errors import (
    ConfigError,
    ModelContractError,
    NonFiniteError,
    NotServedError,
    ObservationError,
)
from rlcatalog_policy import Frozen
from rlcatalog_sb3 import (
    CatalogMaskablePolicy,
    CatalogPolicy,
    CatalogRecurrentPolicy,
    RecurrentPPO,
    for_sb3,
    to_policy,
)
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

SECRET = Box(-1, 1, (2,), np.float32)
CAMERA = Box(0, 255, (36, 40, 3), np.uint8)


class HiddenLevel(RandomObservations):
    """Random observations in episodes of seven steps. The entry "secret" decides the rewards.

    Args:
        masked: Whether observations contain a mask of the three actions.
        image: A space of images that takes the place of the vector "x".
    """

    def __init__(self, masked=False, image=None):
        entries = {"secret": SECRET, "x": Box(-np.inf, np.inf, (4,), np.float32)}
        if image is not None:
            entries = {"camera": image, "secret": SECRET}
        if masked:
            entries["action_mask"] = Box(0, 1, (3,), np.int8)
        super().__init__(Dict(entries), Discrete(3))

    def step(self, action):
        self.steps += 1
        reward = float(self.obs["secret"].sum()) + 0.1 * int(action)
        return self.observe(), reward, self.steps == 7, False, {}

    def observe(self):
        self.obs = self.observation_space.sample()
        if "action_mask" in self.obs:
            self.obs["action_mask"][:] = [1, 0, 1]
        return self.obs


class MaskedLevel(HiddenLevel):
    """Observations contain a mask of the three actions."""

    def __init__(self):
        super().__init__(masked=True)

    def action_masks(self):
        """Return what MaskablePPO asks for: all actions, as the observation has the mask."""
        return np.ones(3, bool)


def camera_env():
    return HiddenLevel(image=CAMERA)


def channels_first_env():
    return HiddenLevel(image=Box(0, 255, (3, 36, 40), np.uint8))


class Case(NamedTuple):
    """An algorithm with its policy's class, a function that makes its environment, and its model
    config.
    """

    algorithm: type
    policy: type
    make_env: Callable[[], gym.Env]
    config: dict[str, Any]


NETS = {"fcnet_hiddens": [8], "critic": {"fcnet_hiddens": [6]}}
VECTOR = {**NETS, "obs_groups": {"policy": ["x"]}}
IMAGE = {
    "conv_filters": [[4, [36, 40], 1]],
    "critic": {"conv_filters": [[3, [36, 40], 1]], "post_fcnet_hiddens": [6]},
    "obs_groups": {"policy": ["camera"]},
}
LSTM = {"use_lstm": True, "lstm_cell_size": 5}
GRU = {"use_gru": True, "gru_cell_size": 3}
GRU_OF_CRITIC = {"critic": {"fcnet_hiddens": [6], **GRU}}


def recurrent_case(make_env, **config):
    """Return a case of RecurrentPPO."""
    return Case(RecurrentPPO, CatalogRecurrentPolicy, make_env, {**VECTOR, **config})


RECURRENT_CASES = {
    "recurrent-policy": recurrent_case(HiddenLevel, **LSTM),
    "recurrent-critic": recurrent_case(HiddenLevel, **GRU_OF_CRITIC),
    "recurrent-both": recurrent_case(HiddenLevel, **LSTM, **GRU_OF_CRITIC),
    # Two vectors of the same width, as an LSTM has.
    "two-grus": recurrent_case(HiddenLevel, **GRU, **GRU_OF_CRITIC),
    "recurrent-mask": recurrent_case(MaskedLevel, **LSTM, **GRU_OF_CRITIC),
}
CHANNELS_FIRST = "ppo-channels-first"
CASES = {
    "ppo": Case(PPO, CatalogPolicy, HiddenLevel, VECTOR),
    "a2c": Case(A2C, CatalogPolicy, HiddenLevel, VECTOR),
    "ppo-mask": Case(PPO, CatalogPolicy, MaskedLevel, VECTOR),
    "ppo-image": Case(PPO, CatalogPolicy, camera_env, IMAGE),
    CHANNELS_FIRST: Case(PPO, CatalogPolicy, channels_first_env, IMAGE),
    "maskable-ppo": Case(MaskablePPO, CatalogMaskablePolicy, MaskedLevel, VECTOR),
    **RECURRENT_CASES,
}
each_case = pytest.mark.parametrize("case", [name for name in CASES if name != CHANNELS_FIRST])
each_recurrent_case = pytest.mark.parametrize("case", RECURRENT_CASES)
each_form = pytest.mark.parametrize("flatten", [False, True], ids=["dict", "flat"])


def make_algorithm(case, *, flatten=False, policy_kwargs=None, **settings):
    """Return an algorithm in two environments, with rollouts of 32 steps."""
    algorithm, policy, make_env, config = CASES[case]

    def make_flat_env():
        return for_sb3(make_env(), config)

    envs = make_vec_env(make_flat_env if flatten else make_env, n_envs=2, seed=0)
    defaults = {"n_steps": 16, "seed": 0, "device": "cpu"}
    if algorithm is not A2C:  # it has neither batches nor epochs
        defaults |= {"batch_size": 32, "n_epochs": 2}
    return algorithm(
        policy,
        envs,
        policy_kwargs={"model_config": config, **(policy_kwargs or {})},
        **{**defaults, **settings},
    )


def env_observations(case, rows=5):
    """Return a list of observations of a case's environment."""
    env = CASES[case].make_env()
    return [env.reset(seed=seed)[0] for seed in range(rows)]


def in_sb3_form(algorithm, observations):
    """Return an environment's observations as a batch for Stable-Baselines3."""
    env = algorithm.get_env().envs[0]
    if env.has_wrapper_attr("flattening"):
        flattening = env.get_wrapper_attr("flattening")
        observations = [flattening.observe(obs) for obs in observations]
    if isinstance(observations[0], dict):
        return {key: np.stack([obs[key] for obs in observations]) for key in observations[0]}
    return np.stack(observations)


def observe(case, algorithm):
    """Return a batch of five observations for Stable-Baselines3."""
    return in_sb3_form(algorithm, env_observations(case))


def secret_columns(algorithm):
    """Return the columns of the entry that only the critic sees in encoded observations."""
    leaves = algorithm.policy.catalog_policy.preprocessor.leaves()
    (leaf,) = [leaf for leaf in leaves if "secret" in leaf.path]
    return slice(leaf.start, leaf.stop)


def replace_secret(algorithm, observations, value):
    """Return observations with another value in the entry that only the critic sees."""
    if isinstance(observations, dict) and "secret" in observations:
        return {**observations, "secret": np.full_like(observations["secret"], value)}
    if isinstance(observations, dict):  # a flat vector and a mask
        return {**observations, "obs": replace_secret(algorithm, observations["obs"], value)}
    changed = observations.copy()
    changed[:, secret_columns(algorithm)] = value
    return changed


def state_of(policy, rows, value):
    """Return a state of RecurrentPPO in which all numbers have one value."""
    part = torch.full((1, rows, policy.lstm_actor.hidden_size), value)
    return RNNStates((part, part), (part, part))


def score(algorithm, observations):
    """Return Stable-Baselines3's values and log densities of one action for observations."""
    policy = algorithm.policy
    tensors, _ = policy.obs_to_tensor(observations)
    rows = 5
    arguments = []
    if isinstance(policy, CatalogRecurrentPolicy):
        arguments = [state_of(policy, rows, value=0.3), torch.zeros(rows)]
    actions = torch.tensor([0, 2, 0, 2, 0])  # allowed by the mask
    values, logp, _ = policy.evaluate_actions(tensors, actions, *arguments)
    return values.detach(), logp.detach()


def gradients(algorithm, observations):
    """Return the gradients of the logits and of the values for encoded observations."""
    policy = algorithm.policy
    tensors, _ = policy.obs_to_tensor(observations)
    encoded = policy.actor_critic.observer.encode(tensors).float().clone().requires_grad_()
    rows = len(encoded)
    memory = [torch.full((rows, len(part)), 0.3) for part in policy.catalog_policy.memory.initial]
    lengths = torch.ones(rows, dtype=torch.int32) if memory else None
    logits, _ = policy.model({"obs": encoded, "is_training": True}, memory, lengths)
    values = policy.model.value_function()
    (of_logits,) = torch.autograd.grad(logits.sum(), encoded, retain_graph=True)
    (of_values,) = torch.autograd.grad(values.sum(), encoded)
    return of_logits, of_values


def check_who_sees_secret(case, algorithm):
    """Check that the values depend on the hidden entry, and that the logits do not."""
    observations = observe(case, algorithm)
    hidden = secret_columns(algorithm)

    of_logits, of_values = gradients(algorithm, observations)

    assert not of_logits[:, hidden].any()  # exactly 0
    assert of_logits.any()
    assert of_values[:, hidden].any()

    values, logp = score(algorithm, replace_secret(algorithm, observations, 0.25))
    other_values, other_logp = score(algorithm, replace_secret(algorithm, observations, -0.75))

    assert torch.equal(logp, other_logp)
    assert (values != other_values).all()


# --- training -------------------------------------------------------------------------------------


@pytest.mark.grid
@each_case
@each_form
def test_only_values_depend_on_a_hidden_entry(case, flatten):
    algorithm = make_algorithm(case, flatten=flatten, learning_rate=0.01)
    check_who_sees_secret(case, algorithm)
    before = copy_weights(algorithm.policy.model)

    algorithm.learn(64)

    assert_every_weight_changed(algorithm.policy.model, before)
    check_who_sees_secret(case, algorithm)


def test_flat_logp_has_no_gradient_for_a_hidden_entry():
    algorithm = make_algorithm("ppo", flatten=True)
    obs = torch.from_numpy(observe("ppo", algorithm)).requires_grad_()

    values, logp, _ = algorithm.policy.evaluate_actions(obs, torch.zeros(5))

    hidden = secret_columns(algorithm)
    (of_logp,) = torch.autograd.grad(logp.sum(), obs)
    (of_values,) = torch.autograd.grad(values.sum(), obs)
    assert not of_logp[:, hidden].any()
    assert of_logp.any()
    assert of_values[:, hidden].any()


@pytest.mark.grid
@each_recurrent_case
@each_form
def test_recurrent_ppo_scores_a_rollout_as_when_sampled(case, flatten):
    # A learning rate of 0 keeps the weights that sampled the actions.
    algorithm = make_algorithm(case, flatten=flatten, learning_rate=0.0, n_steps=50)
    algorithm.learn(100)

    scores = score_rollout(algorithm)

    torch.testing.assert_close(scores.logp, scores.stored_logp, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(scores.values, scores.stored_values, rtol=1e-4, atol=1e-5)


class WithBatchStatistics(nn.Module):
    """A plain module whose running mean is the mean of the last batch."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width, momentum=1.0)
        self.layer = nn.Linear(width, 6)

    def forward(self, x):
        if isinstance(x, Mapping):  # the critic sees two entries
            x = torch.cat([x["secret"], x["x"]], dim=1)
        return self.layer(self.norm(x))


@each_recurrent_case
def test_batch_statistics_of_both_sides_exclude_padding(case):
    _, _, make_env, config = CASES[case]
    memory_of_critic = {key: config["critic"][key] for key in config["critic"] if key in GRU}
    model_config = {
        **config,
        "custom_model": WithBatchStatistics,
        "custom_model_config": {"width": 4},
        "critic": {
            **memory_of_critic,
            "custom_model": WithBatchStatistics,
            "custom_model_config": {"width": 6},
        },
    }
    del model_config["fcnet_hiddens"]  # the module does not read it
    algorithm = RecurrentPPO(
        CatalogRecurrentPolicy,
        make_vec_env(make_env, n_envs=2, seed=0),
        policy_kwargs={"model_config": model_config},
        n_steps=32,
        batch_size=32,
        device="cpu",
        seed=0,
    )
    algorithm.learn(64)

    algorithm.policy.set_training_mode(True)
    batch = next(algorithm.rollout_buffer.get(30))  # 30 steps, and padding
    algorithm.policy.evaluate_actions(
        batch.observations, batch.actions.flatten(), batch.lstm_states, batch.episode_starts
    )

    is_real = batch.mask > 0
    assert not is_real.all()
    x = batch.observations["x"][is_real].mean(dim=0)
    secret = batch.observations["secret"][is_real].mean(dim=0)
    model = algorithm.policy.model
    for side, expected in ((model.policy, x), (model.critic, torch.cat([secret, x]))):
        (norm,) = [module for module in side.modules() if isinstance(module, nn.BatchNorm1d)]
        torch.testing.assert_close(norm.running_mean, expected, rtol=1e-4, atol=1e-5)


def test_frozen_policy_collects_values_of_the_critic():
    pytest.importorskip("rlcatalog_export", reason="rlcatalog-export is not installed")
    algorithm = make_algorithm("ppo", learning_rate=0.0, policy_kwargs={"frozen": "always"})
    algorithm.learn(32)

    acting = algorithm.policy.actor_critic.collector.acting
    assert isinstance(acting, Frozen)
    assert acting.reason is None
    batch = next(algorithm.rollout_buffer.get(32))
    values = algorithm.policy.predict_values(batch.observations).flatten()
    torch.testing.assert_close(values, batch.old_values, rtol=1e-5, atol=1e-6)


# --- acting without the entry ---------------------------------------------------------------------


def without_secret(observations):
    """Return a batch of Dict observations without the entry that only the critic sees."""
    return {key: value for key, value in observations.items() if key != "secret"}


@each_case
def test_predict_needs_no_hidden_entry(case):
    algorithm = make_algorithm(case).learn(32)
    state = None
    narrow_state = None
    for value in (0.5, -0.5):  # two steps
        observations = replace_secret(algorithm, observe(case, algorithm), value)

        actions, state = algorithm.predict(observations, state, deterministic=True)
        narrow_actions, narrow_state = algorithm.predict(
            without_secret(observations), narrow_state, deterministic=True
        )

        np.testing.assert_array_equal(narrow_actions, actions)
    if isinstance(algorithm, RecurrentPPO):
        np.testing.assert_array_equal(narrow_state[0], state[0])
        np.testing.assert_array_equal(narrow_state[1], state[1])


@pytest.mark.parametrize("given", ["secret", "x"])
def test_predict_needs_the_entries_of_the_policy(given):
    groups = {"policy": ["x", "y"]}
    env = HiddenLevel()
    env.observation_space["y"] = SECRET
    kwargs = {"model_config": {**NETS, "obs_groups": groups}}
    algorithm = PPO(CatalogPolicy, env, policy_kwargs=kwargs, device="cpu")

    with pytest.raises(ObservationError, match="'y'"):
        algorithm.predict({given: env.observation_space[given].sample()})


def test_predict_names_an_entry_that_is_not_finite():
    algorithm = make_algorithm("ppo")
    algorithm.predict(
        {"x": np.ones(4, np.float32)}
    )  # only the first one is compared with its space

    with pytest.raises(NonFiniteError, match=r"NaN at obs\[.x.\]"):
        algorithm.predict({"x": np.full(4, np.nan, np.float32)})


def act_in_sb3(algorithm, observations, states):
    """Return the deterministic actions, the values and the new states of Stable-Baselines3."""
    policy = algorithm.policy
    policy.set_training_mode(False)
    tensors, _ = policy.obs_to_tensor(observations)
    with torch.no_grad():
        if states is None:
            actions, values, _ = policy.forward(tensors, deterministic=True)
        else:
            no_starts = torch.zeros(len(states.pi[0][0]))
            actions, values, _, states = policy.forward(
                tensors, states, no_starts, deterministic=True
            )
    return actions.numpy(), values.numpy()[:, 0], states


def check_policy_of_algorithm(policy, algorithm, case):
    """Check two steps of a policy, with and without the hidden entry, against its algorithm."""
    observations = env_observations(case)
    state = None
    narrow_state = None
    sb3_states = None
    if isinstance(algorithm, RecurrentPPO):
        sb3_states = state_of(algorithm.policy, len(observations), value=0.0)
    for value in (0.5, -0.5):
        for obs in observations:
            obs["secret"][:] = value

        step = policy.act(observations, state, explore=False)
        narrow = [without_secret(obs) for obs in observations]
        narrow_step = policy.act(narrow, narrow_state, explore=False)

        actions, values, sb3_states = act_in_sb3(
            algorithm, in_sb3_form(algorithm, observations), sb3_states
        )
        np.testing.assert_allclose(step.value, values, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(step.action, actions)
        assert narrow_step.value is None
        np.testing.assert_array_equal(narrow_step.action, actions)
        state = step.state
        narrow_state = narrow_step.state


@pytest.mark.grid
@each_case
@each_form
def test_converted_policy_acts_without_the_hidden_entry(case, flatten, tmp_path):
    algorithm = make_algorithm(case, flatten=flatten, learning_rate=0.01).learn(64)
    to_policy(algorithm).save(tmp_path)

    check_policy_of_algorithm(rlcatalog.load(tmp_path), algorithm, case)


def test_converted_policy_takes_images_with_channels_first():
    # The model expects the channels at the end, so the policy is built again.
    algorithm = make_algorithm(CHANNELS_FIRST).learn(32)

    policy = to_policy(algorithm)

    assert policy.observation_space["camera"].shape == (3, 36, 40)
    check_policy_of_algorithm(policy, algorithm, CHANNELS_FIRST)


# --- saving ---------------------------------------------------------------------------------------

SAVED_CASES = ["ppo-mask", "recurrent-both"]


def assert_same_scores(case, algorithm, loaded):
    observations = observe(case, algorithm)
    loaded_scores = score(loaded, observations)
    for loaded_score, expected in zip(loaded_scores, score(algorithm, observations), strict=True):
        torch.testing.assert_close(loaded_score, expected, rtol=0, atol=0)


@pytest.mark.parametrize("case", SAVED_CASES)
@each_form
def test_loaded_algorithm_has_the_same_critic(case, flatten, tmp_path):
    algorithm = make_algorithm(case, flatten=flatten).learn(32)
    algorithm.save(tmp_path / "model.zip")

    loaded = type(algorithm).load(tmp_path / "model.zip", env=algorithm.get_env(), device="cpu")

    assert_same_scores(case, algorithm, loaded)


@pytest.mark.parametrize("case", SAVED_CASES)
def test_loaded_policy_has_the_same_critic(case, tmp_path):
    algorithm = make_algorithm(case).learn(32)
    algorithm.policy.save(tmp_path / "policy.zip")

    policy = type(algorithm.policy).load(tmp_path / "policy.zip", device="cpu")

    loaded = SimpleNamespace(policy=policy)
    assert_same_scores(case, algorithm, loaded)


# --- what is refused ------------------------------------------------------------------------------


class WithCustomLoss(FullyConnectedNetwork):
    def custom_loss(self, policy_loss, loss_inputs):
        return policy_loss


class OwnState(TorchModelV2):
    """A recurrent class in RLlib's form."""

    def get_initial_state(self):
        return [torch.zeros(2)]

    def forward(self, input_dict, state, seq_lens):
        return input_dict["obs_flat"][:, :1], state

    def value_function(self):
        return torch.zeros(1)


ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_memory_inference": 3,
    "attention_memory_training": 3,
}


def build_algorithm(cls, **config):
    """Build PPO or RecurrentPPO with a model config."""
    policy = CatalogRecurrentPolicy if cls is RecurrentPPO else CatalogPolicy
    return cls(policy, HiddenLevel(), policy_kwargs={"model_config": config}, device="cpu")


@pytest.mark.parametrize(
    ("cls", "config", "message"),
    [
        pytest.param(
            PPO, {"critic": LSTM}, "^critic: use_lstm.*: PPO keeps no state.*Use R", id="lstm"
        ),
        pytest.param(
            PPO,
            {**LSTM, "critic": ATTENTION},
            "^use_lstm.*: PPO keeps no state.*rlcatalog-ppo",
            id="lstm and attention",
        ),
        pytest.param(
            PPO,
            {"critic": {"custom_model": OwnState}},
            "^critic: OwnState is recurrent",
            id="own state",
        ),
        pytest.param(
            RecurrentPPO,
            {**LSTM, "critic": ATTENTION},
            "^critic: use_attention.*: Recurrent.*vectors",
            id="attention",
        ),
        pytest.param(
            RecurrentPPO,
            {**LSTM, "critic": {**LSTM, "lstm_use_prev_action": True}},
            "^critic: use_lstm.*requests the views",
            id="past actions",
        ),
        pytest.param(
            PPO,
            {"critic": {"custom_model": WithCustomLoss}},
            "WithCustomLoss.custom_loss",
            id="custom_loss",
        ),
    ],
)
def test_critic_that_a_loop_cannot_train_is_refused(cls, config, message):
    with pytest.raises(NotServedError, match=message):
        build_algorithm(cls, **config)


class WithoutValue(TorchModelV2):
    """A class in RLlib's form without a value function."""


def test_critic_without_a_value_function_is_an_error():
    with pytest.raises(ModelContractError, match="WithoutValue has no value_function"):
        build_algorithm(PPO, critic={"custom_model": WithoutValue})


def test_recurrent_ppo_needs_a_memory_on_one_side():
    with pytest.raises(ConfigError, match="the model has no memory"):
        build_algorithm(RecurrentPPO, **NETS)


@pytest.mark.parametrize("algorithm", [DQN, SAC, TD3])
@each_form
def test_features_extractor_refuses_a_critic(algorithm, flatten):
    env = HiddenLevel()
    env.action_space = Discrete(3) if algorithm is DQN else Box(-1, 1, (2,), np.float32)
    policy = "MultiInputPolicy"
    if flatten:
        env = for_sb3(env, VECTOR)
        policy = "MlpPolicy"

    with pytest.raises(NotServedError, match=r"^critic: .*CatalogSACPolicy.*PPO and A2C"):
        algorithm(policy, env, policy_kwargs=extractor_kwargs(VECTOR), buffer_size=10)
