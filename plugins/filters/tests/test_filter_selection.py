"""Which values of an encoded observation `MeanStdFilter` touches, and which it leaves bit for bit
alone.
"""

import pickle
import string
import warnings

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import SpaceInfo, default_catalog
from rlcatalog.errors import CatalogWarning, ConfigError, ConfigTypeError, ObservationError
from rlcatalog.spaces import Repeated, Simplex
from rlcatalog_filters import EncodedMeanStdFilter

SPACE = spaces.Dict(
    {
        "action_mask": spaces.Box(0, 1, (3,)),
        "gear": spaces.Discrete(4),
        "lights": spaces.MultiBinary(2),
        "on": spaces.Box(0, 1, (2,), np.bool_),
        "speed": spaces.Box(-np.inf, np.inf, (2,)),
        "speedometer": spaces.Box(0, 300, (), np.float32),
        "wheels": spaces.Tuple((spaces.Box(-5, 5, (2, 2)), spaces.Discrete(2))),
    }
)
NUMERIC = {"obs['speed']", "obs['speedometer']", "obs['wheels'][0]"}


def make(space=SPACE, **options):
    """A filter, its preprocessor, and a function that encodes a batch of samples."""
    preprocessor = default_catalog().preprocessor_for(SpaceInfo.read(space), options)
    space.seed(0)
    return EncodedMeanStdFilter(preprocessor, options), preprocessor


def encoded(preprocessor, space=SPACE, batch=16):
    return preprocessor.transform_batch([space.sample() for _ in range(batch)])


def inside(space, batch):
    return batch.dtype == space.dtype and bool(((batch >= space.low) & (batch <= space.high)).all())


def check(space, filtered, **options):
    """Learn, and compare each leaf with the definition or, bit for bit, with what went in."""
    f, preprocessor = make(space, **options)
    first, second = encoded(preprocessor, space), encoded(preprocessor, space)
    f(first, update=True)
    out = f(second, update=True)
    assert out.dtype == np.float32
    assert out.shape == second.shape
    assert {leaf.path for leaf in f.leaves} == filtered
    flat, result = (x.reshape(len(x), -1) for x in (second, out))
    stream = np.concatenate([first, second]).reshape(2 * len(first), -1).astype(np.float64)
    for leaf in preprocessor.leaves():
        here = slice(leaf.start, leaf.stop)
        if leaf.path in filtered:
            expected = (flat[:, here] - stream[:, here].mean(0)) / (
                stream[:, here].std(0, ddof=1) + 1e-6
            )
            np.testing.assert_allclose(
                result[:, here], np.clip(expected, -10, 10), rtol=1e-5, atol=1e-6
            )
        else:
            assert result[:, here].tobytes() == flat[:, here].astype(np.float32).tobytes(), (
                leaf.path
            )
    assert inside(f.processed_space(preprocessor), out)


def test_one_hots_and_masks_are_bitwise_untouched():
    check(SPACE, NUMERIC)


def test_action_masks_are_exempt():
    """RLlib exempts neither masks nor one-hots.

    Wherever the key stands, and under whatever name.
    """
    mask = spaces.Box(0, 1, (2,))
    tree = {"a": spaces.Dict({"action_mask": mask, "x": mask}), "action_masks": mask}
    check(spaces.Dict(tree), {"obs['a']['x']", "obs['action_masks']"})
    check(
        spaces.Dict(tree),
        {"obs['a']['action_mask']", "obs['a']['x']"},
        action_mask_key="action_masks",
    )
    below = {"action_mask": spaces.Tuple((mask, mask)), "x": mask}
    check(spaces.Dict(below), {"obs['x']"})


def test_lists_texts_graphs_and_probabilities_are_bitwise_untouched():
    box = spaces.Box(-1, 1, (2,))
    space = spaces.Dict(
        {
            "choice": spaces.OneOf((box, spaces.Discrete(3))),
            "items": Repeated(box, 3),
            "share": Simplex((3,)),
            "speed": box,
            "words": spaces.Text(4, charset=string.ascii_lowercase),
            "map": spaces.Graph(box, box),
        }
    )
    check(space, {"obs['speed']"}, graph_max_nodes=10, graph_max_edges=100)


@pytest.mark.parametrize(
    ("options", "filtered"),
    [
        ({"filter_include": ["obs['speed']"]}, {"obs['speed']"}),
        (
            {"filter_include": ["obs['gear']", "obs['wheels']"]},
            {"obs['gear']", "obs['wheels'][0]", "obs['wheels'][1]"},
        ),
        ({"filter_exclude": ["obs['wheels']", "obs['speed']"]}, {"obs['speedometer']"}),
        ({"filter_exclude": ["obs['gear']"]}, NUMERIC),
        (
            {
                "filter_include": ["obs"],
                "filter_exclude": ["obs['lights']", "obs['on']", "obs['wheels'][1]"],
            },
            {*NUMERIC, "obs['gear']"},
        ),
        (
            {"filter_include": ["obs['wheels']"], "filter_exclude": ["obs['wheels'][1]"]},
            {"obs['wheels'][0]"},
        ),
    ],
)
def test_include_overrides_the_default_and_exclude_wins(options, filtered):
    """`obs['speed']` is no start of `obs['speedometer']`: paths end where a step ends."""
    check(SPACE, filtered, **options)


@pytest.mark.parametrize("key", ["filter_include", "filter_exclude"])
@pytest.mark.parametrize("path", ["obs['spee']", "obs['speed'", "speed", "obs['speed'][0]", ""])
def test_a_path_that_matches_no_leaf_is_an_error_naming_the_leaves(key, path):
    with pytest.raises(ConfigError) as caught:
        make(**{key: ["obs['gear']", path]})
    assert str(caught.value).startswith(
        f"{key}: the observation has no leaf at or below {path!r}; its leaves are "
    )
    for leaf in default_catalog().preprocessor_for(SpaceInfo.read(SPACE), {}).leaves():
        assert leaf.path in str(caught.value)


def test_asking_for_the_action_mask_is_an_error():
    with pytest.raises(
        ConfigError,
        match=r"'obs\[\\'action_mask\\'\]' is the action mask|\"obs.*is the action mask",
    ):
        make(filter_include=["obs['action_mask']"])


@pytest.mark.parametrize(
    "options",
    [
        {"filter_clip": 0.0},
        {"filter_clip": -1},
        {"filter_clip": "ten"},
        {"filter_include": "obs"},
        {"filter_exclude": [1]},
    ],
)
def test_config_values_are_checked(options):
    [key] = options
    with pytest.raises(ConfigError, match=key) as caught:
        default_catalog().parse_config(options)
    assert isinstance(caught.value, ConfigTypeError) == (not isinstance(options[key], float | int))


def test_images_become_float32():
    """A uint8 image of its own is no flat vector: it keeps its shape, in floats."""
    space = spaces.Box(0, 255, (4, 5, 3), np.uint8)
    f, preprocessor = make(space, filter_include=["obs"])
    assert encoded(preprocessor, space).dtype == np.uint8
    processed = f.processed_space(preprocessor)
    assert (processed.dtype, processed.shape, processed.low.min(), processed.high.max()) == (
        np.float32,
        (4, 5, 3),
        -10.0,
        10.0,
    )


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-2, 3, ()),
        spaces.Box(-2, 3, (0,)),
        spaces.Box(-3, 3, (2,), np.int64),
        spaces.Box(1e8, 1e8 + 4, (2,), np.float64),
    ],
    ids=str,
)
def test_boxes_of_any_shape_and_dtype_are_filtered(space):
    check(space, {"obs"})


@pytest.mark.parametrize(
    ("space", "options"),
    [
        (spaces.Discrete(5), {}),
        (spaces.Discrete(5), {"_disable_preprocessor_api": True}),
        (spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2))), {}),
        (spaces.Box(0, 1, (2,)), {"filter_exclude": ["obs"]}),
        (spaces.Box(0, 255, (4, 5, 3), np.uint8), {}),
        (spaces.Box(0, 1, (4, 5, 3), np.float32), {}),
        (spaces.Box(0, 1, (6,), np.int8), {}),
        (spaces.Box(0, 255, (2, 2), np.uint8), {"filter_include": []}),
    ],
    ids=str,
)
def test_nothing_to_filter_is_a_warning_and_passes_unchanged(space, options):
    with pytest.warns(CatalogWarning, match="has nothing to filter in the leaves "):
        f, preprocessor = make(space, **options)
    x = encoded(preprocessor, space)
    out = f(x, update=True)
    # Integers for an embedding stay integers.
    assert out.dtype == x.dtype == preprocessor.observation_space.dtype
    np.testing.assert_array_equal(out, x)
    assert f.statistics.running_stats.n == 0
    assert f.processed_space(preprocessor) is preprocessor.observation_space
    f.set_state(f.get_state())


@pytest.mark.parametrize("clip", [0.5, 10.0, None])
def test_the_processed_space_has_the_clip_bounds(clip):
    f, preprocessor = make(filter_clip=clip)
    space = f.processed_space(preprocessor)
    assert space.preprocessor is preprocessor
    assert space.original_space is SPACE
    lowest, highest = preprocessor.bounds()
    for leaf in preprocessor.leaves():
        here, bound = slice(leaf.start, leaf.stop), np.inf if clip is None else clip
        low, high = (-bound, bound) if leaf.path in NUMERIC else (lowest[here], highest[here])
        np.testing.assert_array_equal(space.low[here], np.broadcast_to(low, leaf.stop - leaf.start))
        np.testing.assert_array_equal(
            space.high[here], np.broadcast_to(high, leaf.stop - leaf.start)
        )
    assert inside(space, f(encoded(preprocessor)))  # before anything was learned
    f(encoded(preprocessor), update=True)
    out = f(encoded(preprocessor) * np.where(f._filtered, 1e6, 1).astype(np.float32))
    assert inside(space, out)
    assert (np.abs(out).max() > 100) == (clip is None)


# --- errors and copies ----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("path", "place", "where"),
    [
        ("obs['speed']", 1, "at [1] "),
        ("obs['wheels'][0]", 2, "at [1, 0] "),
        ("obs['speedometer']", 0, ""),
    ],
)
def test_what_is_not_finite_is_refused_by_path_before_anything_changes(path, place, where, bad):
    f, preprocessor = make()
    x = encoded(preprocessor, batch=4)
    f(x, update=True)
    before, output = f.get_state(), f(x)
    [leaf] = [leaf for leaf in preprocessor.leaves() if leaf.path == path]
    broken = x.copy()
    broken[2, leaf.start + place] = bad
    with pytest.raises(ObservationError) as caught:
        f(broken, update=True)
    assert str(caught.value).startswith(
        f"{path}: expected finite values to filter; found {bad} {where}in row 2 of "
    )
    for name, array in f.get_state().items():
        np.testing.assert_array_equal(array, before[name])
    assert f.statistics.buffer.n == 4
    np.testing.assert_array_equal(f(x), output)
    assert f(broken).shape == x.shape  # without learning, the numbers go through


def test_leaves_that_are_not_filtered_may_hold_anything():
    f, preprocessor = make(filter_exclude=["obs['speed']"])
    x = encoded(preprocessor, batch=2)
    [leaf] = [leaf for leaf in preprocessor.leaves() if leaf.path == "obs['speed']"]
    x[0, leaf.start : leaf.stop] = np.nan, -np.inf
    out = f(x, update=True)
    np.testing.assert_array_equal(out[0, leaf.start : leaf.stop], [np.nan, -np.inf])
    assert f.statistics.running_stats.n == 2


@pytest.mark.parametrize("shape", [(), (20,), (3, 19), (2, 5, 4)])
def test_another_shape_than_the_preprocessors_is_refused(shape):
    f, preprocessor = make()
    assert preprocessor.shape == (20,)
    with pytest.raises(ObservationError, match=r"obs: expected encoded observations \[B, \*\("):
        f(np.zeros(shape))


def test_copies_by_pickle_learn_apart():
    f, preprocessor = make()
    x = encoded(preprocessor)
    f(x, update=True)
    copied = pickle.loads(pickle.dumps(f))
    np.testing.assert_array_equal(copied(x), f(x))
    copied(x + 1, update=True)
    assert (copied.statistics.running_stats.n, f.statistics.running_stats.n) == (32, 16)


def test_workers_share_what_they_learned():
    """Also when the new statistics arrive from outside, after the filter has been used."""
    (here, preprocessor), (there, _) = make(), make()
    first, second = encoded(preprocessor), encoded(preprocessor)
    here(first, update=True)
    there(second, update=True)
    here.statistics.apply_changes(there.statistics)
    whole, _ = make()
    whole(np.concatenate([first, second]), update=True)
    np.testing.assert_allclose(here(first), whole(first), rtol=1e-6, atol=1e-7)
    there.statistics.sync(here.statistics)
    np.testing.assert_array_equal(there(first), here(first))


def test_a_full_selection_warns_about_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(spaces.Box(0, 1, (2,)))
