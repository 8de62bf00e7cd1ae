"""Saved policies for spaces that JSON cannot describe completely, such as subclasses."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from small_catalogs import make_catalog

import rlcatalog
from rlcatalog.errors import SavedPolicyError, SavedPolicyWarning
from rlcatalog.observations import Preprocessor
from rlcatalog_policy import load
from rlcatalog_torch import FullyConnectedNetwork

THREE_NUMBERS = spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)
SMALL = {"fcnet_hiddens": [4]}


def build_policy(obs_space, action_space=TWO_ACTIONS, config=SMALL):
    return rlcatalog.build(obs_space, action_space, config, catalog=make_catalog())


def sample_observations(space):
    space.seed(0)
    return [space.sample() for _ in range(5)]


# --- subclasses of spaces -------------------------------------------------------------------------


class Angle(spaces.Box):
    """A Box that means more than its base says."""


class AngleToTurns(Preprocessor):
    """A preprocessor of the program, which works only for an Angle."""

    def _init_shape(self, obs_space, options):
        assert type(obs_space) is Angle
        return obs_space.shape

    def transform(self, observation):
        return observation / np.pi


ANGLE = Angle(-np.pi, np.pi, (2,), np.float32)


@pytest.fixture
def catalog_with_turns():
    catalog = make_catalog()
    catalog.register_preprocessor("turns", AngleToTurns)
    return catalog


@pytest.fixture
def angle_policy(catalog_with_turns):
    """A policy whose preprocessor needs the subclass `Angle` of Box."""
    config = {"fcnet_hiddens": [4], "custom_preprocessor": "turns"}
    return rlcatalog.build(ANGLE, TWO_ACTIONS, config, catalog=catalog_with_turns)


def test_save_warns_of_a_space_that_a_custom_preprocessor_needs(directory, angle_policy):
    with pytest.warns(SavedPolicyWarning, match="observation_space=env.observation_space"):
        angle_policy.save(directory)


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.SavedPolicyWarning")
def test_load_needs_the_space_of_a_custom_preprocessor(directory, angle_policy, catalog_with_turns):
    angle_policy.save(directory)

    with pytest.raises(SavedPolicyError, match="its observation_space cannot be read"):
        load(directory, catalog=catalog_with_turns)


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.SavedPolicyWarning")
def test_load_with_the_space_of_a_custom_preprocessor(
    directory, angle_policy, catalog_with_turns, assert_same_policy
):
    angle_policy.save(directory)

    loaded = load(directory, observation_space=ANGLE, catalog=catalog_with_turns)

    assert loaded.observation_space is ANGLE
    assert_same_policy(angle_policy, loaded, sample_observations(ANGLE))


class Goals(spaces.Dict):
    """A subclass of Dict, such as RLlib's FlexDict."""


def test_space_of_a_subclass_is_loaded_as_its_base_class(directory, assert_same_policy):
    class DictSubclass(spaces.Dict):
        pass

    class DiscreteSubclass(spaces.Discrete):
        pass

    obs_space = DictSubclass({"x": THREE_NUMBERS})
    policy = build_policy(obs_space, DiscreteSubclass(3))
    policy.save(directory)

    loaded = load(directory, catalog=make_catalog())

    assert type(loaded.observation_space) is spaces.Dict
    assert type(loaded.action_space) is spaces.Discrete
    assert_same_policy(policy, loaded, sample_observations(obs_space))


def test_load_accepts_the_subclass_that_was_saved_as_its_base(directory):
    space = Goals({"angle": ANGLE})
    build_policy(space).save(directory)

    loaded = load(directory, observation_space=space, catalog=make_catalog())

    assert loaded.observation_space is space


def test_load_rejects_a_subclass_with_other_bounds(directory):
    build_policy(Goals({"angle": ANGLE})).save(directory)
    wider = Goals({"angle": Angle(-4, 4, (2,), np.float32)})

    with pytest.raises(SavedPolicyError, match="its observation_space is Dict"):
        load(directory, observation_space=wider, catalog=make_catalog())


# --- spaces of strings ----------------------------------------------------------------------------


class Missions(gymnasium.Space):
    """A space of strings that is not a Text, such as MiniGrid's MissionSpace."""

    def __init__(self):
        super().__init__(dtype=str)

    def sample(self, mask=None, probability=None):
        return "get the red ball"

    def contains(self, x):
        return isinstance(x, str)


MISSION_AND_VIEW = spaces.Dict({"mission": Missions(), "view": THREE_NUMBERS})


@pytest.fixture
def missions_policy():
    return build_policy(MISSION_AND_VIEW, config={**SMALL, "text_max_length": 20})


def test_space_of_strings_is_loaded_as_text(directory, missions_policy, assert_same_policy):
    missions_policy.save(directory)

    loaded = load(directory, catalog=make_catalog())

    mission = loaded.observation_space["mission"]
    assert type(mission) is spaces.Text
    assert mission.min_length == 0
    assert mission.max_length == 20  # text_max_length
    assert_same_policy(missions_policy, loaded, sample_observations(MISSION_AND_VIEW))


def test_load_accepts_the_space_of_strings(directory, missions_policy, assert_same_policy):
    missions_policy.save(directory)

    loaded = load(directory, observation_space=MISSION_AND_VIEW, catalog=make_catalog())

    assert_same_policy(missions_policy, loaded, sample_observations(MISSION_AND_VIEW))


def test_minigrid_policy_loads_without_spaces_of_minigrid(directory, tmp_path):
    pytest.importorskip("minigrid", reason="minigrid is not installed")
    pytest.importorskip("onnxruntime", reason="needs rlcatalog-export")
    env = gymnasium.make("MiniGrid-DoorKey-5x5-v0")
    first_obs, _ = env.reset(seed=0)
    policy = rlcatalog.build(env=env, config={"fcnet_hiddens": [4], "text_max_length": 60})
    expected = policy.act([first_obs], explore=False).dist_inputs

    policy.save(directory)
    policy.export(tmp_path / "policy.onnx")

    # Missions have a space class of MiniGrid, which is not passed here.
    loaded = load(directory)
    actor = rlcatalog.Actor(tmp_path / "policy.onnx")
    for restored in (loaded, actor):
        dist_inputs = restored.act([first_obs], explore=False).dist_inputs
        np.testing.assert_allclose(dist_inputs, expected, atol=1e-5)


# --- spaces passed to `load` ----------------------------------------------------------------------


WITH_TEXT = spaces.Dict({"a": THREE_NUMBERS, "t": spaces.Text(3, charset=frozenset("xyz"))})


def test_load_compares_charsets_without_their_order(directory, assert_same_policy):
    policy = build_policy(WITH_TEXT)
    policy.save(directory)
    same_space = spaces.Dict({"a": THREE_NUMBERS, "t": spaces.Text(3, charset="zyx")})

    loaded = load(directory, observation_space=same_space, catalog=make_catalog())

    assert_same_policy(policy, loaded, sample_observations(WITH_TEXT))


@pytest.mark.parametrize(
    "other_space",
    [
        pytest.param(
            spaces.Dict([("t", WITH_TEXT["t"]), ("a", WITH_TEXT["a"])]), id="other-order-of-keys"
        ),
        pytest.param(THREE_NUMBERS, id="other-kind"),
    ],
)
def test_load_rejects_another_space(directory, other_space):
    build_policy(WITH_TEXT).save(directory)

    with pytest.raises(SavedPolicyError, match=r"observation_space is Dict\('a': .*, not "):
        load(directory, observation_space=other_space, catalog=make_catalog())


# --- spaces in the model config -------------------------------------------------------------------


@pytest.mark.parametrize(
    "inner_space",
    [spaces.Discrete(3), spaces.Dict({"a": spaces.Box(-np.inf, np.inf, (2,))})],
    ids=["discrete", "dict"],
)
def test_space_in_the_custom_model_config_is_saved(inner_space, directory):
    class ModelWithSpace(FullyConnectedNetwork):
        def __init__(self, *args, inner_space):
            super().__init__(*args)
            self.inner_space = inner_space

    catalog = make_catalog()
    catalog.register_model("with_space", ModelWithSpace)
    config = {"custom_model": "with_space", "custom_model_config": {"inner_space": inner_space}}
    policy = rlcatalog.build(THREE_NUMBERS, TWO_ACTIONS, config, "torch", catalog=catalog)

    policy.save(directory)

    assert policy.model.inner_space == inner_space
    assert load(directory, catalog=catalog).model.inner_space == inner_space
