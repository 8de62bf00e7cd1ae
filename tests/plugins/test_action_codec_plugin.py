"""A kind of action space from a plugin: permutations, drawn by Plackett and Luce's model, alone and
inside others.

Crosses: policy, preprocessors, multi_action.
"""

from __future__ import annotations

import itertools
import json
import math
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
from rlcatalog.errors import ActionMaskError, DeclarationError, PluginError, SavedPolicyError
from rlcatalog.provided import declarations
from rlcatalog_policy import load, space_to_json
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
pytestmark = [pytest.mark.twins, pytest.mark.usefixtures("one_thread", "seeded")]


# --- what a package of its own would hold ---------------------------------------------------------


class Permutation(gym.Space):
    """Orders of the numbers from 0 to n - 1."""

    def __init__(self, n, seed=None):
        self.n = n
        super().__init__((n,), np.int64, seed)

    def sample(self, mask=None, probability=None):
        return self.np_random.permutation(self.n)

    def contains(self, x):
        return np.asarray(x).dtype == np.int64 and sorted(np.asarray(x).tolist()) == list(
            range(self.n)
        )

    def __eq__(self, other):
        return isinstance(other, Permutation) and other.n == self.n


class PermutationCodec(ActionCodec):
    """The codec of permutations: a mask says which numbers may come first, models see a one-hot for
    each place.
    """

    whole = True

    def __init__(self, info, *others):
        super().__init__(info, *others)
        n = self.width
        self.counts, self.choices, self.input_width = (n,) * n, [(info.path, n)], n * n

    def inputs(self, raw):
        return np.eye(self.width, dtype=np.float32)[raw.astype(int)].reshape(len(raw), -1)

    @staticmethod
    def space_to_json(space):
        return {"n": space.n}

    @staticmethod
    def space_from_json(data):
        return Permutation(data["n"])


class TorchOrder(ActionDistribution):
    """Plackett and Luce's model (Luce 1959; Plackett 1975): the next number by the softmax of those
    that are left.
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
    """The same in TensorFlow."""

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
OBS = Box(-1, 1, (3,), np.float32)
N = 4
SPACES = {
    "alone": Permutation(N),
    "nested": Dict(
        {"aim": Box(-1, 1, (2,), np.float32), "both": Tuple([Discrete(3, start=1), Permutation(N)])}
    ),
}
SMALL = {"fcnet_hiddens": [8]}


PLUGIN = plugin_of(rlcatalog_action_codecs=[CODEC], rlcatalog_action_dists=[DIST])


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The module that the targets name."""
    monkeypatch.setitem(sys.modules, "permutations", sys.modules[__name__])


@pytest.fixture
def catalog():
    """Catalog of a few built-in parts and the plugin."""
    return isolated_catalog(*PARTS, PluginEntryPoint(PLUGIN, "permutations"))


def observations(rows):
    return np.random.default_rng(1).uniform(-1, 1, (rows, 3)).astype(np.float32)


def order_of(action):
    return action if isinstance(action, np.ndarray) else action["both"][1]


# --- what the catalog makes of it -----------------------------------------------------------------


def test_plugin_is_listed(catalog):
    assert [record.error for record in catalog.plugins if record.status != "loaded"] == []
    listed = [c.provider for c in catalog.components("action_codec") if not c.is_indexed]
    assert listed == ["permutations 1.0"]


@frameworks
@pytest.mark.parametrize("which", SPACES)
def test_orders_are_sampled_and_scored(catalog, which, framework):
    policy, obs = (
        rlcatalog.build(OBS, SPACES[which], SMALL, framework, catalog=catalog),
        observations(50),
    )
    step = policy.act(obs)
    rows = (
        step.action
        if which == "alone"
        else [
            {"aim": aim, "both": (one, order)}
            for aim, one, order in zip(step.action["aim"], *step.action["both"], strict=True)
        ]
    )
    assert all(SPACES[which].contains(row) for row in rows)
    assert len({tuple(order) for order in order_of(step.action)}) > 5
    np.testing.assert_array_equal(step.raw_action[:, -N:], order_of(step.action))
    assert step.raw_action.dtype == (np.int64 if which == "alone" else np.float32)
    found = policy.evaluate({"obs": obs, "raw_action": step.raw_action}).logp
    np.testing.assert_allclose(
        found.detach() if framework == "torch" else found, step.logp, rtol=1e-4
    )
    if which == "alone":
        every = np.array(list(itertools.permutations(range(N))))
        dist = (
            policy.dist_class(np.repeat(step.dist_inputs[:1], len(every), 0))
            if framework == "tf"
            else (
                policy.dist_class(torch.from_numpy(np.repeat(step.dist_inputs[:1], len(every), 0)))
            )
        )
        chances = np.exp(np.asarray(dist.logp(every)))
        weights = np.exp(step.dist_inputs[0].astype(np.float64))
        expected = [
            math.prod(weights[k] / weights[list(order[i:])].sum() for i, k in enumerate(order))
            for order in every
        ]
        np.testing.assert_allclose(chances, expected, rtol=1e-4)
        np.testing.assert_array_equal(policy.action_codec.invert(step.action), step.raw_action)


@frameworks
@pytest.mark.parametrize("which", SPACES)
def test_mask_restricts_the_first_number(catalog, which, framework):
    policy, obs = (
        rlcatalog.build(OBS, SPACES[which], SMALL, framework, catalog=catalog),
        observations(40),
    )
    first = np.arange(40) % N
    mask = np.eye(N, dtype=np.int8)[first]
    assert policy.masks.size == (N if which == "alone" else 3 + N)
    step = policy.act(obs, mask=mask if which == "alone" else {"aim": None, "both": (None, mask)})
    np.testing.assert_array_equal(order_of(step.action)[:, 0], first)
    wrong = mask[:, :3] if which == "alone" else {"both": (None, mask[:, :3])}
    with pytest.raises(ActionMaskError, match=r"expected shape \((40|B), 4\)"):
        policy.act(obs, mask=wrong)


@pytest.mark.parametrize("which", SPACES)
def test_memory_sees_past_orders(catalog, which):
    config = {**SMALL, "use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True}
    policy, obs = rlcatalog.build(OBS, SPACES[which], config, catalog=catalog), observations(5)
    codec = policy.action_codec
    assert codec.input_width == (N * N if which == "alone" else 2 + 3 + N * N)
    step = policy.act(obs)
    seen = codec.inputs(step.raw_action)[:, -N * N :].reshape(5, N, N)
    np.testing.assert_array_equal(seen.argmax(-1), order_of(step.action))
    assert policy.act(obs, step.state).action is not None
    assert json.loads(json.dumps(catalog.explain(OBS, SPACES[which], config, "torch").as_dict()))[
        "action_dist"
    ]


@frameworks
@pytest.mark.parametrize("which", SPACES)
def test_saved_policy_is_loaded_with_its_space(catalog, which, framework, tmp_path):
    policy, obs = (
        rlcatalog.build(OBS, SPACES[which], SMALL, framework, catalog=catalog),
        observations(3),
    )
    policy.save(tmp_path / "policy")
    again = load(tmp_path / "policy", catalog=catalog)
    assert again.action_space == SPACES[which]
    one, other = (p.act(obs, explore=False).raw_action for p in (policy, again))
    np.testing.assert_array_equal(one, other)


def test_load_without_the_plugin_names_the_space(catalog, tmp_path):
    rlcatalog.build(OBS, SPACES["nested"], SMALL, catalog=catalog).save(tmp_path / "policy")
    CODEC.leave()
    with pytest.raises(
        SavedPolicyError, match=r"unknown kind of space .*Permutation.*the plugin that declares it"
    ):
        load(tmp_path / "policy", catalog=isolated_catalog(*PARTS))


def test_subclass_uses_the_codec_of_its_base_but_is_not_saved(catalog):
    class Own(Permutation):
        pass

    info = SpaceInfo.read(Own(3), "action")
    assert isinstance(action_codec(info), PermutationCodec)
    assert space_to_json(Own(3)) is None
    assert space_to_json(Tuple([Permutation(3), Own(3)])) is None


# --- what is refused ------------------------------------------------------------------------------


def failed(*plugins):
    """What the catalog says of plugins that fail, by distribution."""
    with pytest.warns(rlcatalog.errors.PluginWarning):
        found = isolated_catalog(
            *PARTS, *(PluginEntryPoint(plugin, name) for name, plugin in plugins)
        )
    said = {
        record.distribution: record.error for record in found.plugins if record.status == "failed"
    }
    assert not {component.distribution for component in found.components()} & set(said)
    return said


@pytest.mark.parametrize("kind", ["discrete", KIND])
def test_kind_of_space_has_one_codec(kind):
    other = ActionCodecSpec("other", {"numpy": "permutations:Other"}, "", kinds=(kind,))
    said = failed(("two", plugin_of(rlcatalog_action_codecs=[other])), ("one", PLUGIN))
    if kind == "discrete":
        assert "'discrete' belongs to rlcatalog-preprocessors, and two claims it" in said["two"]
        assert "Other" not in declarations["action_codec"][kind].targets["numpy"]
    else:  # of two strangers neither is first
        assert f"{kind!r} is claimed by one and two" in said["two"]
        assert kind not in declarations["action_codec"]


def test_plugin_that_loses_a_codec_keeps_its_other_parts():
    other = ActionCodecSpec("other", {"numpy": "permutations:Other"}, "", kinds=("discrete",))
    two = plugin_of(rlcatalog_action_codecs=[other], rlcatalog_action_dists=[DIST])
    with pytest.warns(
        rlcatalog.errors.PluginWarning, match="'discrete' belongs to rlcatalog-preprocessors"
    ):
        catalog = isolated_catalog(*PARTS, PluginEntryPoint(two, "two"))
    assert [c.kind for c in catalog.components() if c.distribution == "two"] == ["action_dist"]


def test_codec_of_a_failed_plugin_is_removed():
    twice = plugin_of(rlcatalog_action_codecs=[CODEC, CODEC])
    assert "declares action_codec 'permutation' twice" in failed(("one", twice))["one"]
    assert KIND not in declarations["action_codec"]


def test_codec_that_cannot_be_imported_is_named():
    spec = ActionCodecSpec("other", {"numpy": "permutations:Missing"}, "", kinds=(KIND,))
    catalog = isolated_catalog(
        *PARTS, PluginEntryPoint(plugin_of(rlcatalog_action_codecs=[spec]), "one")
    )
    with pytest.raises(
        PluginError, match="action codec 'permutations:Missing' cannot be imported: AttributeError"
    ):
        rlcatalog.build(OBS, SPACES["alone"], SMALL, catalog=catalog)


@pytest.mark.parametrize("kinds", [(), "discrete", (Permutation,)])
def test_declaration_needs_names_of_space_classes(kinds):
    with pytest.raises(DeclarationError, match="kinds must be a tuple of names of space classes"):
        ActionCodecSpec("other", {"numpy": "permutations:PermutationCodec"}, "", kinds=kinds)
