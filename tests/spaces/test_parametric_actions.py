"""Parametric actions across packages: real environments, PPO, DQN, the command line, and the page's
samples.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from command_line import rlcatalog as typed
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import SyncVectorEnv

import rlcatalog
import rlcatalog_ppo as ppo
from rlcatalog import ModelCatalog
from rlcatalog_tf import FullyConnectedNetwork, TFModelV2

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import dqn
from action_masking import MaskedTaxi
from parametric_actions_cartpole import EMBEDDINGS, ParametricCartPole

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded", "default")]

EXAMPLES = Path(dqn.__file__).parent
both = pytest.mark.parametrize("framework", ["torch", "tf"])
SMALL = {"fcnet_hiddens": [16]}
SHORT = {
    "num_envs": 2,
    "rollout_length": 16,
    "minibatch_size": 16,
    "num_epochs": 1,
    "seed": 0,
    "lr": 1e-2,
}
MEMORIES = {
    "none": {},
    "lstm": {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 7},
    "attention": {
        "use_attention": True,
        "attention_dim": 8,
        "attention_head_dim": 4,
        "max_seq_len": 7,
    },
}


# --- real environments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "make", "steps"),
    [
        ("torch", ParametricCartPole, 4_000),
        ("tf", ParametricCartPole, 2_000),
        ("torch", MaskedTaxi, 4_000),
        pytest.param("tf", ParametricCartPole, 20_000, marks=pytest.mark.attack),
        pytest.param("torch", MaskedTaxi, 20_000, marks=pytest.mark.attack),
        pytest.param("torch", ParametricCartPole, 100_000, marks=pytest.mark.attack),
    ],
)
def test_policy_takes_no_forbidden_action(framework, make, steps):
    """The environments raise on one."""
    envs = SyncVectorEnv([make] * 100, copy=False)
    policy = rlcatalog.build(env=envs, config=SMALL, framework=framework)
    assert policy.explain().as_dict()["head"]["chosen"] == "parametric"
    obs, _ = envs.reset(seed=0)
    taken = set()
    for _ in range(steps // 100):
        action = policy.act(obs).action
        assert obs["action_mask"][np.arange(100), action].all()
        taken.update(action.tolist())
        obs, *_ = envs.step(action)
    assert taken == set(range(int(envs.single_action_space.n)))
    envs.close()


def test_example_environment_moves_the_cart_by_embeddings():
    """An action does what its embedding stands for, wherever that stands."""
    env, plain = ParametricCartPole(), gym.make("CartPole-v1")
    obs, _ = env.reset(seed=3)
    cart, _ = plain.reset(seed=3)
    plain.unwrapped.state = env.unwrapped.state
    random, places = np.random.default_rng(0), set()
    for _ in range(12):
        assert env.observation_space.contains(obs)
        push = int(random.integers(2))
        [place] = np.flatnonzero((obs["avail_actions"] == EMBEDDINGS[push]).all(axis=1))
        assert obs["action_mask"][place]
        assert obs["action_mask"].sum() == 2
        places.add(int(place))
        obs, *_ = env.step(int(place))
        cart, *_ = plain.step(push)
        np.testing.assert_array_equal(obs["cart"], cart)
    assert len(places) > 3
    with pytest.raises(ValueError, match="is forbidden; allowed:"):
        env.step(int(np.flatnonzero(obs["action_mask"] == 0)[0]))


# --- algorithms -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "memory", "filtered"),
    [
        *(("torch", memory, "NoFilter") for memory in MEMORIES),
        *((framework, "none", "MeanStdFilter") for framework in ("torch", "tf")),
        ("tf", "lstm", "NoFilter"),
        pytest.param("tf", "none", "NoFilter", marks=pytest.mark.attack),
        pytest.param("tf", "attention", "NoFilter", marks=pytest.mark.attack),
    ],
)
def test_ppo_trains_every_weight(framework, memory, filtered):
    config = {
        "framework": framework,
        "model": {**SMALL, **MEMORIES[memory]},
        "observation_filter": filtered,
        **SHORT,
    }
    algo = ppo.PPO(env=ParametricCartPole, config=config)
    before = algo.policy.model.get_weights()
    for _ in range(2):
        algo.train()
    after = algo.policy.model.get_weights()
    assert not [name for name in after if np.array_equal(after[name], before[name])]
    assert len(algo.evaluate(2, seed=0)) == 2
    algo.stop()


@both
def test_dqn_trains_on_dot_products(framework):
    hyper = dqn.Hyper(steps=300, learning_starts=100, epsilon_steps=150)
    returns = dqn.train(
        ParametricCartPole, framework, model=SMALL, hyper=hyper, episodes=3, dueling=False
    )
    assert len(returns) == 3
    with pytest.raises(
        rlcatalog.errors.ConfigError, match=r"features were requested .*by a dueling interface"
    ):
        dqn.train(ParametricCartPole, framework, model=SMALL, hyper=hyper, episodes=3)


@pytest.mark.parametrize(
    ("framework", "dueling"),
    [
        ("torch", True),
        ("torch", False),
        *(pytest.param("tf", d, marks=pytest.mark.attack) for d in (True, False)),
    ],
)
def test_dqn_trains_under_a_mask_alone(framework, dueling):
    hyper = dqn.Hyper(steps=150, learning_starts=100, epsilon_steps=100)
    assert (
        len(dqn.train(MaskedTaxi, framework, model=SMALL, hyper=hyper, episodes=1, dueling=dueling))
        == 1
    )


def rlcatalog_command(*arguments):
    """Run the command line in the examples' folder, as that of the environment says."""
    found = typed(*arguments, cwd=EXAMPLES)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_command_line_trains_and_evaluates(tmp_path):
    where, out = "parametric_actions_cartpole:ParametricCartPole-v0", str(tmp_path / "run")
    found = json.loads(rlcatalog_command("explain", where, "--json"))
    assert found["head"]["chosen"] == "parametric"
    options = [
        "--model",
        "fcnet_hiddens=[8]",
        "--set",
        "rollout_length=32",
        "--set",
        "minibatch_size=64",
    ]
    rlcatalog_command("train", where, "--steps", "256", "--out", out, *options)
    play = ("evaluate", out, "--episodes", "2", "--import", "parametric_actions_cartpole")
    assert "mean return" in rlcatalog_command(*play)


# --- Variable-length / Parametric Action Spaces: 000, 001, 002, 003, 004 --------------------------

action_embedding_sz = 2


class MyParamActionEnv(gym.Env):
    def __init__(self, max_avail_actions):
        self.action_space = Discrete(max_avail_actions)
        self.observation_space = Dict(
            {
                "action_mask": Box(0, 1, shape=(max_avail_actions,)),
                "avail_actions": Box(-1, 1, shape=(max_avail_actions, action_embedding_sz)),
                "real_obs": Box(-1, 1, shape=(4,)),
            }
        )

    # What the page leaves out.

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 8
        return self.shown(), {}

    def step(self, action):
        assert self.mask[action], (action, self.mask)
        self.left -= 1
        return self.shown(), float(self.obs["avail_actions"][action, 0]), self.left == 0, False, {}

    def shown(self):
        random = self.np_random
        self.mask = (random.random(self.action_space.n) < 0.4).astype(np.float32)
        self.mask[random.integers(self.action_space.n)] = 1
        sizes = {"avail_actions": (self.action_space.n, action_embedding_sz), "real_obs": (4,)}
        self.obs = {
            name: random.uniform(-1, 1, size).astype(np.float32) for name, size in sizes.items()
        }
        self.obs["action_mask"] = self.mask
        return self.obs


class ParametricActionsModel(TFModelV2):
    def __init__(
        self,
        obs_space,
        action_space,
        num_outputs,
        model_config,
        name,
        true_obs_shape=(4,),
        action_embed_size=2,
    ):
        super(ParametricActionsModel, self).__init__(  # noqa: UP008
            obs_space, action_space, num_outputs, model_config, name
        )
        self.action_embed_model = FullyConnectedNetwork(
            Box(-1, 1, true_obs_shape),
            action_space,
            action_embed_size,
            model_config,
            name + "_action_embed",
        )

    def forward(self, input_dict, state, seq_lens):
        # Extract the available actions tensor from the observation.
        avail_actions = input_dict["obs"]["avail_actions"]
        action_mask = input_dict["obs"]["action_mask"]

        # Compute the predicted action embedding
        action_embed, _ = self.action_embed_model({"obs": input_dict["obs"]["real_obs"]})

        # Expand the model output to [BATCH, 1, EMBED_SIZE]. Note that the
        # avail actions tensor is of shape [BATCH, MAX_ACTIONS, EMBED_SIZE].
        intent_vector = tf.expand_dims(action_embed, 1)

        # Batch dot product => shape of logits is [BATCH, MAX_ACTIONS].
        action_logits = tf.reduce_sum(avail_actions * intent_vector, axis=2)

        # Mask out invalid actions (use tf.float32.min for stability)
        inf_mask = tf.maximum(tf.math.log(action_mask), tf.float32.min)
        return action_logits + inf_mask, state

    def value_function(self):
        return self.action_embed_model.value_function()


def episodes_of(policy, env, count=20):
    """Play; the environment insists on allowed actions."""
    for seed in range(count):
        obs, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            obs, _, ended, *_ = env.step(policy.act([obs]).action[0])


def test_page_model_trains_in_the_page_environment():
    """`tf.log` is `tf.math.log`, and the page's environment says `real_obs` where its model says
    `cart`.
    """
    ModelCatalog.register_custom_model("pa_model", ParametricActionsModel)
    algo = ppo.PPO(
        env=lambda: MyParamActionEnv(5),
        config={"model": {"custom_model": "pa_model", **SMALL}, **SHORT},
    )
    assert type(algo.policy.model) is ParametricActionsModel
    assert algo.policy.explain().as_dict()["head"]["chosen"] is None
    before = algo.policy.model.get_weights()
    algo.train()
    assert not [
        name
        for name, value in algo.policy.model.get_weights().items()
        if np.array_equal(value, before[name])
    ]
    episodes_of(algo.policy, MyParamActionEnv(5))


@both
def test_head_serves_the_page_environment_without_a_model(framework):
    algo = ppo.PPO(
        env=lambda: MyParamActionEnv(5), config={"framework": framework, "model": SMALL, **SHORT}
    )
    assert algo.policy.explain().as_dict()["head"]["chosen"] == "parametric"
    algo.train()
    episodes_of(algo.policy, MyParamActionEnv(5))


def test_head_computes_what_the_page_model_computes():
    """Same weights, same observations, same distribution: the page's model is the head with one
    linear layer less.
    """
    env = MyParamActionEnv(5)
    spaces = env.observation_space, env.action_space
    theirs = rlcatalog.build(*spaces, {"custom_model": ParametricActionsModel, **SMALL}, "tf")
    ours = rlcatalog.build(*spaces, SMALL, "tf")
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(0, 0.5, value.shape) for name, value in theirs.model.get_weights().items()
    }
    theirs.model.set_weights(weights)
    ours.model.set_weights(
        {
            name: weights[f"action_embed_model.{name.removeprefix('trunk.')}"]
            for name in ours.model.get_weights()
        }
    )
    obs = [env.reset(seed=seed)[0] for seed in range(50)]
    mine, other = ours.act(obs, explore=False), theirs.act(obs, explore=False)
    np.testing.assert_allclose(mine.value, other.value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mine.logp, other.logp, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(mine.action, other.action)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_image_beside_a_mask_gets_a_vision_net(framework):
    """By `build`, which keeps the mask out of what is encoded, and by `get_model_v2`, which shows
    it to the head.
    """
    image = gym.spaces.Box(0, 255, (42, 42, 3), np.uint8)
    space, actions = (
        gym.spaces.Dict({"action_mask": gym.spaces.MultiBinary(3), "pixels": image}),
        gym.spaces.Discrete(3),
    )
    policy = rlcatalog.build(space, actions, None, framework)
    assert policy.explain().as_dict()["model"]["chosen"] == "visionnet"
    encoded = rlcatalog.ModelCatalog.get_preprocessor_for_space(space).observation_space
    model = rlcatalog.ModelCatalog.get_model_v2(encoded, actions, 3, {}, framework)
    assert type(model.trunk) is type(policy.model.trunk)
    # An image of bytes is known as one, and scaled: the same picture in [0, 1] gives the same
    # logits.
    obs = {
        "action_mask": np.ones((2, 3), np.int8),
        "pixels": np.random.default_rng(0).integers(0, 256, (2, 42, 42, 3)),
    }
    alone = rlcatalog.build(image, actions, None, framework)
    weights = policy.model.get_weights()
    prefix = {"outputs.logits", "outputs.value"}
    alone.model.set_weights(
        {
            name.removeprefix("trunk."): weights[name]
            for name in weights
            if name.startswith("trunk.") or name.rpartition(".")[0] in prefix
        }
    )
    pixels = {**obs, "pixels": obs["pixels"].astype(np.uint8)}
    np.testing.assert_allclose(
        policy.act(pixels).dist_inputs,
        alone.act(pixels["pixels"]).dist_inputs,
        rtol=1e-5,
        atol=1e-6,
    )


def test_default_model_of_an_algorithm_gets_no_head():
    """The class an algorithm passes as its default is no trunk for the head, like a
    custom model.
    """
    from rlcatalog_torch import FullyConnectedNetwork

    class Own(FullyConnectedNetwork):
        pass

    space = gym.spaces.Dict(
        {"action_mask": gym.spaces.MultiBinary(3), "x": gym.spaces.Box(-1, 1, (2,), np.float32)}
    )
    encoded = rlcatalog.ModelCatalog.get_preprocessor_for_space(space).observation_space
    model = rlcatalog.ModelCatalog.get_model_v2(
        encoded, gym.spaces.Discrete(3), 3, {}, "torch", default_model=Own
    )
    assert type(model) is Own
