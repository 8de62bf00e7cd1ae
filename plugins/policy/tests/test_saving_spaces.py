"""Saved policies: spaces as JSON, and spaces with a meaning of their own."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import Catalog, ViewRequirement
from rlcatalog.errors import SavedPolicyError, SavedPolicyWarning
from rlcatalog.observations import Preprocessor
from rlcatalog.plugins.discovery import scan
from rlcatalog.spaces import Repeated, Simplex
from rlcatalog_policy import load, loading, same_space, space_from_json, space_to_json

BOX, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)


def catalog_of(*more, names=("fcnet", "categorical", "gaussian", "preprocessors")):
    return Catalog([*(point for point in scan() if point.name in names), *more], environ={})


def observations(space, n=5, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


# --- spaces with a meaning of their own -----------------------------------------------------------


class Angle(spaces.Box):
    """A Box that means more than its base says."""


class Turns(Preprocessor):
    """A program's own preprocessor, which needs an Angle."""

    def _init_shape(self, obs_space, options):
        assert type(obs_space) is Angle
        return obs_space.shape

    def transform(self, observation):
        return observation / np.pi


def test_saved_space_of_an_own_preprocessor_must_be_given_again(directory, refused, same_policy):
    catalog = catalog_of()
    catalog.register_preprocessor("turns", Turns)
    angle = Angle(-np.pi, np.pi, (2,), np.float32)
    config = {"fcnet_hiddens": [4], "custom_preprocessor": "turns"}
    policy = rlcatalog.build(angle, TWO, config, catalog=catalog)
    with pytest.warns(SavedPolicyWarning, match="observation_space=env.observation_space"):
        policy.save(directory)
    with pytest.raises(SavedPolicyError, match="its observation_space cannot be read"):
        loading.load(directory, catalog=catalog)
    back = loading.load(directory, observation_space=angle, catalog=catalog)
    assert back.observation_space is angle
    same_policy(policy, back, observations(angle))


def test_saved_subclass_of_a_space_comes_back_as_its_base(directory, same_policy):
    class Goals(spaces.Dict):
        """As RLlib's FlexDict."""

    class Choice(spaces.Discrete):
        """A Discrete of a package that may be missing where the policy is loaded."""

    space = Goals({"angle": Angle(-np.pi, np.pi, (2,), np.float32), "more": spaces.Tuple([BOX])})
    policy = rlcatalog.build(space, Choice(3), {"fcnet_hiddens": [4]}, catalog=catalog_of())
    policy.save(directory)

    back = loading.load(directory, catalog=catalog_of())

    assert type(back.observation_space) is spaces.Dict
    assert type(back.observation_space["angle"]) is spaces.Box
    assert type(back.action_space) is spaces.Discrete
    same_policy(policy, back, observations(space))
    # The environment's own spaces may still be given, but no others.
    back = loading.load(directory, observation_space=space, catalog=catalog_of())
    assert back.observation_space is space
    wider = Goals({"angle": Angle(-4, 4, (2,), np.float32), "more": spaces.Tuple([BOX])})
    with pytest.raises(SavedPolicyError, match="its observation_space is Dict"):
        loading.load(directory, observation_space=wider, catalog=catalog_of())


class Missions(gymnasium.Space):
    """Texts, which are no Text: MiniGrid's MissionSpace is such a space."""

    def __init__(self):
        super().__init__(dtype=str)

    def sample(self, mask=None, probability=None):
        return "get the red ball"

    def contains(self, x):
        return isinstance(x, str)


def test_saved_space_of_strings_comes_back_as_a_text(directory, same_policy):
    space = spaces.Dict({"mission": Missions(), "view": BOX})
    config = {"fcnet_hiddens": [4], "text_max_length": 20}
    policy = rlcatalog.build(space, TWO, config, catalog=catalog_of())
    policy.save(directory)
    back = loading.load(directory, catalog=catalog_of())
    mission = back.observation_space["mission"]
    assert (type(mission), mission.min_length, mission.max_length) == (spaces.Text, 0, 20)
    same_policy(policy, back, observations(space))
    given = loading.load(directory, observation_space=space, catalog=catalog_of())
    same_policy(policy, given, observations(space))


def test_saved_minigrid_policy_loads_without_minigrid_spaces(directory, tmp_path):
    pytest.importorskip("minigrid", reason="minigrid is not installed")
    pytest.importorskip("onnxruntime", reason="needs rlcatalog-export")
    env = gymnasium.make("MiniGrid-DoorKey-5x5-v0")
    obs = [env.reset(seed=0)[0]]
    policy = rlcatalog.build(env=env, config={"fcnet_hiddens": [4], "text_max_length": 60})
    expected = policy.act(obs, explore=False).dist_inputs
    policy.save(directory)
    policy.export(tmp_path / "policy.onnx")
    for other in (load(directory), rlcatalog.Actor(tmp_path / "policy.onnx")):
        found = other.act(obs, explore=False).dist_inputs
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_space_that_was_written_down_must_be_the_same(directory, same_policy):
    space = spaces.Dict({"a": BOX, "t": spaces.Text(3, charset=frozenset("xyz"))})
    policy = rlcatalog.build(space, TWO, {"fcnet_hiddens": [4]}, catalog=catalog_of())
    policy.save(directory)
    same = spaces.Dict({"a": BOX, "t": spaces.Text(3, charset="zyx")})
    same_policy(
        policy,
        loading.load(directory, observation_space=same, catalog=catalog_of()),
        observations(space),
    )
    for other in (spaces.Dict([("t", space["t"]), ("a", BOX)]), BOX):
        with pytest.raises(
            SavedPolicyError, match=r"its observation_space is Dict\('a': Box\(.*, not "
        ):
            loading.load(directory, observation_space=other, catalog=catalog_of())


# --- spaces as JSON -------------------------------------------------------------------------------

SMALLEST = np.nextafter(np.float32(0), np.float32(1))
SPACES = [
    spaces.Box(-1, 1, (), np.float32),
    spaces.Box(-np.inf, np.inf, (3,), np.float32),
    spaces.Box(np.array([-np.inf, 0, -1], np.float32), np.array([0, np.inf, 2], np.float32)),
    spaces.Box(np.array([[0.1, -0.2]]), np.array([[1 / 3, 1e300]]), dtype=np.float64),
    spaces.Box(np.float32(-3.4e38), np.float32(3.4e38), (2,), np.float32),
    spaces.Box(SMALLEST, np.float32(1), (2,), np.float32),
    spaces.Box(-1, 1, (2,), np.float16),
    spaces.Box(0, 255, (84, 84, 4), np.uint8),
    spaces.Box(
        np.zeros((2, 3), np.uint8), np.arange(6, dtype=np.uint8).reshape(2, 3), dtype=np.uint8
    ),
    spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64),
    spaces.Box(0, 2**64 - 1, (1,), np.uint64),
    spaces.Box(0, 1, (2, 2), np.bool_),
    spaces.Box(0, 1, (0, 3), np.float32),
    spaces.Box(0, 1, (0,), np.uint8),
    spaces.Discrete(5),
    spaces.Discrete(5, start=-3),
    spaces.Discrete(3, dtype=np.int32),
    spaces.MultiDiscrete([2, 3, 4]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], np.int32, start=[[1, 0], [-2, 7]]),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 3]),
    spaces.MultiBinary([3]),
    spaces.Text(12),
    spaces.Text(8, min_length=0, charset="ab\u00e9 \n\"'"),
    spaces.Sequence(spaces.Box(-1, 1, (2,), np.float32)),
    spaces.Sequence(spaces.Discrete(3), stack=True),
    spaces.Graph(spaces.Box(-1, 1, (2,), np.float32), None),
    spaces.Graph(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(4)),
    spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,), np.float32)]),
    spaces.Tuple([spaces.Discrete(2), spaces.Tuple([spaces.MultiBinary(2)])]),
    spaces.Tuple([]),
    spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Dict({"x": spaces.Text(3)})}),
    spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Discrete(3))]),
    spaces.Dict({}),
    Repeated(spaces.Dict({"hp": spaces.Box(0, 100, (1,), np.float32)}), 4),
    Repeated(Repeated(spaces.Discrete(3), 2), 5),
    Simplex((4,)),
    Simplex((2, 3), [0.5, 1.0, 2.0], np.float64),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: str(space)[:40])
def test_space_comes_back_through_json(space):
    text = json.dumps(space_to_json(space), allow_nan=False)  # strict JSON: no Infinity, no NaN
    back = space_from_json(json.loads(text))
    assert type(back) is type(space)
    assert back == space
    assert back.dtype == space.dtype
    assert back.shape == space.shape
    # == compares bounds to a tolerance; the numbers are the same ones.
    if isinstance(space, spaces.Box):
        assert (back.low.tobytes(), back.high.tobytes()) == (
            space.low.tobytes(),
            space.high.tobytes(),
        )
    if isinstance(space, spaces.Dict):
        assert list(back.spaces) == list(space.spaces)
    if isinstance(space, Simplex):
        assert back.concentration.tolist() == space.concentration.tolist()
    space.seed(1)
    for _ in range(3):
        assert back.contains(space.sample())
    back.sample()


@pytest.mark.parametrize(
    "space",
    [
        Angle(0, 1, (2,)),
        spaces.Dict({"a": spaces.Tuple([Angle(0, 1, (2,))])}),
        spaces.Sequence(Angle(0, 1, (2,))),
        Repeated(Angle(0, 1, (2,)), 3),
        spaces.Graph(Angle(0, 1, (2,)), None),
    ],
    ids=lambda space: type(space).__name__,
)
def test_space_of_a_plugins_own_is_not_written_as_its_base(space):
    assert space_to_json(space) is None
    with pytest.raises(ValueError, match="its kind comes from a plugin"):
        space_from_json(None)


def test_kind_stands_where_rllib_writes_it():
    written = space_to_json(
        spaces.Tuple([spaces.Discrete(2), spaces.Dict({"kind": spaces.Box(0, 1, (2,))})])
    )
    assert [written["space"], *(child["space"] for child in written["children"])] == [
        "tuple",
        "discrete",
        "dict",
    ]


def test_spaces_are_compared_by_all_that_they_hold():
    written = space_to_json(spaces.Dict({"a": spaces.Discrete(2)}))
    assert same_space(written, space_to_json(spaces.Dict({"a": spaces.Discrete(2)})))
    assert not same_space(written, space_to_json(spaces.Dict({"a": spaces.Discrete(3)})))
    assert not same_space(written, None)


def test_what_a_space_was_made_from_comes_back_with_it():
    space = rlcatalog.ModelCatalog.get_preprocessor_for_space(
        spaces.Dict({"a": spaces.Discrete(3)})
    ).observation_space
    back = space_from_json(json.loads(json.dumps(space_to_json(space))))
    assert back == space
    assert back.original_space == space.original_space
    view = ViewRequirement("obs", space=space, shift=-1)
    again = ViewRequirement.from_dict(json.loads(json.dumps(view.to_dict())))
    assert again.space.original_space == space.original_space
    assert same_space(space_to_json(space), space_to_json(spaces.Box(0, 1, (3,))))
    huge = {
        **space_to_json(space),
        "original_space": {"space": "box", "dtype": "float32", "shape": [1 << 26]},
    }
    with pytest.raises(ValueError, match="at most"):
        space_from_json(huge)


@pytest.mark.parametrize(
    "kept", [spaces.Discrete(3), spaces.Dict({"a": spaces.Box(-np.inf, np.inf, (2,))})]
)
def test_space_among_the_arguments_of_a_model_is_saved(kept, tmp_path):
    from rlcatalog_torch import FullyConnectedNetwork

    class Keeps(FullyConnectedNetwork):
        def __init__(self, *args, inner_space):
            super().__init__(*args)
            self.inner_space = inner_space

    catalog = catalog_of()
    catalog.register_model("keeps", Keeps)
    config = {"custom_model": "keeps", "custom_model_config": {"inner_space": kept}}
    policy = rlcatalog.build(
        spaces.Box(-1, 1, (2,)), spaces.Discrete(2), config, "torch", catalog=catalog
    )
    assert policy.model.inner_space == kept
    policy.save(tmp_path / "p")
    assert load(tmp_path / "p", catalog=catalog).model.inner_space == kept


def test_images_take_little_room():
    assert len(json.dumps(space_to_json(spaces.Box(0, 255, (210, 160, 3), np.uint8)))) < 150


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="unknown kind of space 'hologram'"):
        space_from_json({"space": "hologram"})
    with pytest.raises(ValueError, match="expected a table with a kind of space"):
        space_from_json({"kind": "discrete", "n": 2, "start": 0, "dtype": "int64"})
