"""The seeds' samples around models (configs, distributions, preprocessors, wrappers), and the table
of all samples.

The seeds are five editions of RLlib's page, numbered 000 to 004. Each test names the editions and
the section.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Discrete

import rlcatalog
import rlcatalog_ppo as ppo
from rlcatalog import ActionDistribution, ModelCatalog, Preprocessor, one_hot
from rlcatalog.errors import ObservationError
from rlcatalog_tf import Categorical as TFCategorical
from rlcatalog_torch import Categorical

pytestmark = [
    pytest.mark.twins,
    pytest.mark.usefixtures("one_thread", "seeded", "default"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the older editions' names
]

ROOT = Path(__file__).resolve().parents[2]
SHORT = {"num_envs": 2, "rollout_length": 16, "minibatch_size": 16, "num_epochs": 1, "seed": 0}
both = pytest.mark.parametrize("framework", ["torch", "tf"])


def trained(algo):
    """Take one iteration of PPO; all weights must have moved."""
    before = algo.policy.model.get_weights()
    algo.train()
    after = algo.policy.model.get_weights()
    assert not [name for name in after if np.array_equal(after[name], before[name])]
    algo.stop()


# --- Default Model Config Settings: 002, 004 ------------------------------------------------------


@both
def test_algorithm_config_of_the_page_is_used(framework):
    algo_config = {
        # All model-related settings go into this sub-dict.
        "model": {
            # By default, the MODEL_DEFAULTS dict above will be used.
            # Change individual keys in that dict by overriding them, e.g.
            "fcnet_hiddens": [512, 512, 512],
            "fcnet_activation": "relu",
        },
        # ... other Trainer config keys, e.g. "lr" ...
        "lr": 0.00001,
    }
    algo = ppo.PPO(env="CartPole-v1", config={**algo_config, "framework": framework, **SHORT})
    weights = algo.policy.model.get_weights()
    assert [w.shape for n, w in weights.items() if n.startswith("hidden") and w.ndim == 2] == [
        (512, 4),
        (512, 512),
        (512, 512),
    ]
    trained(algo)


# --- Built-in Model Parameters: 000, 001, 003 -----------------------------------------------------


MODEL_DEFAULTS = {
    "conv_filters": None, "conv_activation": "relu", "fcnet_activation": "tanh",
    "fcnet_hiddens": [256, 256], "free_log_std": False, "no_final_linear": False,
    "vf_share_layers": True, "use_lstm": False, "max_seq_len": 20, "lstm_cell_size": 256,
    "lstm_use_prev_action_reward": False, "state_shape": None, "framestack": True, "dim": 84,
    "grayscale": False, "zero_mean": True, "custom_preprocessor": None, "custom_model": None,
    "custom_action_dist": None, "custom_options": {},
}  # fmt: skip


def test_defaults_are_those_of_the_page():
    """Given back as a config, they change nothing."""
    env = gym.make("CartPole-v1")
    given, plain = rlcatalog.build(env=env, config=MODEL_DEFAULTS), rlcatalog.build(env=env)
    assert given.config == plain.config
    shared = MODEL_DEFAULTS.keys() & rlcatalog.MODEL_DEFAULTS.keys()
    assert len(shared) > 12
    assert {key: rlcatalog.MODEL_DEFAULTS[key] for key in shared} == {
        key: MODEL_DEFAULTS[key] for key in shared
    }


# --- Built-in Models: 000, 001, 002, 003, 004 -----------------------------------------------------


@both
def test_filters_for_images_of_42_by_42(framework):
    model = {"dim": 42, "conv_filters": [[16, [4, 4], 2], [32, [4, 4], 2], [512, [11, 11], 1]]}
    policy = rlcatalog.build(Box(0, 255, (42, 42, 3), np.uint8), Discrete(2), model, framework)
    step = policy.act(np.zeros((2, 42, 42, 3), np.uint8))
    assert step.dist_inputs.shape == (2, 2)
    assert policy.resolution.component("trunk").name == "visionnet"
    kernels = sorted(w.shape for w in policy.model.get_weights().values() if w.ndim == 4)
    assert (512, 32, 11, 11) in kernels  # the last one takes what is left, 11 x 11


# --- Custom Preprocessors: 000, 001, 003 ----------------------------------------------------------


def test_custom_preprocessor_trains_under_ppo():
    class MyPreprocessorClass(Preprocessor):
        def _init_shape(self, obs_space, options):
            new_shape = (obs_space.shape[0] * 2,)
            return new_shape  # can vary depending on inputs

        def transform(self, observation):
            # return the preprocessed observation.
            return np.concatenate([observation, observation**2])

    ModelCatalog.register_custom_preprocessor("my_prep", MyPreprocessorClass)
    trainer = ppo.PPOTrainer(
        env="CartPole-v1",
        config={
            "model": {
                "custom_preprocessor": "my_prep",
                "custom_options": {},  # extra options to pass to your preprocessor
            },
            **SHORT,
        },
    )
    assert trainer.policy.encoded_space.shape == (8,)
    trained(trainer)


# --- Custom Preprocessors and Environment Filters: 002, 004 ---------------------------------------


class Numbers(gym.Env):
    """Shows numbers in [0, 5) and pays their double."""

    observation_space, action_space = Box(0.0, 5.0, (), np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.float32(0), {}

    def step(self, action):
        self.t += 1
        return np.float32(self.t), 2.0 * self.t, self.t == 4, False, {}


class OneHotEnv(gym.core.ObservationWrapper):
    # Override `observation` to custom process the original observation
    # coming from the env.
    def observation(self, observation):
        # E.g. one-hotting a float obs [0.0, 5.0[.
        return one_hot(observation, depth=5)


class ClipRewardEnv(gym.core.RewardWrapper):
    def __init__(self, env, min_, max_):
        super().__init__(env)
        self.min = min_
        self.max = max_

    # Override `reward` to custom process the original reward coming
    # from the env.
    def reward(self, reward):
        # E.g. simple clipping between min and max.
        return np.clip(reward, self.min, self.max)


def test_wrappers_of_the_page_train_under_ppo():
    def wrapped(config):
        env = OneHotEnv(Numbers())
        env.observation_space = Box(0.0, 1.0, (5,), np.float32)  # the page leaves this line out
        return ClipRewardEnv(env, -1.0, 1.0)

    algo = ppo.PPO(env=wrapped, config={"model": {"fcnet_hiddens": [8]}, **SHORT})
    assert algo.policy.encoded_space.shape == (5,)
    trained(algo)
    assert algo.evaluate(2) == [4.0, 4.0]


def test_wrapper_with_outdated_space_is_an_error():
    env = OneHotEnv(Numbers())
    policy = rlcatalog.build(env=env, config={"fcnet_hiddens": [8]})
    with pytest.raises(
        ObservationError,
        match=r"expected Box\(\) float32: shape \(\); found an array of shape \(5,\)",
    ):
        policy.act([env.reset()[0]])


# --- Custom Action Distributions: 000, 001, 002, 003, 004 -----------------------------------------


@both
def test_custom_action_distribution_trains_under_ppo(framework):
    class MyActionDist(ActionDistribution):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 7  # controls model output feature vector size

        def __init__(self, inputs, model):
            super(MyActionDist, self).__init__(inputs, model)  # noqa: UP008
            assert model.num_outputs == 7
            folded = inputs[:, 0:6:3] + inputs[:, 1:6:3] + inputs[:, 2:6:3] + inputs[:, 6:7]
            self.choice = (Categorical if framework == "torch" else TFCategorical)(folded, model)

        def sample(self):
            return self.choice.sample()

        def logp(self, actions):
            return self.choice.logp(actions)

        def entropy(self):
            return self.choice.entropy()

    ModelCatalog.register_custom_action_dist("my_dist", MyActionDist)
    trainer = ppo.PPOTrainer(
        env="CartPole-v1",
        config={
            "framework": framework,
            "model": {
                "custom_action_dist": "my_dist",
            },
            **SHORT,
        },
    )
    assert trainer.policy.act(np.zeros((3, 4), np.float32)).dist_inputs.shape == (3, 7)
    trained(trainer)  # a class without deterministic_sample() can be trained


# --- Lines that had to change ---------------------------------------------------------------------


def test_lines_that_no_longer_run():
    """What docs/seeds.md says of the old lines; when one of these runs again, its row
    there can go.
    """
    symbolic = tf.keras.layers.Input(shape=(), dtype=tf.int32)
    for name in ("log", "layers"):
        assert not hasattr(tf, name)
    assert not hasattr(np, "product")
    with pytest.raises(
        ValueError, match="KerasTensor cannot be used as input to a TensorFlow function"
    ):
        tf.sequence_mask(symbolic)
    with pytest.raises(TypeError, match="sequences"):
        tf.keras.layers.LSTM(4)(inputs=tf.keras.layers.Input(shape=(None, 3)))
    with pytest.raises(ValueError, match="units"):
        tf.keras.layers.Dense(Discrete(2).n)
    with pytest.raises(ValueError, match="shape"):
        tf.keras.layers.Input(shape=(3))
    model = ModelCatalog.get_model_v2(
        Box(-1, 1, (4,)), Discrete(2), 2, {"fcnet_hiddens": [4]}, "torch"
    )
    with pytest.raises(ValueError, match="dictionary update sequence"):
        model([{"obs": torch.zeros(1, 4)}])


# --- the table of docs/seeds.md -------------------------------------------------------------------


def sample_rows():
    """Return the rows of the table of samples: editions, section, sample or link, here, what
    differs.
    """
    text = (ROOT / "docs/seeds.md").read_text(encoding="utf-8")
    table = text.partition("<!-- samples -->")[2].partition("<!-- /samples -->")[0]
    lines = [line for line in table.splitlines() if line.startswith("| 0")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def names_of_tests(path):
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("row", sample_rows(), ids=lambda row: row[2][:60])
def test_code_of_the_table_exists(row):
    editions, section, _, here, _ = row
    assert set(editions.split(", ")) <= {"000", "001", "002", "003", "004"}
    assert section
    places = re.findall(r"`([^`]+)`", here)
    assert places
    for place in places:
        file, _, test = place.partition("::")
        assert (ROOT / file).is_file(), place
        assert not test or test in names_of_tests(ROOT / file), place


def test_table_has_every_sample_and_link():
    """The samples and linked examples, written down a second time from the editions."""
    rows = sample_rows()
    samples = " ".join(row[2] for row in rows)
    for word in (
        "MODEL_DEFAULTS",
        "conv_filters",
        "algo_config",
        "OneHotEnv",
        "ClipRewardEnv",
        "MyModelClass",
        "CustomTorchModel",
        "MyRNNClass",
        "forward_rnn",
        "get_initial_state",
        "value_function",
        "custom_loss",
        "metrics",
        "update_ops",
        "batch_normalization",
        "MyPreprocessorClass",
        "MyActionDist",
        "MyParamActionEnv",
        "ParametricActionsModel",
        "BinaryAutoregressiveOutput",
        "AutoregressiveActionsModel",
        "reader.next()",
        "restore_original_dimensions",
        "get_q_values",
        "get_single_q_value",
        "Discrete(3)",
        "MultiDiscrete([3, 4])",
        "custom_keras_model.py",
        "custom_keras_rnn_model.py",
        "rnn_model.py",
        "batch_norm_model.py",
        "custom_loss.py",
        "lstm_auto_wrapping.py",
        "attention_net.py",
        "test_attention_net_learning.py",
        "custom_model_api.py",
        "complex_input_net.py",
        "trajectory_view_utilizing_models.py",
        "complex_struct_space.py",
        "test_nested_observation_spaces.py",
        "parametric_actions_cartpole.py",
        "autoregressive_action_dist.py",
        "fcnet.py",
        "visionnet.py",
        "recurrent_net.py",
        "atari_wrappers.py",
        "repeated.py",
        "repeated_values.py",
    ):
        assert word in samples, word
    assert {edition for row in rows for edition in row[0].split(", ")} == {
        "000",
        "001",
        "002",
        "003",
        "004",
    }
