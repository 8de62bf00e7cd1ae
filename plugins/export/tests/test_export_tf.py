"""SavedModels of TensorFlow policies: acting, errors, folders, and numbers drawn from noise."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from export_cases import built, cases
from export_steps import near as assert_near, steps_of
from gymnasium.spaces import Box, Discrete
from scipy import stats

import rlcatalog
from rlcatalog.errors import FolderTakenError, NotServedError, SavedPolicyError
from rlcatalog_export.tf.noise import TFNoise
from rlcatalog_tf import TFModelV2, draw_categorical, draw_gamma, draw_normal, draw_uniform
from rlcatalog_tf.random import drawing_from

THREE_FEATURES = Box(-1, 1, (3,), np.float32)


# --- acting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "parts, lstm, tf",
        pytest.param("dirichlet, text, tf", marks=pytest.mark.slow),
        pytest.param("a user's Keras layers, lstm, tf", marks=pytest.mark.slow),
    ],
)
def test_saved_model_acts_like_its_policy(name, tmp_path):
    case = cases()[name]
    policy = built(case)

    interface = policy.export(tmp_path / "model", format="savedmodel")

    # What the policy was given in several steps, with noise for its draws, and what it did.
    noise_width = interface.input("noise").shape[0]
    inputs, expected_steps = steps_of(case, policy, noise_width)
    actor = rlcatalog.Actor(tmp_path / "model", **passed_spaces(case, interface))
    steps = act_on_steps(actor, inputs)
    assert_near(tuple(expected_steps), tuple(steps), case.tolerance, name)


def passed_spaces(case, interface):
    """Return the observation space if the interface cannot describe it."""
    if interface.observation_space:
        return {}
    return {"observation_space": case.obs}


def act_on_steps(actor, inputs):
    """Return what an actor does in consecutive steps."""
    state = None
    steps = []
    for step in inputs:
        if step["begun"] is not None:
            state = actor.restart(state, step["begun"])
        result = act_on_step(actor, step, state)
        steps.append(tuple(result)[:5])
        state = result.state
    return steps


def test_export_leaves_the_weights_unchanged(tmp_path):
    policy = rlcatalog.build(THREE_FEATURES, Discrete(3), {"fcnet_hiddens": [4]}, "tf")
    before = policy.model.get_weights()

    policy.export(tmp_path / "model", format="savedmodel")

    for name, array in policy.model.get_weights().items():
        np.testing.assert_array_equal(array, before[name])


def act_on_step(actor, step, state):
    """Act as in a step of the policy: on its inputs, and with its noise."""
    feeds, _ = actor.feeds(step["obs"])
    rows = 3
    mask = None
    if step["mask"] is not None:
        rows = len(step["mask"])
        mask = actor.masks.matrix(step["mask"], rows)
    noise = step["noise"]
    explore = noise is not None
    return actor.act_on(feeds, rows, state, step["reward"], mask, explore, noise)


class DrawsLogits(TFModelV2):
    """Draws random numbers in its forward pass."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.layer = tf.keras.layers.Dense(self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self.rows, logits = tf.shape(input_dict["obs"])[0], self.layer(input_dict["obs"])
        return logits + 0.0 * tf.random.normal(tf.shape(logits)), state

    def value_function(self):
        return tf.zeros([self.rows])


@pytest.mark.parametrize("format", ["savedmodel", "onnx"])
def test_export_of_a_model_that_draws_shows_its_code(format, tmp_path):
    if format == "onnx":
        pytest.importorskip("tf2onnx")
    policy = rlcatalog.build(THREE_FEATURES, Discrete(3), {"custom_model": DrawsLogits}, "tf")

    with pytest.raises(NotServedError, match=r"export_tf\.py:\d+, in forward: ") as caught:
        policy.export(tmp_path / "model", format=format)

    assert "in forward: `return logits + 0.0 * tf.random" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# --- folders --------------------------------------------------------------------------------------


def export_saved_model(folder):
    policy = rlcatalog.build(THREE_FEATURES, Discrete(3), {"fcnet_hiddens": [4]}, "tf")
    policy.export(folder, format="savedmodel")
    return policy


def test_export_replaces_an_older_saved_model(tmp_path):
    policy = export_saved_model(tmp_path / "model")

    policy.export(tmp_path / "model", format="savedmodel")

    assert (tmp_path / "model/saved_model.pb").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_export_does_not_replace_another_folder(tmp_path):
    policy = export_saved_model(tmp_path / "model")

    with pytest.raises(FolderTakenError, match="is not an exported policy"):
        policy.export(tmp_path, format="savedmodel")

    assert (tmp_path / "model/saved_model.pb").is_file()


def test_actor_of_another_folder_is_an_error(tmp_path):
    pytest.importorskip("tensorflow")  # it reads SavedModels

    with pytest.raises(SavedPolicyError, match="not a policy exported by rlcatalog"):
        rlcatalog.Actor(tmp_path)


# --- numbers drawn from noise ---------------------------------------------------------------------


def draw_from_noise(draw):
    """Call a function that draws 20,000 numbers from noise, and return them."""
    noise = TFNoise(20_000)
    with drawing_from(noise):
        draw()
    numbers = tf.constant(np.random.default_rng(1).random((20_000, sum(noise.widths)), np.float32))
    with drawing_from(TFNoise(None, numbers, noise.widths)):
        values = draw().numpy()
    # With the number of rows instead of the widths, it draws the same.
    with drawing_from(TFNoise(20_000, numbers)):
        np.testing.assert_array_equal(draw().numpy(), values)
    return values


def draw_while_counting(draw):
    """Call a function while the width of its noise is counted, and return what it draws."""
    with drawing_from(TFNoise(20_000)):
        return draw().numpy()


both_ways_to_draw = pytest.mark.parametrize(
    "run", [draw_from_noise, draw_while_counting], ids=["from-noise", "while-counting"]
)


@both_ways_to_draw
@pytest.mark.parametrize(
    ("draw", "cdf"),
    [
        (lambda: draw_uniform([20_000]), stats.uniform.cdf),
        (lambda: draw_normal([20_000]), stats.norm.cdf),
        (lambda: draw_normal([20_000, 3])[:, 2], stats.norm.cdf),
        (lambda: draw_gamma(tf.fill([20_000], 0.3)), stats.gamma(0.3).cdf),
        (lambda: draw_gamma(tf.fill([20_000, 1], 4.5))[:, 0], stats.gamma(4.5).cdf),
    ],
    ids=["uniform", "normal", "normal, three of a row", "gamma below 1", "gamma"],
)
def test_numbers_follow_their_distribution(draw, cdf, run):
    assert stats.kstest(run(draw), cdf).pvalue > 1e-4


@both_ways_to_draw
def test_categories_follow_their_logits(run):
    logits = tf.constant([[2.0, 0.0, -1.0, tf.float32.min]] * 20_000)

    categories = run(lambda: draw_categorical(logits))[:, 0]

    counts = np.bincount(categories, minlength=4)
    exponents = np.exp([2.0, 0.0, -1.0])
    expected = exponents / exponents.sum() * 20_000
    assert counts[3] == 0  # the logit of a masked action
    assert stats.chisquare(counts[:3], expected).pvalue > 1e-4
