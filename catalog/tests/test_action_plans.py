"""Which distribution serves an action space: precedence of names, children of composites, sizes,
refusals.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import ActionDistribution, Catalog, ModelCatalog
from rlcatalog.errors import (
    ConfigError,
    MissingPluginError,
    UnknownNameError,
    UnsupportedSpaceError,
)
from rlcatalog.plugins.discovery import scan
from rlcatalog.spaces import Repeated, Simplex

DISTS = ("categorical", "gaussian", "bounded", "deterministic", "multi_action")
BOX, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
PAIR = spaces.Tuple([TWO, BOX])
NESTED = spaces.Dict({"a": PAIR, "b": spaces.MultiDiscrete([2, 3])})


def catalog_of(*names):
    return Catalog(
        [point for point in scan() if point.name in ("fcnet", "preprocessors", *names)], environ={}
    )


@pytest.fixture(scope="module")
def shared():
    return catalog_of(*DISTS)


class Seven(ActionDistribution):
    """The seeds' custom distribution: seven outputs, whatever the space."""

    @staticmethod
    def required_model_output_shape(action_space, model_config=None):
        return 7


class Shaped(Seven):
    @staticmethod
    def required_model_output_shape(action_space, model_config=None):
        return (2, 3)


def chosen(catalog, space, config=None, dist_type=None, framework="torch"):
    cls, size = catalog.action_dist(space, config or {}, dist_type, framework)
    return getattr(cls, "cls", cls).__name__, size


@pytest.mark.parametrize(
    ("space", "name", "size"),
    [
        (TWO, "Categorical", 2),
        (spaces.Discrete(5, start=3), "Categorical", 5),
        (BOX, "DiagGaussian", 6),
        (spaces.Box(-1, 1, (), np.float32), "DiagGaussian", 2),
        (spaces.Box(-1, 1, (2, 3), np.float64), "DiagGaussian", 12),
        (spaces.Box(0, 2, (2,), np.int64), "MultiCategorical", 6),
        (spaces.Box(np.array([0, 5]), np.array([1, 9]), dtype=np.int16), "MultiCategorical", 7),
        (spaces.Box(0, 3, (2,), np.uint8), "MultiCategorical", 8),
        (spaces.MultiDiscrete([2, 3, 4]), "MultiCategorical", 9),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), "MultiCategorical", 14),
        (spaces.MultiBinary(4), "Bernoulli", 4),
        (spaces.MultiBinary((2, 3)), "Bernoulli", 6),
        (Simplex((4,)), "Dirichlet", 4),
        (PAIR, "MultiActionDistribution", 8),
        (NESTED, "MultiActionDistribution", 13),
    ],
    ids=str,
)
@pytest.mark.parametrize("framework", ["torch", "tf", "tf2"])
def test_what_a_space_gets_by_itself(shared, space, name, size, framework):
    assert chosen(shared, space, framework=framework) == (name, size)
    cls, found = ModelCatalog.get_action_dist(space, {}, framework=framework)
    assert isinstance(found, int)
    assert found == size
    assert cls.framework_of_class == ("torch" if framework == "torch" else "tf")


@pytest.mark.parametrize(
    ("space", "leaf"),
    [
        (spaces.Text(3), "action"),
        (spaces.Graph(BOX, None), "action"),
        (spaces.Sequence(BOX), "action"),
        (Repeated(BOX, 2), "action"),
        (spaces.Tuple([TWO, spaces.Dict({"t": spaces.Text(3)})]), r"action\[1\]\['t'\]"),
        (spaces.Dict({"a": spaces.Sequence(TWO)}), r"action\['a'\]"),
    ],
    ids=str,
)
def test_what_has_no_distribution_is_refused_by_its_leaf(shared, space, leaf):
    with pytest.raises(
        UnsupportedSpaceError, match=f"^{leaf}: no installed distribution supports "
    ):
        shared.action_dist(space)


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["custom", "dist_type"])
@pytest.mark.parametrize(
    ("space", "name", "expected"),
    [
        (BOX, "deterministic", ("Deterministic", 3)),
        (BOX, "squashed_gaussian", ("SquashedGaussian", 6)),
        (BOX, "beta", ("Beta", 6)),
        (BOX, Seven, ("Seven", 7)),
        (TWO, Seven, ("Seven", 7)),
        (PAIR, Seven, ("Seven", 7)),
        (PAIR, Shaped, ("Shaped", 6)),
        (PAIR, "deterministic", ("MultiActionDistribution", 2 + 3)),
        (NESTED, "beta", ("MultiActionDistribution", 13)),
    ],
    ids=str,
)
def test_a_name_or_a_class_is_used_where_it_fits(shared, key, space, name, expected):
    found = (
        chosen(shared, space, {"custom_action_dist": name})
        if key == "custom"
        else chosen(shared, space, {}, name)
    )
    assert found == expected


def test_the_config_wins_over_the_argument(shared):
    assert chosen(shared, BOX, {"custom_action_dist": "beta"}, "deterministic")[0] == "Beta"


def test_a_registered_name_and_its_shape():
    catalog = catalog_of(*DISTS)
    catalog.register_action_dist("seven", Seven)
    assert chosen(catalog, PAIR, {"custom_action_dist": "seven"}) == ("Seven", 7)
    assert catalog.resolve(BOX, PAIR, {"custom_action_dist": "seven"}).num_outputs == 7


def test_parts_are_named_by_path(shared):
    config = {
        "custom_action_dist": {"action['a'][1]": "beta", "action['b']": "slate_multi_categorical"}
    }
    # Its entries have different numbers of values.
    with pytest.raises(UnsupportedSpaceError, match=r"action\['b'\]"):
        shared.action_dist(NESTED, config)
    found = shared.explain(
        BOX, NESTED, {"custom_action_dist": {"action['a'][1]": "beta"}}
    ).as_dict()
    assert {part["path"]: part["chosen"] for part in found["action_parts"]} == {
        "action['a']": "multi_action",
        "action['a'][0]": "categorical",
        "action['a'][1]": "beta",
        "action['b']": "multi_categorical",
    }


@pytest.mark.parametrize(
    ("space", "config", "error", "said"),
    [
        (
            TWO,
            {"custom_action_dist": "beta"},
            UnsupportedSpaceError,
            "action: Beta needs .* found Discrete",
        ),
        (
            TWO,
            {"custom_action_dist": "multi_action"},
            UnsupportedSpaceError,
            "only supports a Tuple or Dict, found",
        ),
        (
            spaces.Tuple([TWO, TWO]),
            {"custom_action_dist": "beta"},
            UnsupportedSpaceError,
            "Beta|does not fit any part",
        ),
        (
            BOX,
            {"custom_action_dist": "betta"},
            UnknownNameError,
            "Unknown action dist 'betta'. Did you mean 'beta'",
        ),
        (
            PAIR,
            {"custom_action_dist": {"action[2]": "beta"}},
            ConfigError,
            r"no part 'action\[2\]'; parts:",
        ),
        (
            PAIR,
            {"custom_action_dist": {"b": "beta", "a": "beta"}},
            ConfigError,
            r"no part 'a'; parts: action, ",
        ),
        (
            TWO,
            {"free_log_std": True},
            ConfigError,
            "free_log_std trains .* categorical, for Discrete.* diag_gaussian",
        ),
        (PAIR, {"free_log_std": True}, ConfigError, "free_log_std trains .* multi_action"),
        (
            spaces.Box(-1, np.inf, (2,)),
            {"custom_action_dist": "beta"},
            UnsupportedSpaceError,
            "action: .*bound",
        ),
        (
            spaces.Box(-1, np.inf, (2,)),
            {"custom_action_dist": "squashed_gaussian"},
            UnsupportedSpaceError,
            "action: ",
        ),
        (spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32), {}, UnsupportedSpaceError, "action: "),
    ],
    ids=str,
)
def test_what_does_not_fit_says_so_before_anything_is_built(shared, space, config, error, said):
    with pytest.raises(error, match=said):
        shared.resolve(BOX, space, config)


def test_a_missing_package_is_named():
    with pytest.raises(
        MissingPluginError, match=r"action distribution for Tuple.*rlcatalog-multi-action"
    ):
        catalog_of("categorical", "gaussian").resolve(BOX, PAIR)
    with pytest.raises(
        MissingPluginError,
        match=r"action\[1\]: the action distribution for Box.*rlcatalog-gaussian",
    ):
        catalog_of("categorical", "multi_action").resolve(BOX, PAIR)
    with pytest.raises(
        MissingPluginError, match=r"action distribution for Simplex.*rlcatalog-bounded"
    ):
        catalog_of("categorical").resolve(BOX, Simplex((3,)))


# --- shapes of stored actions ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "dtype", "shape"),
    [
        (TWO, np.int64, (None,)),
        (BOX, np.float32, (None, 3)),
        (spaces.Box(-1, 1, (2, 2), np.float64), np.float32, (None, 2, 2)),
        (spaces.Box(0, 3, (2,), np.int64), np.int32, (None, 2)),
        (spaces.MultiDiscrete([2, 3]), np.int64, (None, 2)),
        (spaces.MultiBinary(3), np.int8, (None, 3)),
        (Simplex((4,)), np.float32, (None, 4)),
        (spaces.Tuple([TWO, TWO]), np.int32, (None, 2)),
        (NESTED, np.float32, (None, 6)),
    ],
    ids=str,
)
def test_action_shapes(space, dtype, shape):
    assert ModelCatalog.get_action_shape(space) == (np.dtype(dtype), shape)


def test_an_action_without_a_size_has_no_shape():
    with pytest.raises(UnsupportedSpaceError, match=r"action: Text.* cannot be an action space"):
        ModelCatalog.get_action_shape(spaces.Text(3))


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_bound_distribution_can_be_copied_and_pickled(framework):
    dist_class, size = ModelCatalog.get_action_dist(PAIR, {}, framework=framework)
    inputs = np.zeros((2, size), np.float32)
    for again in (copy.deepcopy(dist_class), pickle.loads(pickle.dumps(dist_class))):
        assert again.cls is dist_class.cls
        assert again(inputs).logp(dist_class(inputs).sample()).shape == (2,)
