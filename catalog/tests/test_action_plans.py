"""Which action distribution a catalog chooses for an action space, and with how many inputs."""

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

DISTRIBUTION_PLUGINS = ("categorical", "gaussian", "bounded", "deterministic", "multi_action")
THREE_FEATURES = spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)
PAIR = spaces.Tuple([TWO_ACTIONS, THREE_FEATURES])
NESTED = spaces.Dict({"a": PAIR, "b": spaces.MultiDiscrete([2, 3])})


def make_catalog(*plugins):
    """Return a catalog of fcnet, the preprocessors and the named distribution plugins."""
    names = ("fcnet", "preprocessors", *plugins)
    return Catalog([point for point in scan() if point.name in names], environ={})


@pytest.fixture(scope="module")
def read_only_catalog():
    return make_catalog(*DISTRIBUTION_PLUGINS)


class SevenInputs(ActionDistribution):
    """A custom distribution that needs seven inputs for any action space."""

    @staticmethod
    def required_model_output_shape(action_space, model_config=None):
        return 7


class TwoByThreeInputs(ActionDistribution):
    """A custom distribution whose inputs have the shape (2, 3)."""

    @staticmethod
    def required_model_output_shape(action_space, model_config=None):
        return (2, 3)


def choose_distribution(catalog, space, config=None, *, dist_type=None, framework="torch"):
    """Return the name of the chosen class and the number of its inputs."""
    dist_class, size = catalog.action_dist(space, config or {}, dist_type, framework)
    # A distribution that is bound to its space holds the class as `cls`.
    return getattr(dist_class, "cls", dist_class).__name__, size


# --- by space -------------------------------------------------------------------------------------


#: Space, the name of its default distribution, the number of inputs.
DEFAULTS = [
    # A categorical has one logit for each choice.
    (TWO_ACTIONS, "Categorical", 2),
    (spaces.Discrete(5, start=3), "Categorical", 5),
    # A Gaussian has a mean and a log standard deviation for each dimension.
    (THREE_FEATURES, "DiagGaussian", 2 * 3),
    (spaces.Box(-1, 1, (), np.float32), "DiagGaussian", 2),
    (spaces.Box(-1, 1, (2, 3), np.float64), "DiagGaussian", 2 * 6),
    # An integer box has one logit for each value of each dimension.
    (spaces.Box(0, 2, (2,), np.int64), "MultiCategorical", 3 + 3),
    (spaces.Box(np.array([0, 5]), np.array([1, 9]), dtype=np.int16), "MultiCategorical", 2 + 5),
    (spaces.Box(0, 3, (2,), np.uint8), "MultiCategorical", 4 + 4),
    (spaces.MultiDiscrete([2, 3, 4]), "MultiCategorical", 2 + 3 + 4),
    (spaces.MultiDiscrete([[2, 3], [4, 5]]), "MultiCategorical", 2 + 3 + 4 + 5),
    (spaces.MultiBinary(4), "Bernoulli", 4),
    (spaces.MultiBinary((2, 3)), "Bernoulli", 6),
    (Simplex((4,)), "Dirichlet", 4),
    # A composite has the inputs of its parts.
    (PAIR, "MultiActionDistribution", 2 + 6),
    (NESTED, "MultiActionDistribution", (2 + 6) + (2 + 3)),
]


@pytest.mark.parametrize(("space", "name", "size"), DEFAULTS, ids=str)
@pytest.mark.parametrize("framework", ["torch", "tf", "tf2"])
def test_model_catalog_returns_class_of_the_framework(space, name, size, framework):
    dist_class, found_size = ModelCatalog.get_action_dist(space, {}, framework=framework)

    assert isinstance(found_size, int)
    assert found_size == size
    assert getattr(dist_class, "cls", dist_class).__name__ == name
    expected_framework = "torch" if framework == "torch" else "tf"
    assert dist_class.framework_of_class == expected_framework


@pytest.mark.parametrize(
    ("space", "path"),
    [
        pytest.param(spaces.Text(3), "action", id="text"),
        pytest.param(spaces.Graph(THREE_FEATURES, None), "action", id="graph"),
        pytest.param(spaces.Sequence(THREE_FEATURES), "action", id="sequence"),
        pytest.param(Repeated(THREE_FEATURES, 2), "action", id="repeated"),
        pytest.param(
            spaces.Tuple([TWO_ACTIONS, spaces.Dict({"t": spaces.Text(3)})]),
            r"action\[1\]\['t'\]",
            id="text-in-a-dict-in-a-tuple",
        ),
        pytest.param(
            spaces.Dict({"a": spaces.Sequence(TWO_ACTIONS)}),
            r"action\['a'\]",
            id="sequence-in-a-dict",
        ),
    ],
)
def test_space_without_distribution_is_rejected_by_path(read_only_catalog, space, path):
    with pytest.raises(UnsupportedSpaceError, match=f"^{path}: no installed distribution"):
        read_only_catalog.action_dist(space)


# --- by name --------------------------------------------------------------------------------------

NAMED_DISTRIBUTIONS = [
    (THREE_FEATURES, "deterministic", "Deterministic", 3),
    (THREE_FEATURES, "squashed_gaussian", "SquashedGaussian", 6),
    (THREE_FEATURES, "beta", "Beta", 6),
    (THREE_FEATURES, SevenInputs, "SevenInputs", 7),
    (TWO_ACTIONS, SevenInputs, "SevenInputs", 7),
    # A class serves a composite as a whole …
    (PAIR, SevenInputs, "SevenInputs", 7),
    (PAIR, TwoByThreeInputs, "TwoByThreeInputs", 2 * 3),
    # … and a name serves the parts that it fits: here the Box; the others get their default.
    (PAIR, "deterministic", "MultiActionDistribution", 2 + 3),
    (NESTED, "beta", "MultiActionDistribution", (2 + 6) + (2 + 3)),
]


@pytest.mark.parametrize(("space", "dist", "name", "size"), NAMED_DISTRIBUTIONS, ids=str)
def test_custom_action_dist_key_chooses_distribution(read_only_catalog, space, dist, name, size):
    chosen = choose_distribution(read_only_catalog, space, {"custom_action_dist": dist})

    assert chosen == (name, size)


def test_dist_type_argument_chooses_distribution(read_only_catalog):
    chosen = choose_distribution(read_only_catalog, spaces.Box(-1, 1, (3,)), dist_type="beta")

    assert chosen == ("Beta", 6)


def test_custom_action_dist_key_overrides_dist_type_argument(read_only_catalog):
    config = {"custom_action_dist": "beta"}

    name, _ = choose_distribution(
        read_only_catalog, THREE_FEATURES, config, dist_type="deterministic"
    )

    assert name == "Beta"


def test_registered_distribution_is_chosen_by_name():
    catalog = make_catalog(*DISTRIBUTION_PLUGINS)
    catalog.register_action_dist("seven", SevenInputs)
    config = {"custom_action_dist": "seven"}

    assert choose_distribution(catalog, PAIR, config) == ("SevenInputs", 7)
    assert catalog.resolve(THREE_FEATURES, PAIR, config).num_outputs == 7


def test_custom_action_dist_by_path_changes_only_that_part(read_only_catalog):
    space = spaces.Dict(
        {
            "a": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (3,))]),
            "b": spaces.MultiDiscrete([2, 3]),
        }
    )
    config = {"custom_action_dist": {"action['a'][1]": "beta"}}

    explanation = read_only_catalog.explain(THREE_FEATURES, space, config).as_dict()

    assert {part["path"]: part["chosen"] for part in explanation["action_parts"]} == {
        "action['a']": "multi_action",
        "action['a'][0]": "categorical",
        "action['a'][1]": "beta",  # The others have the distribution that their space gets anyway.
        "action['b']": "multi_categorical",
    }


def test_custom_action_dist_error_names_the_part(read_only_catalog):
    # A slate needs dimensions of equal size; action['b'] has 2 and 3 choices.
    config = {
        "custom_action_dist": {"action['a'][1]": "beta", "action['b']": "slate_multi_categorical"}
    }

    with pytest.raises(UnsupportedSpaceError, match=r"action\['b'\]"):
        read_only_catalog.action_dist(NESTED, config)


HALF_BOUNDED = spaces.Box(-1, np.inf, (2,))
EVERY_INT32 = spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32)


@pytest.mark.parametrize(
    ("space", "config", "error", "cause"),
    [
        pytest.param(
            TWO_ACTIONS,
            {"custom_action_dist": "beta"},
            UnsupportedSpaceError,
            "action: Beta needs .* found Discrete",
            id="beta-for-discrete",
        ),
        pytest.param(
            TWO_ACTIONS,
            {"custom_action_dist": "multi_action"},
            UnsupportedSpaceError,
            "only supports a Tuple or Dict, found",
            id="multi-action-for-discrete",
        ),
        pytest.param(
            spaces.Tuple([TWO_ACTIONS, TWO_ACTIONS]),
            {"custom_action_dist": "beta"},
            UnsupportedSpaceError,
            "Beta|does not fit any part",
            id="beta-fits-no-part",
        ),
        pytest.param(
            THREE_FEATURES,
            {"custom_action_dist": "betta"},
            UnknownNameError,
            "'betta'. Did you mean 'beta'",
            id="misspelt-name",
        ),
        pytest.param(
            PAIR,
            {"custom_action_dist": {"action[2]": "beta"}},
            ConfigError,
            r"no part 'action\[2\]'; parts:",
            id="path-beyond-the-last-part",
        ),
        pytest.param(
            PAIR,
            {"custom_action_dist": {"b": "beta", "a": "beta"}},
            ConfigError,
            r"no part 'a'; parts: action, ",
            id="unknown-paths",
        ),
        pytest.param(
            TWO_ACTIONS,
            {"free_log_std": True},
            ConfigError,
            "categorical, for .* diag_gaussian",
            id="free-log-std-for-discrete",
        ),
        pytest.param(
            PAIR,
            {"free_log_std": True},
            ConfigError,
            "free_log_std trains .* multi_action",
            id="free-log-std-for-tuple",
        ),
        pytest.param(
            HALF_BOUNDED,
            {"custom_action_dist": "beta"},
            UnsupportedSpaceError,
            "action: .*bound",
            id="beta-without-upper-bound",
        ),
        pytest.param(
            HALF_BOUNDED,
            {"custom_action_dist": "squashed_gaussian"},
            UnsupportedSpaceError,
            "action: ",
            id="squashed-gaussian-without-upper-bound",
        ),
        pytest.param(EVERY_INT32, {}, UnsupportedSpaceError, "action: ", id="too-many-integers"),
    ],
)
def test_distribution_that_does_not_fit_is_rejected(read_only_catalog, space, config, error, cause):
    with pytest.raises(error, match=cause):
        read_only_catalog.resolve(THREE_FEATURES, space, config)


@pytest.mark.parametrize(
    ("plugins", "space", "path", "package"),
    [
        pytest.param(
            ("categorical", "gaussian"), PAIR, "action", "rlcatalog-multi-action", id="tuple"
        ),
        pytest.param(
            ("categorical", "multi_action"),
            PAIR,
            r"action\[1\]",
            "rlcatalog-gaussian",
            id="box-in-a-tuple",
        ),
        pytest.param(("categorical",), Simplex((3,)), "action", "rlcatalog-bounded", id="simplex"),
    ],
)
def test_missing_distribution_error_names_package(plugins, space, path, package):
    with pytest.raises(MissingPluginError, match=f"{path}.* distribution for .*{package}"):
        make_catalog(*plugins).resolve(THREE_FEATURES, space)


# --- shapes of stored actions ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "dtype", "shape"),
    [
        (TWO_ACTIONS, np.int64, (None,)),
        (THREE_FEATURES, np.float32, (None, 3)),
        (spaces.Box(-1, 1, (2, 2), np.float64), np.float32, (None, 2, 2)),
        (spaces.Box(0, 3, (2,), np.int64), np.int32, (None, 2)),
        (spaces.MultiDiscrete([2, 3]), np.int64, (None, 2)),
        (spaces.MultiBinary(3), np.int8, (None, 3)),
        (Simplex((4,)), np.float32, (None, 4)),
        # Nested actions are stored flat, in one dtype.
        (spaces.Tuple([TWO_ACTIONS, TWO_ACTIONS]), np.int32, (None, 2)),
        (NESTED, np.float32, (None, 1 + 3 + 2)),
    ],
    ids=str,
)
def test_action_shape_has_batch_dimension_and_dtype(space, dtype, shape):
    assert ModelCatalog.get_action_shape(space) == (np.dtype(dtype), shape)


def test_action_shape_of_text_is_rejected():
    with pytest.raises(UnsupportedSpaceError, match=r"Text.* cannot be an action space"):
        ModelCatalog.get_action_shape(spaces.Text(3))


# --- copies ---------------------------------------------------------------------------------------


def copy_by_pickle(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("make_copy", [copy.deepcopy, copy_by_pickle])
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_bound_distribution_survives_copy_and_pickle(framework, make_copy):
    dist_class, size = ModelCatalog.get_action_dist(PAIR, {}, framework=framework)
    inputs = np.zeros((2, size), np.float32)

    copied = make_copy(dist_class)

    assert copied.cls is dist_class.cls
    assert copied(inputs).logp(dist_class(inputs).sample()).shape == (2,)
