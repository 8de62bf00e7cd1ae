"""From actions of the environment to raw ones: every kind of action, in every form, scored as what
was drawn.
"""

import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from action_kinds import ACTIONS, DEPENDENT, PAIR
from gymnasium.vector.utils import batch_space, iterate

import rlcatalog
from rlcatalog import ActionCodecSpec, ActionDistribution, ActionDistSpec, Match, Rank
from rlcatalog.actions import ActionCodec
from rlcatalog.errors import ActionError, MissingColumnError, NotServedError, PartError
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

SMALL = {"fcnet_hiddens": [8]}
KINDS = {**ACTIONS, **DEPENDENT}
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
ROWS = 50


def build(space, config, framework="torch"):
    """A policy whose outputs are far enough from zero that rows differ."""
    policy = rlcatalog.build(PAIR, space, {**SMALL, **config}, framework)
    rng = np.random.default_rng(0)
    weights = policy.model.get_weights()
    policy.model.set_weights(
        {n: w + rng.normal(0, 0.3, w.shape).astype(w.dtype) for n, w in weights.items()}
    )
    return policy


def observations(n):
    return np.random.default_rng(1).uniform(-1, 1, (n, 2)).astype(np.float32)


def stacked(space, samples):
    """Samples as a vector environment holds them."""
    if isinstance(space, gym.spaces.Tuple):
        return tuple(
            stacked(child, [one[i] for one in samples]) for i, child in enumerate(space.spaces)
        )
    if isinstance(space, gym.spaces.Dict):
        return {
            key: stacked(child, [one[key] for one in samples])
            for key, child in space.spaces.items()
        }
    return np.stack([np.asarray(one) for one in samples])


def same(space, one, other, exactly):
    if isinstance(space, gym.spaces.Tuple):
        return all(same(*parts, exactly) for parts in zip(space.spaces, one, other, strict=True))
    if isinstance(space, gym.spaces.Dict):
        return all(
            same(child, one[key], other[key], exactly) for key, child in space.spaces.items()
        )
    # a float64 cannot be scaled there and back without a rounding.
    if not exactly and space.dtype == np.float64:
        return np.allclose(one, other, rtol=0, atol=1e-15 * np.max(np.abs(space.high)))
    return one.dtype == other.dtype and np.array_equal(one, other)


@pytest.mark.grid
@pytest.mark.parametrize("bounds", ["clip", "affine"])
@pytest.mark.parametrize("name", KINDS)
def test_every_action_of_the_space_comes_back(name, bounds):
    """By the seed of the space: what is drawn of it, its raw form, and the action again, bit for
    bit.
    """
    space, config = KINDS[name]
    policy = build(space, {"action_bounds": bounds, **config})
    space.seed(3)
    samples = [space.sample() for _ in range(400)]
    actions = stacked(space, samples)
    raw = policy.raw_action(actions)
    assert raw.shape == (400, policy.action_codec.width)
    again = policy.action_codec.adapt(raw)
    assert same(space, actions, again, exactly=bounds == "clip")
    policy.action_codec.check_raw(raw)
    # All samples at once, and each by itself.
    np.testing.assert_array_equal(policy.raw_action(samples), raw)
    for sample, row in zip(samples[:5], raw, strict=False):
        np.testing.assert_array_equal(policy.raw_action(sample), row[None])


#: Kinds with one raw action behind each of the environment's: all but the largest of a relaxed
#: one-hot. How bounds are met concerns those with a Box.
UNIQUE = [(name, "clip") for name in KINDS if "relaxed" not in name]
UNIQUE += [(name, "affine") for name, _ in UNIQUE if name.startswith(("box", "dict", "tuple"))]


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize(("name", "bounds"), UNIQUE)
def test_what_was_done_scores_as_what_was_drawn(name, bounds, framework):
    space, config = KINDS[name]
    policy, obs = build(space, {"action_bounds": bounds, **config}, framework), observations(ROWS)
    step = policy.act(obs)
    raw = policy.raw_action(step.action)
    low, high = policy.action_codec.limits
    # The others were cut off.
    inside = ((step.raw_action >= low) & (step.raw_action <= high)).all(axis=1)
    assert inside.sum() >= 3
    found = policy.evaluate({"obs": obs, "raw_action": raw}).logp
    found = found.detach().numpy() if framework == "torch" else found.numpy()
    assert np.isfinite(found).all()
    half = 0.02 if "without bounds" in name else 0  # its actions have float16's digits
    np.testing.assert_allclose(found[inside], step.logp[inside], rtol=1e-3 + half, atol=1e-3 + half)


def test_a_relaxed_choice_is_scored_at_the_corner():
    space, config = KINDS["discrete, relaxed"]
    policy, obs = build(space, config), observations(ROWS)
    raw = policy.raw_action([1, 4, 2])
    np.testing.assert_array_equal(raw, np.eye(4)[[0, 3, 1]])
    found = policy.evaluate({"obs": obs[:3], "raw_action": raw}).logp
    assert torch.isfinite(found).all()


def test_tensors_and_lists_are_actions_too():
    nested, _ = ACTIONS["dict"]
    policy = build(nested, {})
    nested.seed(0)
    batch = stacked(nested, [nested.sample() for _ in range(4)])
    expected = policy.raw_action(batch)

    def converted(part, how):
        if isinstance(part, tuple):
            return tuple(converted(one, how) for one in part)
        return (
            {key: converted(one, how) for key, one in part.items()}
            if isinstance(part, dict)
            else how(part)
        )

    tf = pytest.importorskip("tensorflow")
    for how in (torch.from_numpy, tf.constant, lambda array: array.tolist()):
        np.testing.assert_array_equal(policy.raw_action(converted(batch, how)), expected)
    one = iterate(batch_space(nested, 4), batch)
    np.testing.assert_array_equal(policy.raw_action(list(one)), expected)
    plain = build(PAIR, {})
    assert plain.raw_action([0.5, -0.25]).tolist() == [[0.5, -0.25]]
    assert plain.raw_action([[0.5, -0.25]]).tolist() == [[0.5, -0.25]]
    assert plain.raw_action([]).shape == (0, 2)
    assert policy.raw_action([]).shape == (0, policy.action_codec.width)


def test_values_of_a_trace_are_none():
    tf = pytest.importorskip("tensorflow")
    policy = build(PAIR, {}, "tf")
    with pytest.raises(ActionError, match="expected values, found a tensor from a trace"):
        tf.function(policy.raw_action)(tf.zeros((1, 2)))


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ([{"go": 0}, {"aim": 1}], "this list has actions outside Dict"),
        (
            {"go": [0]},
            r"expected a dict with the keys \['aim', 'go', 'more'\]; found keys \['go'\]",
        ),
        (7, "expected a dict with the keys .*; found int"),
        (None, "expected a dict with the keys .*; found NoneType"),
    ],
)
def test_what_has_not_the_structure_is_refused(actions, said):
    with pytest.raises(ActionError, match=said):
        build(ACTIONS["dict"][0], {}).raw_action(actions)


# --- evaluate -------------------------------------------------------------------------------------


@frameworks
def test_evaluate_says_what_is_missing_and_what_to_do(framework):
    policy = build(PAIR, {}, framework)
    obs = observations(2)
    with pytest.raises(
        MissingColumnError,
        match=r"batch lacks 'raw_action'; it has \['obs', 'action'\]\. .*"
        r"batch\['raw_action'\] = policy\.raw_action\(batch\['action'\]\)\.",
    ):
        policy.evaluate({"obs": obs, "action": obs})
    with pytest.raises(
        KeyError, match=r"lacks 'obs' and 'raw_action'; it has \['actions'\].*Policy.preprocess"
    ):
        policy.evaluate({"actions": obs})
    with pytest.raises(
        MissingColumnError, match=r"lacks 'raw_action'; it has \['obs'\].*step\.raw_action"
    ):
        policy.evaluate({"obs": obs})
    policy.evaluate({"obs": obs, "raw_action": policy.raw_action(obs)})


# --- codecs of plugins ----------------------------------------------------------------------------


class Angle(gym.Space):
    """Angles in degrees."""

    def __init__(self, seed=None):
        super().__init__((1,), np.float32, seed)

    def sample(self, mask=None, probability=None):
        return self.np_random.uniform(0, 360, 1).astype(np.float32)

    def contains(self, x):
        return np.shape(x) == (1,) and bool(
            (np.asarray(x) >= 0).all() and (np.asarray(x) < 360).all()
        )


class Turning(ActionCodec):
    """Raw values are turns."""

    def adapt(self, raw):
        return (np.mod(raw, 1) * 360).astype(np.float32)


class Back(Turning):
    def invert(self, action):
        return super().invert(action) / 360


class Refuses(Turning):
    def invert(self, action):
        raise NotServedError("turns are not counted.")


class Unwritten(Turning):
    def invert(self, action):
        raise NotImplementedError


class Wrong(Turning):
    def invert(self, action):
        return super().invert(action) / 180


class Narrow(Turning):
    def invert(self, action):
        return np.zeros(len(action))


class Broken(Turning):
    def invert(self, action):
        return action.degrees


class Point(ActionDistribution):
    """One angle, for certain."""

    framework_of_class = "torch"

    def sample(self):
        return self.inputs.detach()


KIND = f"{__name__}.Angle"


def policy_with(monkeypatch, cls, space):
    monkeypatch.setitem(sys.modules, "angles", sys.modules[__name__])
    codec = ActionCodecSpec("angle", {"numpy": f"angles:{cls.__name__}"}, "angles", kinds=(KIND,))

    def match(request):
        fits = request.action is not None and request.action.kind == KIND
        return Match(Rank.GENERIC, "an angle") if fits else Match(None, "takes angles")

    dist = ActionDistSpec(
        "angle", {"torch": "angles:Point"}, "angles", match=match, size=lambda action, config: 1
    )
    plugin = plugin_of(rlcatalog_action_codecs=[codec], rlcatalog_action_dists=[dist])
    parts = ["preprocessors", "fcnet", "categorical", "multi-action"]
    catalog = isolated_catalog(
        *(f"rlcatalog-{part}" for part in parts), PluginEntryPoint(plugin, "acme-angles")
    )
    return rlcatalog.build(PAIR, space, SMALL, "torch", catalog=catalog)


@pytest.fixture(params=["alone", "nested"])
def angle(request):
    """A space, and what makes its actions of angles."""
    if request.param == "alone":
        return Angle(), lambda angles: angles
    space = gym.spaces.Dict(turn=Angle(), go=gym.spaces.Discrete(2))
    return space, lambda angles: {"turn": angles, "go": np.zeros(len(angles), np.int64)}


ANGLES = np.float32([[0], [90], [270]])


def test_a_plugin_s_codec_is_inverted_where_it_can_be(monkeypatch, angle):
    space, action = angle
    policy = policy_with(monkeypatch, Back, space)
    raw = policy.raw_action(action(ANGLES))
    column = 0 if raw.shape[1] == 1 else list(space.spaces).index("turn")
    np.testing.assert_allclose(raw[:, column], [0, 0.25, 0.75])
    with pytest.raises(
        ActionError, match=r"actions: action.*: expected actions of .*; found .*400.* in row 1\."
    ):
        policy.raw_action(action(np.float32([[0], [400]])))


REFUSED = {
    Turning: (NotServedError, r"defines adapt\(\) but not invert\(\).*step\.raw_action"),
    Refuses: (NotServedError, r"has no inverse: turns are not counted\. So store"),
    Unwritten: (NotServedError, r"has no inverse; store"),
    Wrong: (
        PartError,
        r"Wrong\.invert\(\) of .*90.* gives \[0\.5\], which adapt\(\) turns into .*180",
    ),
    Narrow: (PartError, r"Narrow\.invert\(\) must return an array of shape \(3, 1\).*found \(3,\)"),
    Broken: (PartError, r"Broken\.invert\(\) raised AttributeError"),
}


@pytest.mark.parametrize("cls", REFUSED, ids=lambda cls: cls.__name__)
def test_a_plugin_s_codec_without_an_inverse_is_named(monkeypatch, angle, cls):
    space, action = angle
    error, said = REFUSED[cls]
    with pytest.raises(error, match=said) as raised:
        policy_with(monkeypatch, cls, space).raw_action(action(ANGLES))
    assert "acme-angles 1.0" in str(raised.value)
    assert "'angle'" in str(raised.value)
    assert cls.__name__ in str(raised.value)
