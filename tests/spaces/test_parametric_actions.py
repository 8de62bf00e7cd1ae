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
from builders import assert_every_weight_changed, randomize_weights
from command_line import rlcatalog as run_rlcatalog
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from gymnasium.vector import SyncVectorEnv

import rlcatalog
import rlcatalog_ppo as ppo
from rlcatalog import ModelCatalog
from rlcatalog_tf import FullyConnectedNetwork, TFModelV2
from rlcatalog_torch import FullyConnectedNetwork as TorchFullyConnectedNetwork

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import dqn
from action_masking import MaskedTaxi
from parametric_actions_cartpole import EMBEDDINGS, ParametricCartPole

pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded", "default")]

EXAMPLES = Path(dqn.__file__).parent
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
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
    ("framework", "make_env", "steps"),
    [
        ("torch", ParametricCartPole, 40),
        ("tf", ParametricCartPole, 20),
        ("torch", MaskedTaxi, 40),
        pytest.param("tf", ParametricCartPole, 200, marks=pytest.mark.slow),
        pytest.param("torch", MaskedTaxi, 200, marks=pytest.mark.slow),
        pytest.param("torch", ParametricCartPole, 1_000, marks=pytest.mark.slow),
    ],
)
def test_policy_takes_every_action_but_forbidden_ones(framework, make_env, steps):
    envs = SyncVectorEnv([make_env] * 100)
    policy = rlcatalog.build(env=envs, config=SMALL, framework=framework)
    obs, _ = envs.reset(seed=0)

    actions = set()
    for _ in range(steps):
        action = policy.act(obs).action
        actions.update(action.tolist())
        obs, *_ = envs.step(action)  # raises an error for a forbidden action
    envs.close()

    assert actions == set(range(envs.single_action_space.n))


def test_example_environment_moves_the_cart_by_embeddings():
    env = ParametricCartPole()
    cartpole = gym.make("CartPole-v1")
    obs, _ = env.reset(seed=3)
    cartpole.reset(seed=3)
    cartpole.unwrapped.state = env.unwrapped.state  # both carts begin in the same state

    actions = set()
    for push in [0, 1, 1, 0, 1, 0]:
        # The actions are shuffled in each step; their embeddings say which way they push.
        is_push = (obs["avail_actions"] == EMBEDDINGS[push]).all(axis=1)
        action = int(np.flatnonzero(is_push)[0])
        assert obs["action_mask"][action]
        actions.add(action)

        obs, *_ = env.step(action)
        cart, *_ = cartpole.step(push)

        np.testing.assert_array_equal(obs["cart"], cart)
    assert len(actions) > 2  # not always the same two


def test_example_environment_rejects_a_forbidden_action():
    env = ParametricCartPole()
    obs, _ = env.reset(seed=3)
    forbidden = int(np.flatnonzero(obs["action_mask"] == 0)[0])

    with pytest.raises(ValueError, match="is forbidden; allowed:"):
        env.step(forbidden)


# --- algorithms -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "memory", "observation_filter"),
    [
        ("torch", "none", "NoFilter"),
        ("torch", "lstm", "NoFilter"),
        ("torch", "attention", "NoFilter"),
        ("torch", "none", "MeanStdFilter"),
        ("tf", "none", "MeanStdFilter"),
        ("tf", "lstm", "NoFilter"),
        pytest.param("tf", "none", "NoFilter", marks=pytest.mark.slow),
        pytest.param("tf", "attention", "NoFilter", marks=pytest.mark.slow),
    ],
)
def test_ppo_trains_every_weight(framework, memory, observation_filter):
    config = {
        "framework": framework,
        "model": {**SMALL, **MEMORIES[memory]},
        "observation_filter": observation_filter,
        **SHORT,
    }
    algo = ppo.PPO(env=ParametricCartPole, config=config)
    before = algo.policy.model.get_weights()

    algo.train()
    algo.train()

    assert_every_weight_changed(before, algo.policy.model.get_weights())
    assert len(algo.evaluate(2, seed=0)) == 2  # a return for each of 2 episodes
    algo.stop()


@frameworks
def test_dqn_trains_on_dot_products(framework):
    hyper = dqn.Hyper(steps=300, learning_starts=100, epsilon_steps=150)

    returns = dqn.train(
        ParametricCartPole, framework, model=SMALL, hyper=hyper, episodes=3, dueling=False
    )

    assert len(returns) == 3


@frameworks
def test_dueling_dqn_rejects_dot_products(framework):
    hyper = dqn.Hyper(steps=300, learning_starts=100, epsilon_steps=150)

    # A dueling head needs features, but the parametric head returns a score for each action.
    message = "'parametric' returns one value"
    with pytest.raises(rlcatalog.errors.NotServedError, match=message):
        dqn.train(ParametricCartPole, framework, model=SMALL, hyper=hyper, dueling=True)


@pytest.mark.parametrize(
    ("framework", "dueling"),
    [
        ("torch", True),
        ("torch", False),
        pytest.param("tf", True, marks=pytest.mark.slow),
        pytest.param("tf", False, marks=pytest.mark.slow),
    ],
)
def test_dqn_trains_with_only_a_mask(framework, dueling):
    hyper = dqn.Hyper(steps=150, learning_starts=100, epsilon_steps=100)

    returns = dqn.train(
        MaskedTaxi, framework, model=SMALL, hyper=hyper, episodes=1, dueling=dueling
    )

    assert len(returns) == 1


def run_in_examples(*arguments):
    """Run the command line in the folder of the examples, and return its output."""
    process = run_rlcatalog(*arguments, cwd=EXAMPLES)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_command_line_explains_the_parametric_head():
    env_id = "parametric_actions_cartpole:ParametricCartPole-v0"

    explanation = json.loads(run_in_examples("explain", env_id, "--json"))

    assert explanation["head"]["chosen"] == "parametric"


def test_command_line_trains_and_evaluates(tmp_path):
    folder = str(tmp_path / "run")
    run_in_examples(
        "train",
        "parametric_actions_cartpole:ParametricCartPole-v0",
        *("--steps", "256"),
        *("--out", folder),
        *("--model", "fcnet_hiddens=[8]"),
        *("--set", "rollout_length=32"),
        *("--set", "minibatch_size=64"),
    )

    output = run_in_examples(
        "evaluate", folder, "--episodes", "2", "--import", "parametric_actions_cartpole"
    )

    assert "mean return" in output


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


def play_episodes(policy, count=20):
    """Play in an environment that asserts that actions are allowed."""
    env = MyParamActionEnv(5)
    for seed in range(count):
        obs, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            obs, _, ended, *_ = env.step(policy.act([obs]).action[0])


def test_page_model_trains_in_the_page_environment():
    # Both are samples of RLlib's page on parametric actions, with two differences: `tf.log` is
    # `tf.math.log` today, and the page's environment says `real_obs` where its model says `cart`.
    ModelCatalog.register_custom_model("pa_model", ParametricActionsModel)
    config = {"model": {"custom_model": "pa_model", **SMALL}, **SHORT}
    algo = ppo.PPO(env=lambda: MyParamActionEnv(5), config=config)
    assert type(algo.policy.model) is ParametricActionsModel
    before = algo.policy.model.get_weights()

    algo.train()

    assert_every_weight_changed(before, algo.policy.model.get_weights())
    play_episodes(algo.policy)  # raises an error for a forbidden action


@frameworks
def test_head_serves_the_page_environment_without_a_model(framework):
    config = {"framework": framework, "model": SMALL, **SHORT}
    algo = ppo.PPO(env=lambda: MyParamActionEnv(5), config=config)
    assert algo.policy.explain().as_dict()["head"]["chosen"] == "parametric"

    algo.train()

    play_episodes(algo.policy)


def test_head_computes_what_the_model_of_rllibs_page_computes():
    env = MyParamActionEnv(5)
    obs_space = env.observation_space
    page_config = {"custom_model": ParametricActionsModel, **SMALL}
    page_policy = rlcatalog.build(obs_space, env.action_space, page_config, "tf")
    head_policy = rlcatalog.build(obs_space, env.action_space, SMALL, "tf")
    randomize_weights(page_policy.model, deviation=0.5)
    page_weights = page_policy.model.get_weights()
    head_weights = {}
    for name in head_policy.model.get_weights():
        # "trunk.hidden.weight" of the head is "action_embed_model.hidden.weight" of the page.
        head_weights[name] = page_weights[f"action_embed_model.{name.removeprefix('trunk.')}"]
    head_policy.model.set_weights(head_weights)
    obs = [env.reset(seed=seed)[0] for seed in range(50)]

    head_step = head_policy.act(obs, explore=False)

    page_step = page_policy.act(obs, explore=False)
    np.testing.assert_allclose(head_step.value, page_step.value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(head_step.logp, page_step.logp, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(head_step.action, page_step.action)


# --- models below the head ------------------------------------------------------------------------


THREE_ACTIONS = Discrete(3)
IMAGE = Box(0, 255, (42, 42, 3), np.uint8)
MASKED_IMAGE = Dict({"action_mask": MultiBinary(3), "pixels": IMAGE})


@frameworks
def test_image_beside_a_mask_gets_a_vision_net(framework):
    policy = rlcatalog.build(MASKED_IMAGE, THREE_ACTIONS, None, framework)
    assert policy.explain().as_dict()["model"]["chosen"] == "visionnet"


@frameworks
def test_get_model_v2_gives_an_image_beside_a_mask_a_vision_net(framework):
    policy = rlcatalog.build(MASKED_IMAGE, THREE_ACTIONS, None, framework)
    # This space has the mask, which `build` does not encode.
    encoded_space = ModelCatalog.get_preprocessor_for_space(MASKED_IMAGE).observation_space

    model = ModelCatalog.get_model_v2(encoded_space, THREE_ACTIONS, 3, {}, framework)

    assert type(model.trunk) is type(policy.model.trunk)


@frameworks
def test_image_beside_a_mask_is_scaled_like_an_image_alone(framework):
    policy = rlcatalog.build(MASKED_IMAGE, THREE_ACTIONS, None, framework)
    image_policy = rlcatalog.build(IMAGE, THREE_ACTIONS, None, framework)
    weights = policy.model.get_weights()
    image_weights = {}
    for name in image_policy.model.get_weights():
        # Most layers are those of the head's trunk; the last ones are the head's own.
        image_weights[name] = weights[name] if name in weights else weights[f"trunk.{name}"]
    image_policy.model.set_weights(image_weights)
    images = np.random.default_rng(0).integers(0, 256, (2, 42, 42, 3)).astype(np.uint8)
    allow_all = np.ones((2, 3), np.int8)

    logits = policy.act({"action_mask": allow_all, "pixels": images}).dist_inputs

    logits_of_image = image_policy.act(images).dist_inputs
    np.testing.assert_allclose(logits, logits_of_image, rtol=1e-5, atol=1e-6)


def test_default_model_of_an_algorithm_gets_no_head():
    class DefaultModel(TorchFullyConnectedNetwork):
        """An algorithm's default model, which reads the mask itself, as a custom model does."""

    space = Dict({"action_mask": MultiBinary(3), "x": Box(-1, 1, (2,), np.float32)})
    encoded_space = ModelCatalog.get_preprocessor_for_space(space).observation_space

    model = ModelCatalog.get_model_v2(
        encoded_space,
        THREE_ACTIONS,
        num_outputs=3,
        model_config={},
        framework="torch",
        default_model=DefaultModel,
    )

    assert type(model) is DefaultModel
