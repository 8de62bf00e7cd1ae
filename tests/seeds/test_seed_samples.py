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
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def assert_trains_every_weight(algo):
    """Train for one iteration, after which every weight must be another one."""
    before = algo.policy.model.get_weights()
    algo.train()
    after = algo.policy.model.get_weights()
    assert [name for name in after if np.array_equal(after[name], before[name])] == []
    algo.stop()


# --- Default Model Config Settings: 002, 004 ------------------------------------------------------


@frameworks
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

    hidden_shapes = []
    for name, array in algo.policy.model.get_weights().items():
        if name.startswith("hidden") and name.endswith("weight"):
            hidden_shapes.append(array.shape)
    assert hidden_shapes == [(512, 4), (512, 512), (512, 512)]
    assert_trains_every_weight(algo)


# --- Built-in Model Parameters: 000, 001, 003 -----------------------------------------------------


MODEL_DEFAULTS = {
    "conv_filters": None, "conv_activation": "relu", "fcnet_activation": "tanh",
    "fcnet_hiddens": [256, 256], "free_log_std": False, "no_final_linear": False,
    "vf_share_layers": True, "use_lstm": False, "max_seq_len": 20, "lstm_cell_size": 256,
    "lstm_use_prev_action_reward": False, "state_shape": None, "framestack": True, "dim": 84,
    "grayscale": False, "zero_mean": True, "custom_preprocessor": None, "custom_model": None,
    "custom_action_dist": None, "custom_options": {},
}  # fmt: skip


def test_defaults_of_the_page_change_nothing():
    env = gym.make("CartPole-v1")
    policy = rlcatalog.build(env=env, config=MODEL_DEFAULTS)
    assert policy.config == rlcatalog.build(env=env).config


def test_defaults_are_those_of_the_page():
    shared = MODEL_DEFAULTS.keys() & rlcatalog.MODEL_DEFAULTS.keys()
    assert len(shared) > 12
    for key in shared:
        assert rlcatalog.MODEL_DEFAULTS[key] == MODEL_DEFAULTS[key], key


# --- Built-in Models: 000, 001, 002, 003, 004 -----------------------------------------------------


@frameworks
def test_filters_for_images_of_42_by_42(framework):
    model = {"dim": 42, "conv_filters": [[16, [4, 4], 2], [32, [4, 4], 2], [512, [11, 11], 1]]}
    image = Box(0, 255, (42, 42, 3), np.uint8)

    policy = rlcatalog.build(image, Discrete(2), model, framework)
    step = policy.act(np.zeros((2, 42, 42, 3), np.uint8))

    assert step.dist_inputs.shape == (2, 2)
    assert policy.resolution.part("trunk").name == "visionnet"
    kernel_shapes = [array.shape for array in policy.model.get_weights().values()]
    assert (512, 32, 11, 11) in kernel_shapes  # two layers of stride 2 leave 11 x 11 pixels


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
    assert trainer.policy.encoded_space.shape == (8,)  # twice CartPole's four numbers
    assert_trains_every_weight(trainer)


# --- Custom Preprocessors and Environment Filters: 002, 004 ---------------------------------------


class Numbers(gym.Env):
    """Shows the numbers 0 to 4 and pays their double; an episode has four steps."""

    observation_space = Box(0.0, 5.0, (), np.float32)
    action_space = Discrete(2)

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


def make_wrapped_env(config):
    env = OneHotEnv(Numbers())
    env.observation_space = Box(0.0, 1.0, (5,), np.float32)  # the page leaves this line out
    return ClipRewardEnv(env, -1.0, 1.0)


def test_wrappers_of_the_page_train_under_ppo():
    config = {"model": {"fcnet_hiddens": [8]}, **SHORT}
    algo = ppo.PPO(env=make_wrapped_env, config=config)
    assert algo.policy.encoded_space.shape == (5,)

    assert_trains_every_weight(algo)

    assert algo.evaluate(2) == [4.0, 4.0]  # four rewards, clipped to 1


def test_wrapper_with_outdated_space_is_an_error():
    env = OneHotEnv(Numbers())
    policy = rlcatalog.build(env=env, config={"fcnet_hiddens": [8]})
    one_hot_obs, _ = env.reset()

    message = r"expected Box\(\) float32: shape \(\); found an array of shape \(5,\)"
    with pytest.raises(ObservationError, match=message):
        policy.act([one_hot_obs])


# --- Custom Action Distributions: 000, 001, 002, 003, 004 -----------------------------------------


@frameworks
def test_custom_action_distribution_trains_under_ppo(framework):
    categorical = Categorical if framework == "torch" else TFCategorical

    class MyActionDist(ActionDistribution):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 7  # controls model output feature vector size

        def __init__(self, inputs, model):
            super(MyActionDist, self).__init__(inputs, model)  # noqa: UP008
            assert model.num_outputs == 7
            # Two logits, in which all seven inputs count.
            logits = inputs[:, 0:6:3] + inputs[:, 1:6:3] + inputs[:, 2:6:3] + inputs[:, 6:7]
            self.choice = categorical(logits, model)

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
    assert_trains_every_weight(trainer)  # although the class has no deterministic_sample()


# --- Lines that had to change ---------------------------------------------------------------------


# If one of these tests fails, the old line runs again, and its row in docs/seeds.md can go.


@pytest.mark.parametrize(("module", "name"), [(tf, "log"), (tf, "layers"), (np, "product")])
def test_name_of_the_page_is_gone(module, name):
    assert not hasattr(module, name)


def test_sequence_mask_of_a_keras_input_is_an_error():
    symbolic = tf.keras.layers.Input(shape=(), dtype=tf.int32)
    message = "KerasTensor cannot be used as input to a TensorFlow function"
    with pytest.raises(ValueError, match=message):
        tf.sequence_mask(symbolic)


def test_lstm_with_inputs_by_keyword_is_an_error():
    symbolic = tf.keras.layers.Input(shape=(None, 3))
    with pytest.raises(TypeError, match="sequences"):
        tf.keras.layers.LSTM(4)(inputs=symbolic)


def test_dense_layer_with_a_numpy_integer_is_an_error():
    units = Discrete(2).n
    with pytest.raises(ValueError, match="units"):
        tf.keras.layers.Dense(units)


def test_input_layer_with_a_number_as_shape_is_an_error():
    with pytest.raises(ValueError, match="shape"):
        tf.keras.layers.Input(shape=(3))


def test_model_called_with_a_list_is_an_error():
    config = {"fcnet_hiddens": [4]}
    model = ModelCatalog.get_model_v2(Box(-1, 1, (4,)), Discrete(2), 2, config, "torch")
    with pytest.raises(ValueError, match="dictionary update sequence"):
        model([{"obs": torch.zeros(1, 4)}])


# --- the table of docs/seeds.md -------------------------------------------------------------------


def read_sample_rows():
    """Return the rows of the table of samples: editions, section, sample or link, place, and what
    differs.
    """
    text = (ROOT / "docs/seeds.md").read_text(encoding="utf-8")
    table = text.partition("<!-- samples -->")[2].partition("<!-- /samples -->")[0]
    rows = []
    for line in table.splitlines():
        if line.startswith("| 0"):  # not the title and the rule below it
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            rows.append([cell.strip() for cell in cells])
    return rows


def find_tests(path):
    """Return the names of the tests of a file."""
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("row", read_sample_rows(), ids=lambda row: row[2][:60])
def test_code_of_the_table_exists(row):
    editions, section, _sample, places, _differences = row

    # The numbers of the five editions of RLlib's page.
    assert set(editions.split(", ")) <= {"000", "001", "002", "003", "004"}
    assert section
    # A place is a file, or a file and one of its tests: `tests/test_x.py::test_y`.
    paths = re.findall(r"`([^`]+)`", places)
    assert paths
    for path in paths:
        file, _, test = path.partition("::")
        assert (ROOT / file).is_file(), path
        if test:
            assert test in find_tests(ROOT / file), path


#: The samples and linked examples, written down a second time from the editions.
SAMPLES = [
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
]


@pytest.mark.parametrize("sample", SAMPLES)
def test_table_has_every_sample_and_link(sample):
    samples = [row[2] for row in read_sample_rows()]
    assert any(sample in cell for cell in samples)


def test_table_has_every_edition():
    editions = set()
    for row in read_sample_rows():
        editions |= set(row[0].split(", "))
    assert editions == {"000", "001", "002", "003", "004"}
