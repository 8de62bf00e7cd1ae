"""Ids that the network looks up in tables, against one-hot vectors times these tables."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from builders import to_array
from gymnasium import spaces
from model_runs import assert_close, run_model, set_random_weights, to_tensor

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.errors import ConfigError, NoMatchError, NotServedError
from rlcatalog.models import weights_of
from rlcatalog.spaces import Repeated

frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
pytestmark = pytest.mark.twins

PAIR = spaces.Box(-1, 1, (2,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)


def build_trunk(space, embeddings, framework, **config):
    """Return a trunk that ends with the embeddings and the other values, and its preprocessor."""
    config = {"embeddings": embeddings, "fcnet_hiddens": [], **config}
    preprocessor = ModelCatalog.get_preprocessor_for_space(space, config)
    trunk = ModelCatalog.get_model_v2(
        preprocessor.observation_space, TWO_ACTIONS, None, config, framework
    )
    return set_random_weights(trunk), preprocessor


def table_of(trunk, index=0):
    return trunk.get_weights()[f"input_embedding.tables.{index}.weight"]


def one_hot(values, count):
    return np.eye(count, dtype=np.float32)[np.asarray(values)]


# --- what the network computes --------------------------------------------------------------------


@frameworks
def test_discrete_is_its_one_hot_times_the_table(framework):
    trunk, preprocessor = build_trunk(spaces.Discrete(5, start=10), 3, framework)

    features = run_model(trunk, preprocessor.transform_batch(np.array([14, 10, 12]))).outputs

    expected = one_hot([4, 0, 2], 5) @ table_of(trunk)  # counted from 10
    np.testing.assert_allclose(features, expected, atol=1e-6)


@frameworks
def test_multi_discrete_has_a_table_for_each_entry(framework):
    space = spaces.MultiDiscrete([[3, 4], [2, 5]], start=[[1, 0], [-3, 2]])
    trunk, preprocessor = build_trunk(space, 2, framework)
    observations = np.array([[[1, 3], [-2, 2]], [[3, 0], [-3, 6]]])

    features = run_model(trunk, preprocessor.transform_batch(observations)).outputs

    # The rows of the entries, 3 + 4 + 2 + 5, are below one another.
    tables = np.split(table_of(trunk), [3, 7, 9])
    places = [[0, 2], [3, 0], [1, 0], [0, 4]]  # of the two observations, counted from `start`
    expected = [
        one_hot(entry, len(table)) @ table for entry, table in zip(places, tables, strict=True)
    ]
    np.testing.assert_allclose(features, np.concatenate(expected, axis=1), atol=1e-6)


@frameworks
def test_text_is_the_mean_of_its_characters(framework):
    space = spaces.Text(4, min_length=0, charset="cab")
    trunk, preprocessor = build_trunk(space, 3, framework)

    features = run_model(trunk, preprocessor.transform_batch(["abba", "c", ""])).outputs

    # Sorted, the characters are a, b, c. The second text has one character of four, the third none.
    counts = np.array([[2, 2, 0], [0, 0, 1], [0, 0, 0]], np.float32)
    lengths = np.array([[4], [1], [1]])
    np.testing.assert_allclose(features, counts / lengths @ table_of(trunk), atol=1e-6)


@frameworks
def test_other_values_stay_in_their_order(framework):
    space = spaces.Dict({"a": PAIR, "item": spaces.Discrete(4), "on": spaces.Discrete(2)})
    trunk, preprocessor = build_trunk(space, {"item": 3}, framework)
    observations = [
        {"a": np.float32([0.5, -0.5]), "item": 3, "on": 1},
        {"a": np.float32([0.25, 1.0]), "item": 0, "on": 0},
    ]

    features = run_model(trunk, preprocessor.transform_batch(observations)).outputs

    expected = np.concatenate(
        [
            [[0.5, -0.5], [0.25, 1.0]],
            one_hot([3, 0], 4) @ table_of(trunk),
            one_hot([1, 0], 2),  # not embedded
        ],
        axis=1,
    )
    np.testing.assert_allclose(features, expected, atol=1e-6)


@frameworks
def test_structure_has_the_same_features_as_its_vector(framework):
    space = spaces.Dict({"a": PAIR, "item": spaces.Discrete(4)})
    trunk, preprocessor = build_trunk(space, {"item": 3}, framework)
    encoded = preprocessor.transform_batch([{"a": np.float32([0.5, -0.5]), "item": 3}])

    structure = {"a": np.float32([[0.5, -0.5]]), "item": np.array([3])}

    assert_close(run_model(trunk, structure).outputs, run_model(trunk, encoded).outputs)


@frameworks
def test_ids_outside_the_space_have_the_nearest_row(framework):
    trunk, _ = build_trunk(spaces.Discrete(5, start=10), 3, framework)

    features = run_model(trunk, np.array([9, 15, -(2**40)])).outputs

    np.testing.assert_array_equal(features, table_of(trunk)[[0, 4, 0]])


@frameworks
def test_large_ids_are_exact(framework):
    # float32 has numbers for the integers up to 2**24.
    space = spaces.Dict({"item": spaces.Discrete(4, start=2**24 - 3), "a": PAIR})
    trunk, preprocessor = build_trunk(space, {"item": 1}, framework)
    observations = []
    for item in range(2**24 - 3, 2**24 + 1):
        observations.append({"item": item, "a": np.zeros(2, np.float32)})

    features = run_model(trunk, preprocessor.transform_batch(observations)).outputs

    np.testing.assert_array_equal(features[:, 2:], table_of(trunk))  # after the two numbers


# --- gradients ------------------------------------------------------------------------------------


def gradient_of_table(trunk, encoded, factors):
    """Return the gradient of a weighted sum of a trunk's features for its table."""
    encoded = to_tensor(trunk.framework, encoded)
    factors = to_tensor(trunk.framework, factors)
    weight = trunk.trainable_variables(as_dict=True)["input_embedding.tables.0.weight"]
    if trunk.framework == "torch":
        features, _ = trunk({"obs": encoded}, [], None)
        return to_array(torch.autograd.grad((features * factors).sum(), weight)[0])
    with tf.GradientTape() as tape:
        features, _ = trunk({"obs": encoded}, [], None)
        loss = tf.reduce_sum(features * factors)
    return to_array(tf.convert_to_tensor(tape.gradient(loss, weight)))


@pytest.mark.parametrize(
    ("space", "observations", "shares"),
    [
        pytest.param(
            spaces.Discrete(4),
            np.array([3, 1, 3]),
            one_hot([3, 1, 3], 4),
            id="discrete",
        ),
        pytest.param(
            spaces.Text(4, min_length=0, charset="ab"),
            ["abb", "", "b"],
            np.array([[1 / 3, 2 / 3], [0, 0], [0, 1]]),
            id="text",
        ),
    ],
)
@frameworks
def test_gradient_is_that_of_the_matrix_product(space, observations, shares, framework):
    trunk, preprocessor = build_trunk(space, 3, framework)
    factors = np.random.default_rng(1).normal(size=(3, 3)).astype(np.float32)

    gradient = gradient_of_table(trunk, preprocessor.transform_batch(observations), factors)

    table = torch.tensor(table_of(trunk), requires_grad=True)
    product = torch.tensor(shares, dtype=torch.float32) @ table
    (product * torch.tensor(factors)).sum().backward()
    np.testing.assert_allclose(gradient, table.grad.numpy(), atol=1e-6)


# --- the model around the tables ------------------------------------------------------------------


def test_long_text_takes_less_than_a_hundredth_of_the_weights():
    space = spaces.Text(8192)
    config = {"text_encoding": "onehot"}
    one_hots = rlcatalog.explain(space, TWO_ACTIONS, config).resolution.stages

    policy = rlcatalog.build(space, TWO_ACTIONS, {"embeddings": 64})

    num_weights = sum(array.size for array in weights_of(policy.model).values())
    assert num_weights < 0.01 * sum(stage.weights for stage in one_hots)


@frameworks
@pytest.mark.parametrize("vf_share_layers", [True, False])
def test_stages_announce_every_weight(vf_share_layers, framework):
    space = spaces.Dict({"a": PAIR, "item": spaces.Discrete(40), "word": spaces.Text(3)})
    config = {
        "embeddings": {"item": 5, "word": 4},
        "fcnet_hiddens": [6],
        "vf_share_layers": vf_share_layers,
    }

    policy = rlcatalog.build(space, TWO_ACTIONS, config, framework)

    announced = sum(stage.weights for stage in policy.explain().resolution.stages)
    assert announced == sum(array.size for array in weights_of(policy.model).values())


@frameworks
def test_separate_value_has_a_table_of_its_own(framework):
    config = {"embeddings": 3, "fcnet_hiddens": [4], "vf_share_layers": False}
    policy = rlcatalog.build(spaces.Discrete(5), TWO_ACTIONS, config, framework)
    step = policy.act([2])

    weights = policy.model.get_weights()
    weights["value_input_embedding.tables.0.weight"] = (
        weights["value_input_embedding.tables.0.weight"] + 1
    )
    policy.model.set_weights(weights)
    changed = policy.act([2])

    np.testing.assert_array_equal(changed.dist_inputs, step.dist_inputs)
    assert changed.value != step.value


def test_rows_of_a_new_table_have_unit_variance():
    policy = rlcatalog.build(spaces.Discrete(4000), TWO_ACTIONS, {"embeddings": 16})

    table = policy.model.get_weights()["input_embedding.tables.0.weight"]

    assert abs(table.mean()) < 0.02  # 64,000 numbers: five standard errors
    assert abs(table.std() - 1) < 0.02


def test_half_precision_refuses_ids_that_it_cannot_represent():
    space = spaces.Dict({"a": PAIR, "item": spaces.Discrete(3000)})
    policy = rlcatalog.build(space, TWO_ACTIONS, {"embeddings": {"item": 2}})
    policy.model.half()

    with pytest.raises(NotServedError, match=r"integers up to 2,048, but there are ids"):
        policy.act([{"a": np.zeros(2, np.float32), "item": 2999}])


def test_half_precision_reads_ids_that_it_represents():
    space = spaces.Dict({"a": PAIR, "item": spaces.Discrete(3)})
    policy = rlcatalog.build(space, TWO_ACTIONS, {"embeddings": {"item": 2}})
    obs = [{"a": np.zeros(2, np.float32), "item": 2}]
    expected = policy.act(obs).dist_inputs

    policy.model.half()

    np.testing.assert_allclose(policy.act(obs).dist_inputs, expected, atol=0.01)


def test_net_for_the_environments_space_encodes_it_itself():
    config = {"embeddings": 3, "fcnet_hiddens": []}

    trunk = ModelCatalog.get_model_v2(spaces.Discrete(5), TWO_ACTIONS, None, config, "torch")

    assert trunk.num_outputs == 3
    assert run_model(trunk, np.array([4])).outputs.shape == (1, 3)


# --- what it refuses ------------------------------------------------------------------------------


def test_net_needs_the_preprocessor_of_its_config():
    space = spaces.Dict({"a": PAIR, "item": spaces.Discrete(4)})
    one_hots = ModelCatalog.get_preprocessor_for_space(space).observation_space

    with pytest.raises(ConfigError, match=r"OneHotPreprocessor .*writes no ids"):
        ModelCatalog.get_model_v2(one_hots, TWO_ACTIONS, 2, {"embeddings": {"item": 3}}, "torch")


def test_items_of_lists_need_another_net():
    space = spaces.Dict({"a": PAIR, "units": Repeated(spaces.Discrete(4), 2)})
    config = {"embeddings": {"units[:]": 3}, "custom_model": "fcnet"}

    with pytest.raises(NoMatchError, match=r"obs\['units'\]\[:\] need a net"):
        rlcatalog.build(space, TWO_ACTIONS, config)


def test_items_of_lists_match_no_fcnet():
    space = spaces.Dict({"a": PAIR, "units": Repeated(spaces.Discrete(4), 2)})
    catalog = rlcatalog.default_catalog()
    candidates = catalog.resolve(space, TWO_ACTIONS, {"embeddings": {"units[:]": 3}}).choices

    verdicts = candidates["trunk"].verdicts
    [why] = [match.why for part, match in verdicts if part.name == "fcnet"]

    assert "a net that reads them one by one" in why
