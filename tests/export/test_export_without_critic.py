"""Exported and frozen policies with a critic of its own, which act on what the policy sees."""

from __future__ import annotations

import copy
import itertools
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

import onnx
import torch
from builders import randomize_weights, sample_observations
from export_steps import drawing
from faulty_functions import function_that_raises
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from onnx import numpy_helper

import rlcatalog
from rlcatalog.errors import NotServedError, ObservationError
from rlcatalog_export import Interface

CART = Box(-1, 1, (3,), np.float32)
SECRET = Box(-1, 1, (2,), np.float32)
CAMERA = Box(0, 255, (8, 8, 3), np.uint8)
WITH_SECRET = {"cart": CART, "secret": SECRET}
WITH_MASK = {"action_mask": MultiBinary(4), **WITH_SECRET}
NESTED = Dict({"joints": CART, "secret": SECRET})
#: No layer of the policy has this width.
CRITIC_WIDTH = 11
CONVOLUTION = {"conv_filters": [[4, [8, 8], 1]]}
LSTM = {"use_lstm": True, "lstm_cell_size": 4}
LSTM_WITH_PAST = {**LSTM, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_memory_inference": 3,
    "attention_memory_training": 3,
}
ROWS = 3

#: Name → the entries of an observation, the names that the policy sees, and more of the config.
CASES = {
    "vectors": (WITH_SECRET, ["cart"], {}),
    "image": ({"camera": CAMERA, "secret": SECRET}, ["camera"], {}),
    "image-and-vector": ({"camera": CAMERA, **WITH_SECRET}, ["camera", "cart"], CONVOLUTION),
    "nested": ({"goal": Discrete(3), "robot": NESTED}, ["goal", "robot.joints"], {}),
    "one-nested-entry": ({"robot": NESTED}, ["robot.joints"], {}),
    "mask": (WITH_MASK, ["cart"], {}),
    "embeddings": (
        {"avail_actions": Box(-1, 1, (4, 3)), **WITH_MASK},
        ["avail_actions", "cart"],
        {},
    ),
    "filter": (WITH_SECRET, ["cart"], {"observation_filter": "MeanStdFilter"}),
    "filter-by-name": (
        WITH_SECRET,
        ["cart"],
        {"observation_filter": "MeanStdFilter", "filter_include": ["cart", "secret"]},
    ),
    "lstm": (WITH_MASK, ["cart"], LSTM),
    "lstm-of-critic": (WITH_SECRET, ["cart"], {"critic": LSTM}),
    "lstm-of-both": (WITH_SECRET, ["cart"], {**LSTM, "critic": LSTM}),
    "past-actions": (WITH_SECRET, ["cart"], LSTM_WITH_PAST),
    "past-actions-of-critic": (WITH_SECRET, ["cart"], {"critic": LSTM_WITH_PAST}),
    "attention": (WITH_SECRET, ["cart"], ATTENTION),
}
each_case = pytest.mark.parametrize("case", CASES)


def build_case(case, framework="torch", action=None, catalog=None, **changes):
    """Return a policy with random weights and, if it has a filter, statistics of observations."""
    entries, seen_by_policy, config = CASES[case]
    net = {"fcnet_hiddens": [5]}
    critic_net = {"fcnet_hiddens": [CRITIC_WIDTH]}
    if "camera" in entries:
        critic_net |= CONVOLUTION
    if seen_by_policy == ["camera"]:
        net = CONVOLUTION
    config = {
        **net,
        "obs_groups": {"policy": seen_by_policy},
        **config,
        "critic": {**critic_net, **config.get("critic", {})},
        **changes,
    }
    action = action or Discrete(4)
    policy = rlcatalog.build(Dict(entries), action, config, framework, catalog=catalog)
    randomize_weights(policy.model)
    if policy.filter is not None:
        policy.preprocess(observations_of(policy, rows=20, seed=99), update=True)
    return policy


def observations_of(policy, rows=ROWS, seed=0):
    """Return observations in which some actions are allowed."""
    observations = sample_observations(policy.observation_space, rows, seed)
    for obs in observations:
        if "action_mask" in obs:
            obs["action_mask"][seed % 4] = 1
    return observations


def without_secret(obs):
    """Return an observation without the entry that only the critic sees."""
    if not isinstance(obs, dict):
        return obs
    return {key: without_secret(entry) for key, entry in obs.items() if key != "secret"}


def assert_near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def assert_acts_as_the_policy(actor, policy, steps=4):
    """Compare an actor or a frozen policy, which gets what the policy sees, with the policy, which
    gets whole observations, over some steps of episodes.
    """
    policy_state = None
    state = None
    for t in range(steps):
        observations = observations_of(policy, seed=t)
        reward = np.full(ROWS, 0.1 * t, np.float32)
        narrow = [without_secret(obs) for obs in observations]

        expected = policy.act(observations, policy_state, prev_reward=reward, explore=False)
        step = actor.act(narrow, state, prev_reward=reward, explore=False)

        assert_near(step.dist_inputs, expected.dist_inputs)
        assert_near(step.logp, expected.logp)
        np.testing.assert_array_equal(step.action, expected.action)
        assert step.value is None
        begins = np.array([t == 1, False, False])
        policy_state = policy.restart(expected.state, begins)
        state = actor.restart(step.state, begins)


class Export(NamedTuple):
    """An exported policy, the path of the file, and what the file contains."""

    policy: rlcatalog.Policy
    path: Path
    interface: Interface


def export(policy, folder, suffix):
    path = folder / f"policy{suffix}"
    format_name = None
    if not suffix:
        format_name = "savedmodel"
    return Export(policy, path, policy.export(path, format=format_name))


# --- exported files -------------------------------------------------------------------------------

#: A framework and a suffix for each pair of a framework and a format.
FORMATS = {
    "torch-pt2": ("torch", ".pt2"),
    "torch-onnx": ("torch", ".onnx"),
    "tf-savedmodel": ("tf", ""),
    "tf-onnx": ("tf", ".onnx"),
}


@pytest.fixture(scope="module")
def export_of(tmp_path_factory):
    """Export a case, once for all tests: `export_of("vectors", "torch-pt2")`."""

    @cache
    def export_case(case, format_name):
        framework, suffix = FORMATS[format_name]
        return export(build_case(case, framework), tmp_path_factory.mktemp("export"), suffix)

    return export_case


#: Exported by `make test`, in one of the formats. An image alone and attention alone are left out:
#: test_frozen_policy_acts_on_what_the_policy_sees has the same graphs.
SHORT = {
    ("embeddings", "tf-onnx"),
    ("filter", "tf-onnx"),
    ("filter-by-name", "torch-pt2"),
    ("image-and-vector", "tf-onnx"),
    ("lstm", "torch-pt2"),
    ("lstm-of-both", "torch-pt2"),
    ("lstm-of-critic", "torch-pt2"),
    ("mask", "torch-onnx"),
    ("nested", "tf-savedmodel"),
    ("one-nested-entry", "torch-pt2"),
    ("past-actions", "tf-savedmodel"),
    ("past-actions-of-critic", "torch-pt2"),
    ("vectors", "tf-onnx"),
    ("vectors", "torch-pt2"),
}
PAIRS = []
for pair in itertools.product(CASES, FORMATS):
    marks = [] if pair in SHORT else [pytest.mark.slow]
    PAIRS.append(pytest.param(*pair, id=" ".join(pair), marks=marks))


@pytest.mark.parametrize(("case", "format_name"), PAIRS)
def test_file_acts_on_what_the_policy_sees(case, format_name, export_of):
    policy, path, interface = export_of(case, format_name)

    assert_acts_as_the_policy(rlcatalog.Actor(path), policy)
    content = (interface.inputs, interface.observation_space, interface.preprocessors)
    assert "secret" not in str(content)
    assert all(port.role != "value" for port in interface.outputs)


@pytest.mark.parametrize(
    ("case", "states"),
    [
        ("lstm", ["memory_0", "memory_1"]),
        ("lstm-of-critic", []),
        ("lstm-of-both", ["memory_0", "memory_1"]),
        ("past-actions-of-critic", []),
    ],
)
def test_file_has_the_policys_states_alone(case, states, export_of):
    interface = export_of(case, "torch-pt2").interface

    assert [port.name for port in interface.inputs if port.role == "state"] == states


def test_graph_asks_for_no_hidden_entry(export_of):
    graph = onnx.load(export_of("image-and-vector", "tf-onnx").path).graph

    names = [graph_input.name for graph_input in graph.input]
    assert names == ["obs_camera", "obs_cart", "mask", "noise", "deterministic"]


def numbers_in_onnx(path):
    """Return the arrays that an ONNX file contains."""
    graph = onnx.load(path).graph
    arrays = [numpy_helper.to_array(tensor) for tensor in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant":
            arrays.append(numpy_helper.to_array(node.attribute[0].t))
    return arrays


def test_file_has_no_numbers_of_the_critic(export_of):
    policy, path, _ = export_of("filter", "tf-onnx")

    arrays = numbers_in_onnx(path)

    means = policy.filter.statistics.running_stats.mean
    numbers = np.concatenate([array.ravel().astype(np.float64) for array in arrays])
    assert np.isclose(numbers[:, None], means[:3]).any(axis=0).all()  # of the cart
    assert not np.isclose(numbers[:, None], means[3:], rtol=1e-6).any()
    assert not any(CRITIC_WIDTH in array.shape for array in arrays)


def test_program_has_no_weights_of_the_critic(export_of):
    program = torch.export.load(export_of("vectors", "torch-pt2").path)

    shapes = [tuple(tensor.shape) for tensor in program.state_dict.values()]
    assert (5, 3) in shapes  # of the policy's hidden layer
    assert not any(CRITIC_WIDTH in shape for shape in shapes)


def test_file_draws_as_the_policy(tmp_path):
    policy = build_case("vectors", action=Box(-1, 1, (2,), np.float32))
    policy.export(tmp_path / "policy.pt2")
    actor = rlcatalog.Actor(tmp_path / "policy.pt2")
    observations = observations_of(policy)
    noise = actor.draw(ROWS)

    feeds, _ = actor.feeds([without_secret(obs) for obs in observations])
    step = actor.act_on(feeds, ROWS, None, None, None, explore=True, noise=noise)

    with drawing(policy, noise):
        expected = policy.act(observations)
    assert_near(step.raw_action, expected.raw_action)
    assert_near(step.logp, expected.logp)


@pytest.fixture
def actor(export_of):
    """An actor of an exported policy that sees a cart, but not the secret."""
    return rlcatalog.Actor(export_of("vectors", "tf-onnx").path)


def test_actor_takes_a_batch_of_a_vector_environment(actor):
    step = actor.act({"cart": np.zeros((2, 3), np.float32)})

    assert step.action.shape == (2,)


def test_actor_ignores_the_entry_of_the_critic(actor):
    narrow = {"cart": np.full((2, 3), 0.5, np.float32)}
    expected = actor.act(narrow, explore=False).dist_inputs
    whole = {**narrow, "secret": np.full((2, 2), np.nan, np.float32)}

    for obs in (whole, [{key: entry[0] for key, entry in whole.items()}] * 2):
        step = actor.act(obs, explore=False)

        np.testing.assert_array_equal(step.dist_inputs, expected)


def test_actor_names_a_missing_entry_of_the_policy(actor):
    with pytest.raises(ObservationError, match=r"without \['cart'\]"):
        actor.act([{"secret": np.zeros(2)}])


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_export_leaves_the_policy_as_it_was(framework, tmp_path):
    policy = build_case("lstm-of-both", framework)
    arrays = policy.model.get_weights() | policy.random_state()
    before = {name: array.copy() for name, array in arrays.items()}

    export(policy, tmp_path, ".pt2" if framework == "torch" else "")

    after = policy.model.get_weights() | policy.random_state()
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array, err_msg=name)


def test_group_of_the_critic_alone_gives_a_file_without_values(tmp_path):
    policy = build_case("vectors", obs_groups={"critic": ["secret"]})

    interface = policy.export(tmp_path / "policy.pt2")

    observations = observations_of(policy)
    step = rlcatalog.Actor(tmp_path / "policy.pt2").act(observations, explore=False)
    assert_near(step.dist_inputs, policy.act(observations, explore=False).dist_inputs)
    assert [port.name for port in interface.inputs if port.role == "observation"] == [
        "obs_cart",
        "obs_secret",
    ]
    assert step.value is None


@pytest.mark.parametrize(
    "case",
    [
        "lstm-of-both",
        pytest.param("vectors", marks=pytest.mark.slow),
        pytest.param("mask", marks=pytest.mark.slow),
    ],
)
def test_file_without_groups_has_the_value(case, tmp_path):
    policy = build_case(case, obs_groups=None)
    policy.export(tmp_path / "policy.pt2")
    actor = rlcatalog.Actor(tmp_path / "policy.pt2")
    state = None
    actor_state = None
    for t in range(3):
        observations = observations_of(policy, seed=t)
        expected = policy.act(observations, state, explore=False)
        step = actor.act(observations, actor_state, explore=False)

        assert_near(step.dist_inputs, expected.dist_inputs)
        assert_near(step.value, expected.value)
        state = expected.state
        actor_state = step.state


def halve(x, ops):
    """Halve a tensor; filters also get the tensor operations."""
    return x / 2


class Halving(rlcatalog.Filter):
    """A filter without statistics, which halves all values."""

    def __call__(self, encoded, *, update=False):
        return encoded / 2

    def lowered(self):
        return halve


class Unlowered(Halving):
    """The same without a tensor form."""

    def lowered(self):
        return None


class Counting(Halving):
    """The same with statistics that cannot be moved."""

    def get_state(self):
        return {"count": np.zeros(1)}


def build_with_filter(cls):
    """Return a policy with groups and a filter of the program."""
    catalog = rlcatalog.Catalog()
    catalog.register_filter("own", cls)
    return build_case("vectors", catalog=catalog, observation_filter="own")


def test_file_contains_a_filter_of_the_program(tmp_path):
    policy = build_with_filter(Halving)

    policy.export(tmp_path / "policy.pt2")

    assert_acts_as_the_policy(rlcatalog.Actor(tmp_path / "policy.pt2"), policy)


@pytest.mark.parametrize(
    ("cls", "message"),
    [(Unlowered, "Unlowered .* has no tensor form"), (Counting, "Counting .*take_statistics")],
)
def test_filter_that_no_file_can_contain_is_named(cls, message, tmp_path):
    policy = build_with_filter(cls)

    with pytest.raises(NotServedError, match=message):
        policy.export(tmp_path / "policy.pt2")


# --- frozen policies ------------------------------------------------------------------------------


@each_case
def test_frozen_policy_acts_on_what_the_policy_sees(case, monkeypatch):
    policy = build_case(case)
    frozen = policy.freeze(ROWS)
    expected_policy = copy.deepcopy(policy)

    # All steps come from graphs: nothing calls the policy's backend.
    monkeypatch.setattr(policy.backend, "act", function_that_raises(AssertionError))

    assert frozen.reason is None
    assert_acts_as_the_policy(frozen, expected_policy)
    assert frozen.reason is None


def test_narrow_step_of_a_frozen_policy_keeps_the_critics_memory():
    policy = build_case("lstm-of-both")
    frozen = policy.freeze(ROWS)
    observations = observations_of(policy)
    state = frozen.act(observations, explore=False).state

    narrow_step = frozen.act([without_secret(obs) for obs in observations], state)

    expected = policy.act([without_secret(obs) for obs in observations], state)
    for part, expected_part in zip(narrow_step.state.memory, expected.state.memory, strict=True):
        assert_near(part, expected_part)


def test_update_reaches_the_graph_without_the_critic():
    policy = build_case("vectors")
    frozen = policy.freeze(ROWS)
    narrow = [without_secret(obs) for obs in observations_of(policy)]
    frozen.act(narrow, explore=False)  # records the graph
    randomize_weights(policy.model)

    frozen.update()

    assert_acts_as_the_policy(frozen, policy)
    assert frozen.reason is None


def test_encoded_observations_need_no_critic_when_frozen():
    policy = build_case("vectors")
    frozen = policy.freeze(ROWS)
    encoded = policy.preprocess(observations_of(policy))
    expected = policy.act_encoded(encoded, explore=False)
    encoded[:, 3:] = 7  # of the secret

    step = frozen.act_encoded(encoded, explore=False, policy_only=True)

    assert_near(step.dist_inputs, expected.dist_inputs)
    assert step.value is None


def test_stepper_of_a_frozen_policy_acts_without_the_secret():
    policy = build_case("lstm-of-both")
    frozen = policy.freeze(ROWS)
    stepper = frozen.stepper(ROWS, autoreset="next_step")
    expected_stepper = policy.stepper(ROWS, autoreset="next_step")
    for t in range(4):
        observations = [without_secret(obs) for obs in observations_of(policy, seed=t)]
        done = np.array([t == 1, False, t == 2])

        step = stepper.step(observations, done=done, explore=False)

        expected = expected_stepper.step(observations, done=done, explore=False)
        assert_near(step.dist_inputs, expected.dist_inputs)
