"""Policies of TensorFlow's as SavedModels, and what they draw from noise."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from export_cases import built, cases
from export_steps import near, steps_of
from gymnasium.spaces import Box, Discrete
from scipy import stats

import rlcatalog
from rlcatalog.errors import FolderTakenError, NotServedError, SavedPolicyError
from rlcatalog_export.tf.noise import TFNoise
from rlcatalog_tf import TFModelV2, draw_categorical, draw_gamma, draw_normal, draw_uniform
from rlcatalog_tf.random import drawing_from

VECTOR = Box(-1, 1, (3,), np.float32)


@pytest.mark.parametrize(
    "name",
    [
        "parts, lstm, tf",
        pytest.param("dirichlet, text, tf", marks=pytest.mark.attack),
        pytest.param("a user's Keras layers, lstm, tf", marks=pytest.mark.attack),
    ],
)
def test_a_saved_model_acts_as_its_policy(name, tmp_path):
    case = cases()[name]
    policy = built(case)
    before = policy.model.get_weights()
    interface = policy.export(tmp_path / "model", format="savedmodel")
    noise = interface.input("noise")
    inputs, expected = steps_of(case, policy, noise.shape[0])
    for key, array in policy.model.get_weights().items():
        np.testing.assert_array_equal(array, before[key])
    space = {} if interface.observation_space else {"observation_space": case.obs}
    actor, state = rlcatalog.Actor(tmp_path / "model", **space), None
    for given, step in zip(inputs, expected, strict=True):
        if given["begun"] is not None:
            state = actor.restart(state, given["begun"])
        feeds, _ = actor.feeds(given["obs"])
        rows = len(given["mask"]) if given["mask"] is not None else 3
        mask = None if given["mask"] is None else actor.masks.matrix(given["mask"], rows)
        drawn = given["noise"]
        found = actor.act_on(feeds, rows, state, given["reward"], mask, drawn is not None, drawn)
        near(step, tuple(found)[:5], case.tolerance, name)
        state = found.state


class Drawing(TFModelV2):
    """Adds noise of its own to the logits."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.layer = tf.keras.layers.Dense(self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self.rows, logits = tf.shape(input_dict["obs"])[0], self.layer(input_dict["obs"])
        return logits + 0.0 * tf.random.normal(tf.shape(logits)), state

    def value_function(self):
        return tf.zeros([self.rows])


@pytest.mark.parametrize("format", ["savedmodel", "onnx"])
def test_what_draws_by_itself_is_refused_by_its_line(format, tmp_path):
    if format == "onnx":
        pytest.importorskip("tf2onnx")
    policy = rlcatalog.build(VECTOR, Discrete(3), {"custom_model": Drawing}, "tf")
    with pytest.raises(
        NotServedError, match=r"export_tf\.py:\d+, in forward: `return logits \+ 0\.0 \* tf\.random"
    ):
        policy.export(tmp_path / "model", format=format)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_export_and_a_damaged_one_are_refused(tmp_path):
    pytest.importorskip("tensorflow")  # SavedModels are read by it
    with pytest.raises(SavedPolicyError, match="not a policy exported by rlcatalog"):
        rlcatalog.Actor(tmp_path)
    policy = rlcatalog.build(VECTOR, Discrete(3), {"fcnet_hiddens": [4]}, "tf")
    policy.export(tmp_path / "model", format="savedmodel")
    policy.export(tmp_path / "model", format="savedmodel")  # a former one is replaced as a whole
    with pytest.raises(FolderTakenError, match="is not an exported policy"):
        policy.export(tmp_path, format="savedmodel")
    assert (tmp_path / "model/saved_model.pb").is_file()
    (tmp_path / "model/saved_model.pb").write_bytes(b"no graph")
    with pytest.raises(SavedPolicyError, match="its checksum differs"):
        rlcatalog.Actor(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def drawn(draw, count=20_000):
    """Return numbers drawn from noise, with the noise's width known and not."""
    noise = TFNoise(count)
    with drawing_from(noise):
        first = draw().numpy()
    given = np.random.default_rng(1).random((count, sum(noise.widths)), np.float32)
    with drawing_from(TFNoise(None, tf.constant(given), noise.widths)):
        second = draw().numpy()
    with drawing_from(TFNoise(count, tf.constant(given))):
        np.testing.assert_array_equal(draw().numpy(), second)
    return first, second


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
def test_what_is_made_of_noise_is_distributed_as_it_should(draw, cdf):
    for found in drawn(draw):
        assert stats.kstest(found, cdf).pvalue > 1e-4


def test_places_are_drawn_as_often_as_their_logits_say():
    logits = tf.constant([[2.0, 0.0, -1.0, tf.float32.min]] * 20_000)
    chances = np.exp([2.0, 0.0, -1.0])
    for found in drawn(lambda: draw_categorical(logits)):
        counts = np.bincount(found[:, 0], minlength=4)
        assert counts[3] == 0
        assert stats.chisquare(counts[:3], chances / chances.sum() * len(found)).pvalue > 1e-4
