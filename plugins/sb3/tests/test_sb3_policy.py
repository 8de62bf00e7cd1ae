"""`CatalogPolicy` under PPO and A2C: the same outputs as rlcatalog's own policy, whatever the
spaces.
"""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import (
    SubprocVecEnv,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
)

import rlcatalog
from rlcatalog_sb3 import CatalogPolicy, for_sb3, to_policy


class Anything(gym.Env):
    """Random observations of any space; refuses actions outside its own, or forbidden ones; notes
    all.
    """

    def __init__(self, observation_space, action_space, length=5):
        self.observation_space, self.action_space, self.length = (
            observation_space,
            action_space,
            length,
        )
        self.taken, self.seen = [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self._look(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        mask = self.seen[-1].get("action_mask") if isinstance(self.seen[-1], dict) else None
        if mask is not None and isinstance(self.action_space, Discrete):
            assert mask[action - self.action_space.start], (mask, action)
        self.taken.append(action)
        self.t += 1
        return self._look(), float(self.t), False, self.t == self.length, {}

    def _look(self):
        obs = self.observation_space.sample()
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"][..., ::2] = 1  # each choice of two values, too, keeps one
        self.seen.append(obs)
        return obs


IMAGE = Box(0, 255, (12, 10, 3), np.uint8)
CONVS = {"conv_filters": [[4, 3, 2], [8, 4, 1]], "conv_flatten": True}
SMALL = {"fcnet_hiddens": [16], "post_fcnet_hiddens": []}
EMBEDDED = {**SMALL, "action_embeddings_key": "embeddings"}
MASKED = Dict({"x": Box(-1, 1, (3,)), "action_mask": Box(0, 1, (4,), np.int8)})

DIRECT = {
    "vector, choice": (Box(-1, 1, (3,)), Discrete(4), SMALL),
    "doubles, Box": (Box(-1, 1, (3,), np.float64), Box(-2, 1, (2,)), SMALL),
    "doubles, clipped Box": (
        Box(-1, 1, (3,), np.float64),
        Box(-2, 1, (2,)),
        {**SMALL, "action_bounds": "clip"},
    ),
    "squashed": (
        Box(-1, 1, (3,)),
        Box(-2, 1, (2,)),
        {**SMALL, "custom_action_dist": "squashed_gaussian"},
    ),
    "choice, choices": (Discrete(5, start=2), MultiDiscrete([2, 3]), SMALL),
    "choices, bits": (MultiDiscrete([2, 3]), MultiBinary(3), SMALL),
    "image": (IMAGE, Discrete(4), CONVS),
    "image, channels first": (
        Box(0, 255, (3, 12, 10), np.uint8),
        Discrete(4),
        {**CONVS, "image_layout": "chw"},
    ),
    "image of floats": (Box(0, 1, (12, 10, 3)), Discrete(4), CONVS),
    "dict with image": (
        Dict({"i": IMAGE, "n": Discrete(3), "x": Box(-1, 1, (2,))}),
        Discrete(4),
        {**CONVS, **SMALL},
    ),
    "masked": (MASKED, Discrete(4), SMALL),
    "masked choices": (MASKED, MultiDiscrete([2, 2]), SMALL),
    "embedded actions": (Dict({**MASKED, "embeddings": Box(-1, 1, (4, 2))}), Discrete(4), EMBEDDED),
}
WRAPPED = {
    **DIRECT,
    "offset": (Box(-1, 1, (3,)), Discrete(4, start=-2), SMALL),
    "one-hot": (Box(-1, 1, (3,)), Discrete(4), {**SMALL, "custom_action_dist": "gumbel_softmax"}),
    "whole numbers": (Box(-1, 1, (3,)), Box(-3, 3, (2,), np.int8), SMALL),
    "nested": (
        Tuple([Text(4), Dict({"a": Discrete(3), "b": Tuple([Box(-1, 1, (2,))])})]),
        Discrete(3, start=1),
        SMALL,
    ),
    "hybrid": (
        Box(-1, 1, (3,)),
        Tuple([Discrete(3, start=1), Box(0, 1, (2,)), MultiBinary(2)]),
        SMALL,
    ),
    "autoregressive": (
        Box(-1, 1, (3,)),
        Tuple([Discrete(3, start=1), Box(0, 1, (2,))]),
        {**SMALL, "use_autoregressive": True},
    ),
    "hybrid, masked": (
        Dict({"x": Dict({"y": Discrete(2)}), "action_mask": Box(0, 1, (4,), np.int8)}),
        Dict({"go": Discrete(4), "far": Box(-1, 1, (1,))}),
        SMALL,
    ),
}


def spaces_of(case):
    """Return fresh copies: spaces draw from generators of their own."""
    import copy

    observations, actions, config = case
    return copy.deepcopy(observations), copy.deepcopy(actions), config


def trained(case, wrapped, algorithm=PPO, **settings):
    observations, actions, config = spaces_of(case)
    observations.seed(0)
    env = Anything(observations, actions)
    shown = for_sb3(env, config) if wrapped else env
    policy_kwargs = {} if wrapped else {"model_config": config}
    if algorithm is PPO:
        settings = {"batch_size": 8, "n_epochs": 2, **settings}
    model = algorithm(
        CatalogPolicy,
        shown,
        n_steps=16,
        seed=0,
        device="cpu",
        policy_kwargs=policy_kwargs,
        **settings,
    )
    model.learn(16)
    return model, env


CASES = [(name, False) for name in DIRECT] + [(name, True) for name in WRAPPED]
cases = pytest.mark.parametrize(
    ("name", "wrapped"), CASES, ids=[f"{n}-{'flat' if w else 'own'}" for n, w in CASES]
)


@cases
def test_outputs_equal_those_of_rlcatalogs_own_policy(name, wrapped):
    case = WRAPPED[name]
    model, _ = trained(case, wrapped)
    observations, actions, _ = spaces_of(case)
    own = rlcatalog.build(
        observations, actions, model.policy.catalog_policy.resolution.config.given
    )
    own.model.set_weights(model.policy.model.get_weights())
    fresh = Anything(observations, actions)
    emitted = [fresh.reset(seed=7)[0], *(fresh._look() for _ in range(5))]
    flattening = model.env.envs[0].get_wrapper_attr("flattening") if wrapped else None
    shown = [flattening.observe(obs) if wrapped else obs for obs in emitted]
    stacked = (
        {key: np.stack([obs[key] for obs in shown]) for key in shown[0]}
        if isinstance(shown[0], dict)
        else np.stack(shown)
    )
    if isinstance(model.env, VecTransposeImage):
        stacked = model.env.transpose_observations(stacked)
    step = own.act(emitted, explore=False)
    predicted, _ = model.predict(stacked, deterministic=True)
    if wrapped:
        predicted = own.action_codec.adapt(predicted.reshape(6, -1))
    for found, expected in zip(_leaves(predicted), _leaves(step.action), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    # What the buffer hands back: raw actions as float32, Discrete ones as a column.
    torch.manual_seed(0)
    raw, values, logp = model.policy(obs_as_tensor(stacked, torch.device("cpu")))
    stored = raw.reshape(6, -1).numpy().astype(np.float32)
    batch = {"obs": own.preprocess(emitted), "raw_action": stored, "mask": own.action_mask(emitted)}
    expected = own.evaluate(batch)
    # Stored Discrete observations are a column, too.
    seen = stacked[:, None] if isinstance(model.observation_space, Discrete) else stacked
    found = model.policy.evaluate_actions(
        obs_as_tensor(seen, torch.device("cpu")), torch.from_numpy(stored)
    )
    for one, other in zip(found[:2], (expected.value[:, None], expected.logp), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(values, expected.value[:, None], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logp, expected.logp, rtol=1e-5, atol=1e-5)
    if expected.entropy_kind == "exact":
        torch.testing.assert_close(found[2], expected.entropy, rtol=1e-5, atol=1e-5)
    assert found[2].shape == (6,)
    torch.testing.assert_close(
        model.policy.predict_values(obs_as_tensor(stacked, torch.device("cpu"))), found[0]
    )


@cases
def test_actions_that_reach_the_environment_are_the_adapters(name, wrapped):
    model, env = trained(WRAPPED[name], wrapped)
    buffer = model.rollout_buffer
    raw = buffer.actions.reshape(buffer.buffer_size, -1)
    expected = model.policy.catalog_policy.action_codec.adapt(raw)
    for t, taken in enumerate(env.taken):
        for found, row in zip(_leaves(taken), _leaves(expected), strict=True):
            np.testing.assert_array_equal(found, np.asarray(row)[t])
    assert len(env.taken) == 16


def test_ratios_are_one_before_the_first_update():
    """What is stored while acting is what training computes, masks and raw actions included."""
    for name in ("hybrid, masked", "doubles, Box", "image"):
        model, _ = trained(WRAPPED[name], name == "hybrid, masked", learning_rate=0.0)
        for data in model.rollout_buffer.get(16):
            actions = (
                data.actions.long().flatten()
                if isinstance(model.action_space, Discrete)
                else data.actions
            )
            _, logp, _ = model.policy.evaluate_actions(data.observations, actions)
            torch.testing.assert_close(logp, data.old_log_prob, rtol=1e-4, atol=1e-5)


def test_images_are_scaled_once():
    """A white image gives the same as a white image of floats, which nobody scales."""
    model, _ = trained(DIRECT["image"], False)
    assert isinstance(model.env, VecTransposeImage)
    floats = rlcatalog.build(Box(0, 1, IMAGE.shape), Discrete(4), CONVS)
    floats.model.set_weights(model.policy.model.get_weights())
    white = torch.full((1, 3, 12, 10), 255, dtype=torch.uint8)
    expected = floats.evaluate(
        {"obs": np.ones((1, *IMAGE.shape), np.float32), "raw_action": np.zeros((1, 1))}
    )
    found = model.policy.evaluate_actions(white, torch.zeros(1))
    torch.testing.assert_close(found[0][:, 0], expected.value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[1], expected.logp, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_all_weights_are_trained(algorithm):
    model, _ = trained(WRAPPED["hybrid, masked"], True, algorithm, learning_rate=0.1)
    before = model.policy.model.get_weights()
    model.learn(16)
    after = model.policy.model.get_weights()
    assert [name for name in before if np.array_equal(before[name], after[name])] == []


@pytest.mark.attack  # `make learn` trains for longer
def test_learns_cartpole_a_little():
    env = make_vec_env("CartPole-v1", 8, seed=0)
    config = {"fcnet_hiddens": [32], "vf_share_layers": False}
    model = PPO(
        CatalogPolicy,
        env,
        policy_kwargs={"model_config": config},
        n_steps=64,
        batch_size=128,
        n_epochs=8,
        learning_rate=3e-3,
        seed=0,
        device="cpu",
    )
    before = evaluate_policy(model, make_vec_env("CartPole-v1", 8, seed=1), 16)[0]
    model.learn(12_000)
    after = evaluate_policy(model, make_vec_env("CartPole-v1", 8, seed=1), 16)[0]
    assert after > max(100, 2 * before)


def test_one_seed_is_one_run():
    runs = [trained(WRAPPED["hybrid"], True)[0].policy.model.get_weights() for _ in range(2)]
    for name, value in runs[0].items():
        np.testing.assert_array_equal(value, runs[1][name])


def test_optimizer_settings_are_heeded():
    kwargs = {"optimizer_class": torch.optim.SGD, "optimizer_kwargs": {"momentum": 0.5}}
    model = PPO(
        CatalogPolicy, "CartPole-v1", policy_kwargs=kwargs, learning_rate=0.25, device="cpu"
    )
    assert isinstance(model.policy.optimizer, torch.optim.SGD)
    assert model.policy.optimizer.defaults["momentum"] == 0.5
    assert model.policy.optimizer.param_groups[0]["lr"] == 0.25
    assert PPO(CatalogPolicy, "CartPole-v1", device="cpu").policy.optimizer.defaults["eps"] == 1e-5


def test_normalised_observations_keep_their_structure():
    """VecNormalize puts another space in place of the flat one; the action space still tells where
    it came from.
    """
    nested = Dict({"image": Box(0, 1, (12, 10, 3)), "x": Tuple([Box(-9, 9, (2,))])})
    config = {**CONVS, **SMALL}
    env = VecNormalize(
        make_vec_env(lambda: for_sb3(Anything(nested, Discrete(3, start=5)), config), 2)
    )
    model = PPO(CatalogPolicy, env, n_steps=8, batch_size=8, device="cpu")
    model.learn(16)
    assert model.policy.catalog_policy.observation_space is not None
    assert type(model.policy.model).__name__ == "ComplexInputNetwork"
    from rlcatalog.errors import NotServedError

    with pytest.raises(NotServedError, match="VecNormalize"):
        to_policy(model)


def test_stacked_frames_and_worker_processes_do_as_well():
    stacked = VecFrameStack(make_vec_env(lambda: Anything(IMAGE, Discrete(4)), 2), 2)
    model = PPO(
        CatalogPolicy,
        stacked,
        n_steps=8,
        batch_size=8,
        policy_kwargs={"model_config": CONVS},
        device="cpu",
    )
    model.learn(16)
    assert to_policy(model).observation_space.shape == (12, 10, 6)
    workers = make_vec_env(
        for_sb3,
        2,
        env_kwargs={"env": "CartPole-v1"},
        vec_env_cls=SubprocVecEnv,
        vec_env_kwargs={"start_method": "fork"},
    )
    model = PPO(CatalogPolicy, workers, n_steps=8, batch_size=8, device="cpu")
    model.learn(16)
    workers.close()
    assert to_policy(model).observation_space == gym.make("CartPole-v1").observation_space


def test_get_distribution_speaks_stable_baselines():
    model, _ = trained(DIRECT["masked"], False)
    obs = {
        "x": torch.zeros(3, 3),
        "action_mask": torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]]),
    }
    dist = model.policy.get_distribution(obs)
    assert dist.mode()[:2].tolist() == [0, 1]
    assert dist.get_actions()[:2].tolist() == [0, 1]
    torch.testing.assert_close(dist.log_prob(torch.tensor([0, 1, 1]))[:2], torch.zeros(2))
    assert dist.entropy()[:2].tolist() == [0.0, 0.0]
    assert dist.entropy()[2] > 0.5


def _leaves(value):
    if isinstance(value, dict):
        value = tuple(value.values())
    return (
        [leaf for part in value for leaf in _leaves(part)]
        if isinstance(value, tuple)
        else [np.asarray(value)]
    )
