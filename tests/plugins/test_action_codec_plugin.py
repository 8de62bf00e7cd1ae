"""A plugin for a new kind of action space: permutations, sampled by Plackett and Luce's model.

Crosses: policy, preprocessors, multi_action.
"""

from __future__ import annotations

import json
import sys

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete, Tuple

import rlcatalog
from rlcatalog import ActionCodecSpec, ActionDistribution, ActionDistSpec, Match, Rank, SpaceInfo
from rlcatalog.actions import ActionCodec, action_codec
from rlcatalog.errors import (
    ActionMaskError,
    DeclarationError,
    PluginError,
    PluginWarning,
    SavedPolicyError,
)
from rlcatalog_policy import load, space_to_json
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

in_both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]


# --- the plugin -----------------------------------------------------------------------------------


class Permutation(gym.Space):
    """Orders of the numbers from 0 to n - 1."""

    def __init__(self, n, seed=None):
        self.n = n
        super().__init__((n,), np.int64, seed)

    def sample(self, mask=None, probability=None):
        return self.np_random.permutation(self.n)

    def contains(self, x):
        array = np.asarray(x)
        return array.dtype == np.int64 and sorted(array.tolist()) == list(range(self.n))

    def __eq__(self, other):
        return isinstance(other, Permutation) and other.n == self.n


class PermutationCodec(ActionCodec):
    """The codec of permutations.

    A mask says which numbers may come first. Models see a one-hot vector for each place.
    """

    whole = True

    def __init__(self, info, *others):
        super().__init__(info, *others)
        n = self.width
        self.counts = (n,) * n
        self.choices = [(info.path, n)]
        self.input_width = n * n

    def inputs(self, raw):
        return np.eye(self.width, dtype=np.float32)[raw.astype(int)].reshape(len(raw), -1)

    @staticmethod
    def space_to_json(space):
        return {"n": space.n}

    @staticmethod
    def space_from_json(data):
        return Permutation(data["n"])


class TorchOrder(ActionDistribution):
    """Plackett and Luce's model (Luce 1959; Plackett 1975).

    The next number is chosen by the softmax over those that are left.
    """

    framework_of_class = "torch"

    def sample(self):
        noise = -torch.log(-torch.log(torch.rand_like(self.inputs).clamp(1e-9, 1 - 1e-7)))
        self.last_sample = (self.inputs.log_softmax(-1) + noise).argsort(dim=-1, descending=True)
        return self.last_sample

    def deterministic_sample(self):
        self.last_sample = self.inputs.argsort(dim=-1, descending=True)
        return self.last_sample

    def logp(self, actions):
        ordered = self.inputs.gather(-1, torch.as_tensor(actions).long())
        return (ordered - ordered.flip(-1).logcumsumexp(-1).flip(-1)).sum(-1)

    def entropy(self):
        return self.entropy_estimate()


class TFOrder(ActionDistribution):
    """Plackett and Luce's model in TensorFlow."""

    framework_of_class = "tf"

    def sample(self):
        uniform = tf.clip_by_value(tf.random.uniform(tf.shape(self.inputs)), 1e-9, 1 - 1e-7)
        noisy = tf.nn.log_softmax(self.inputs) - tf.math.log(-tf.math.log(uniform))
        self.last_sample = tf.cast(tf.argsort(noisy, direction="DESCENDING"), tf.int64)
        return self.last_sample

    def deterministic_sample(self):
        self.last_sample = tf.cast(tf.argsort(self.inputs, direction="DESCENDING"), tf.int64)
        return self.last_sample

    def logp(self, actions):
        ordered = tf.gather(self.inputs, tf.cast(actions, tf.int64), batch_dims=1)
        left = tf.math.cumulative_logsumexp(ordered, axis=-1, reverse=True)
        return tf.reduce_sum(ordered - left, axis=-1)

    def entropy(self):
        return self.entropy_estimate()


KIND = f"{__name__}.Permutation"


def match(request):
    if request.action is not None and request.action.kind == KIND:
        return Match(Rank.GENERIC, "the action is an order")
    return Match(None, "takes orders")


CODEC = ActionCodecSpec(
    "permutation", {"numpy": "permutations:PermutationCodec"}, "orders", kinds=(KIND,)
)
DIST = ActionDistSpec(
    "plackett_luce",
    {"torch": "permutations:TorchOrder", "tf": "permutations:TFOrder"},
    "orders",
    match=match,
    size=lambda action, config: action.shape[0],
)
PARTS = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-lstm",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
    "rlcatalog-multi-action",
)
THREE_FEATURES = Box(-1, 1, (3,), np.float32)
ORDER = Permutation(4)
NESTED = Dict(
    {"aim": Box(-1, 1, (2,), np.float32), "both": Tuple([Discrete(3, start=1), Permutation(4)])}
)
SMALL = {"fcnet_hiddens": [8]}


PLUGIN = plugin_of(rlcatalog_action_codecs=[CODEC], rlcatalog_action_dists=[DIST])


@pytest.fixture(autouse=True)
def importable_module(monkeypatch):
    """Let this module be imported as `permutations`, where the plugin's classes are."""
    monkeypatch.setitem(sys.modules, "permutations", sys.modules[__name__])


@pytest.fixture
def catalog():
    """A catalog of a few built-in parts and the plugin."""
    return isolated_catalog(*PARTS, PluginEntryPoint(PLUGIN, "permutations"))


def sample_observations(rows):
    return np.random.default_rng(1).uniform(-1, 1, (rows, 3)).astype(np.float32)


def build_policy(catalog, space, framework=None, **config):
    return rlcatalog.build(THREE_FEATURES, space, {**SMALL, **config}, framework, catalog=catalog)


def select_orders(action):
    """Return the permutations in a batch of actions of `ORDER` or of `NESTED`."""
    return action["both"][1] if isinstance(action, dict) else action


both_spaces = pytest.mark.parametrize("space", [ORDER, NESTED], ids=["alone", "nested"])


# --- policies -------------------------------------------------------------------------------------


def test_plugin_is_listed(catalog):
    assert {record.status for record in catalog.plugins} == {"loaded"}
    codecs = [part for part in catalog.parts("action_codec") if not part.is_indexed]
    assert [codec.provider for codec in codecs] == ["permutations 1.0"]


@in_both_frameworks
@both_spaces
def test_orders_are_sampled_and_scored(catalog, space, framework):
    policy = build_policy(catalog, space, framework)
    obs = sample_observations(50)

    step = policy.act(obs)
    logp = policy.evaluate({"obs": obs, "raw_action": step.raw_action}).logp

    # The order of four places is the last part of a raw action.
    np.testing.assert_array_equal(step.raw_action[:, -4:], select_orders(step.action))
    if framework == "torch":
        logp = logp.detach()
    np.testing.assert_allclose(logp, step.logp, rtol=1e-4)


@in_both_frameworks
def test_sampled_orders_lie_in_the_space(catalog, framework):
    step = build_policy(catalog, ORDER, framework).act(sample_observations(50))
    assert all(ORDER.contains(order) for order in step.action)
    assert step.raw_action.dtype == np.int64


@in_both_frameworks
def test_sampled_nested_actions_lie_in_the_space(catalog, framework):
    step = build_policy(catalog, NESTED, framework).act(sample_observations(50))
    choices, orders = step.action["both"]
    for aim, choice, order in zip(step.action["aim"], choices, orders, strict=True):
        assert NESTED.contains({"aim": aim, "both": (choice, order)})
    assert step.raw_action.dtype == np.float32


@in_both_frameworks
def test_codec_inverts_orders(catalog, framework):
    policy = build_policy(catalog, ORDER, framework)
    step = policy.act(sample_observations(50))
    np.testing.assert_array_equal(policy.action_codec.invert(step.action), step.raw_action)


@in_both_frameworks
def test_mask_restricts_the_first_number(catalog, framework):
    policy = build_policy(catalog, Permutation(4), framework)
    mask = np.array([[0, 0, 1, 0], [1, 0, 0, 0]], np.int8)

    orders = policy.act(sample_observations(2), mask=mask).action

    assert policy.masks.size == 4
    np.testing.assert_array_equal(orders[:, 0], [2, 0])


@in_both_frameworks
def test_mask_of_a_nested_order_restricts_its_first_number(catalog, framework):
    policy = build_policy(catalog, NESTED, framework)
    mask = np.array([[0, 0, 1, 0], [1, 0, 0, 0]], np.int8)

    action = policy.act(sample_observations(2), mask={"both": (None, mask)}).action

    assert policy.masks.size == 3 + 4  # the choice of three, and the four numbers
    np.testing.assert_array_equal(action["both"][1][:, 0], [2, 0])


@in_both_frameworks
@both_spaces
def test_mask_of_wrong_size_is_an_error(catalog, space, framework):
    policy = build_policy(catalog, space, framework)
    mask = np.ones((40, 3), np.int8)  # of three numbers, not four
    if space is NESTED:
        mask = {"both": (None, mask)}
    with pytest.raises(ActionMaskError, match=r"expected shape \((40|B), 4\)"):
        policy.act(sample_observations(40), mask=mask)


def test_memory_sees_past_orders(catalog):
    config = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True}
    policy = build_policy(catalog, NESTED, **config)
    obs = sample_observations(5)

    step = policy.act(obs)

    # Two numbers of the Box, a choice of three, and a one-hot vector for each of four places.
    inputs = policy.action_codec.inputs(step.raw_action)
    assert inputs.shape == (5, 2 + 3 + 4 * 4)
    one_hots = inputs[:, 5:].reshape(5, 4, 4)
    np.testing.assert_array_equal(one_hots.argmax(-1), select_orders(step.action))
    assert policy.act(obs, step.state).action is not None


@both_spaces
def test_explanation_of_orders_is_json(catalog, space):
    config = {**SMALL, "use_lstm": True, "lstm_use_prev_action": True}
    explanation = catalog.explain(THREE_FEATURES, space, config, "torch").as_dict()
    assert json.loads(json.dumps(explanation))["action_dist"]


@in_both_frameworks
@both_spaces
def test_saved_policy_is_loaded_with_its_space(catalog, space, framework, tmp_path):
    policy = build_policy(catalog, space, framework)
    obs = sample_observations(3)

    policy.save(tmp_path / "policy")
    loaded = load(tmp_path / "policy", catalog=catalog)

    assert loaded.action_space == space
    np.testing.assert_array_equal(
        loaded.act(obs, explore=False).raw_action, policy.act(obs, explore=False).raw_action
    )


def test_load_without_the_plugin_names_the_space(catalog, tmp_path):
    build_policy(catalog, NESTED).save(tmp_path / "policy")
    CODEC.leave()  # the table of codecs, as in a process without the plugin
    message = r"unknown kind of space .*Permutation.*the plugin that declares it"
    with pytest.raises(SavedPolicyError, match=message):
        load(tmp_path / "policy", catalog=isolated_catalog(*PARTS))


class SpecialPermutation(Permutation):
    """A subclass, which has no codec."""


def test_subclass_uses_the_codec_of_its_base(catalog):
    info = SpaceInfo.read(SpecialPermutation(3), "action")
    assert isinstance(action_codec(info), PermutationCodec)


@pytest.mark.parametrize(
    "space",
    [SpecialPermutation(3), Tuple([Permutation(3), SpecialPermutation(3)])],
    ids=["alone", "nested"],
)
def test_subclass_is_not_saved_as_its_base(catalog, space):
    assert space_to_json(space) is None


# --- plugins that fail ----------------------------------------------------------------------------


def load_failing_plugins(**plugins):
    """Return distribution → error of the plugins that fail, which have no parts in the catalog."""
    points = [PluginEntryPoint(plugin, name) for name, plugin in plugins.items()]
    with pytest.warns(PluginWarning):
        catalog = isolated_catalog(*PARTS, *points)
    failed = [record for record in catalog.plugins if record.status == "failed"]
    errors = {record.distribution: record.error for record in failed}
    assert not {part.distribution for part in catalog.parts()} & set(errors)
    return errors


def declare_codec(kind, target="permutations:Other"):
    return ActionCodecSpec("other", {"numpy": target}, "", kinds=(kind,))


def test_built_in_kind_keeps_its_codec():
    plugin = plugin_of(rlcatalog_action_codecs=[declare_codec("discrete")])

    errors = load_failing_plugins(two=plugin, one=PLUGIN)

    message = "'discrete' belongs to rlcatalog-preprocessors, and two claims it"
    assert message in errors["two"]
    assert "Other" not in ActionCodecSpec.table.specs["discrete"].targets["numpy"]


def test_kind_that_two_plugins_claim_has_no_codec():
    plugin = plugin_of(rlcatalog_action_codecs=[declare_codec(KIND)])

    errors = load_failing_plugins(two=plugin, one=PLUGIN)

    assert f"{KIND!r} is claimed by one and two" in errors["two"]
    assert KIND not in ActionCodecSpec.table.specs


def test_plugin_that_loses_a_codec_keeps_its_other_parts():
    plugin = plugin_of(
        rlcatalog_action_codecs=[declare_codec("discrete")], rlcatalog_action_dists=[DIST]
    )

    with pytest.warns(PluginWarning, match="belongs to rlcatalog-preprocessors"):
        catalog = isolated_catalog(*PARTS, PluginEntryPoint(plugin, "two"))

    parts = [part for part in catalog.parts() if part.distribution == "two"]
    assert [part.kind for part in parts] == ["action_dist"]


def test_codec_of_a_failed_plugin_is_removed():
    plugin = plugin_of(rlcatalog_action_codecs=[CODEC, CODEC])

    errors = load_failing_plugins(one=plugin)

    assert "declares action_codec 'permutation' twice" in errors["one"]
    assert KIND not in ActionCodecSpec.table.specs


def test_codec_that_cannot_be_imported_is_named():
    codec = declare_codec(KIND, target="permutations:Missing")
    plugin = plugin_of(rlcatalog_action_codecs=[codec])
    catalog = isolated_catalog(*PARTS, PluginEntryPoint(plugin, "one"))

    message = "action codec 'permutations:Missing' cannot be imported: AttributeError"
    with pytest.raises(PluginError, match=message):
        build_policy(catalog, ORDER)


@pytest.mark.parametrize(
    "kinds", [(), "discrete", (Permutation,)], ids=["empty", "one name", "class"]
)
def test_declaration_needs_names_of_space_classes(kinds):
    with pytest.raises(DeclarationError, match="kinds must be a tuple of names of space"):
        ActionCodecSpec("other", {"numpy": "permutations:PermutationCodec"}, "", kinds=kinds)
