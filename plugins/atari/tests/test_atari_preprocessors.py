"""The codecs of pixels and RAM, against the same computed by hand in float64."""

from __future__ import annotations

import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcatalog
from rlcatalog.errors import ConfigError, ObservationError, UnsupportedSpaceError
from rlcatalog_atari.preprocessors import AtariRamPreprocessor, GenericPixelPreprocessor

SCREEN = Box(0, 255, (210, 160, 3), np.uint8)
RAM = Box(0, 255, (128,), np.uint8)


def image(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def pixels_of(obs, **options):
    return GenericPixelPreprocessor(Box(0, 255, obs.shape, np.uint8), options).transform(obs)


def area(n, m):
    """Weights `[m, n]` with which n pixels are averaged into m: how much of each
    falls into each.
    """
    edges = np.linspace(0, n, m + 1)
    low, high = edges[:-1, None], edges[1:, None]
    at = np.arange(n)
    return np.clip(np.minimum(at + 1, high) - np.maximum(at, low), 0, None) * m / n


def resized(pixels, size):
    down, across = area(pixels.shape[0], size), area(pixels.shape[1], size)
    return np.einsum("yh,xw,hw...->yx...", down, across, pixels, optimize=True)


def by_hand(obs, dim=84, grayscale=False, zero_mean=True):
    """The encoding, spelt out in float64."""
    pixels = obs.astype(np.float64)
    if pixels.shape[0] == 210:
        pixels = pixels[25:185]
    if dim < 84:
        pixels = resized(pixels, 84)
    pixels = resized(pixels, dim)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if grayscale:
        pixels = pixels.mean(-1, keepdims=True)
    return (pixels - 128) / 128 if zero_mean else pixels / 255


# --- pixels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 21, 42, 50, 84, 100, 160])
@pytest.mark.parametrize("grayscale", [False, True])
@pytest.mark.parametrize("zero_mean", [False, True])
def test_pixels_are_those_computed_by_hand(dim, grayscale, zero_mean):
    options = {"dim": dim, "grayscale": grayscale, "zero_mean": zero_mean}
    found = pixels_of(image(210, 160, 3), **options)
    assert found.shape == (dim, dim, 1 if grayscale else 3)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_hand(image(210, 160, 3), **options), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("value", "zero_mean", "expected"),
    [
        (0, True, -1.0),
        (1, True, -127 / 128),
        (127, True, -1 / 128),
        (128, True, 0.0),
        (255, True, 127 / 128),
        (0, False, 0.0),
        (51, False, 0.2),
        (255, False, 1.0),
    ],
)
@pytest.mark.parametrize(
    "shape", [(210, 160, 3), (210, 160), (210, 160, 1), (84, 84, 3), (96, 96, 3)]
)
@pytest.mark.parametrize("grayscale", [False, True])
def test_an_even_image_has_one_known_value(value, zero_mean, expected, shape, grayscale):
    found = pixels_of(np.full(shape, value, np.uint8), zero_mean=zero_mean, grayscale=grayscale)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert found.shape == (84, 84, 3 if len(shape) == 3 and shape[2] == 3 and not grayscale else 1)


def test_black_is_minus_one_and_white_nearly_one():
    """RLlib subtracts in uint8, which wraps around: black becomes 1, and 127 becomes 1.99."""
    half = np.zeros((84, 84, 3), np.uint8)
    half[:42] = 255
    found = pixels_of(half)
    np.testing.assert_array_equal(found[:42], np.float32(127 / 128))
    np.testing.assert_array_equal(found[42:], np.float32(-1))


def test_colour_without_zero_mean_is_served():
    """RLlib scales colours in place in uint8, and NumPy refuses."""
    found = pixels_of(image(210, 160, 3), zero_mean=False)
    assert 0 <= found.min() < 0.3 < 0.7 < found.max() <= 1


@pytest.mark.parametrize("grayscale", [False, True])
@pytest.mark.parametrize("zero_mean", [False, True])
def test_values_are_float32_as_the_space_says(grayscale, zero_mean):
    """RLlib returns colours as float64."""
    codec = GenericPixelPreprocessor(SCREEN, {"grayscale": grayscale, "zero_mean": zero_mean})
    assert codec.transform(image(210, 160, 3)).dtype == codec.observation_space.dtype == np.float32


@pytest.mark.parametrize(("zero_mean", "low"), [(True, -1.0), (False, 0.0)])
@pytest.mark.parametrize("dim", [50, 84, 200])
def test_the_space_holds_the_extremes_and_says_the_range(zero_mean, low, dim):
    """RLlib says [-1, 1] whatever the range.

    At 50 and 200 the weights of an area sum to a little more than 1.
    """
    codec = GenericPixelPreprocessor(SCREEN, {"zero_mean": zero_mean, "dim": dim})
    space = codec.observation_space
    assert (space.low.min(), space.low.max(), space.high.min(), space.high.max()) == (
        low,
        low,
        1.0,
        1.0,
    )
    assert space.original_space is SCREEN
    for value in (0, 255):
        assert codec.transform(np.full((210, 160, 3), value, np.uint8)) in space


def test_the_score_is_cut_off_screens_of_210_rows_only():
    screen = image(210, 160, 3)
    other = screen.copy()
    other[:25] = other[185:] = 0
    np.testing.assert_array_equal(pixels_of(screen), pixels_of(other))
    other[25] = 0
    assert not np.array_equal(pixels_of(screen), pixels_of(other))
    for height in (209, 250):
        tall = image(height, 160, 3)
        np.testing.assert_allclose(pixels_of(tall), by_hand(tall), rtol=0, atol=2e-6)


def test_gray_is_the_mean_of_the_colours():
    red = np.zeros((84, 84, 3), np.uint8)
    red[..., 0] = 192
    np.testing.assert_array_equal(pixels_of(red, grayscale=True), np.float32((64 - 128) / 128))


@pytest.mark.parametrize("shape", [(210, 160), (210, 160, 1)])
@pytest.mark.parametrize("grayscale", [False, True])
def test_gray_images_have_one_channel_whatever_the_config(shape, grayscale):
    found = pixels_of(image(*shape), grayscale=grayscale)
    assert found.shape == (84, 84, 1)
    np.testing.assert_allclose(found, by_hand(image(*shape)), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    "space",
    [
        Box(0, 255, (210, 160, 3), np.float32),
        Box(0, 1, (84, 84, 3)),
        Box(0, 255, (84, 84, 4), np.uint8),
        Box(0, 255, (84, 84, 3, 1), np.uint8),
        RAM,
        Discrete(3),
    ],
)
def test_a_space_without_images_is_refused(space):
    with pytest.raises(
        UnsupportedSpaceError, match=r"obs: GenericPixelPreprocessor takes images.*found"
    ):
        GenericPixelPreprocessor(space, {})


# --- RAM ------------------------------------------------------------------------------------------


def test_every_byte_has_its_value():
    values = np.arange(256, dtype=np.uint8).reshape(2, 128)
    codec = AtariRamPreprocessor(RAM, {})
    found = np.stack([codec.transform(row) for row in values])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.ravel(), (np.arange(256) - 128) / 128)
    assert (codec.observation_space.low.min(), codec.observation_space.high.max()) == (
        -1,
        127 / 128,
    )
    assert found[0] in codec.observation_space
    assert found[1] in codec.observation_space


@pytest.mark.parametrize(
    "space", [Box(-1, 1, (128,)), Box(0, 255, (16, 8), np.uint8), SCREEN, Discrete(3)]
)
def test_a_space_without_bytes_in_a_row_is_refused(space):
    with pytest.raises(UnsupportedSpaceError, match=r"obs: AtariRamPreprocessor takes RAM.*found"):
        AtariRamPreprocessor(space, {})


# --- both -----------------------------------------------------------------------------------------

BOTH = [(GenericPixelPreprocessor, SCREEN, {"dim": 20}), (AtariRamPreprocessor, RAM, {})]
both = pytest.mark.parametrize(("cls", "space", "options"), BOTH, ids=["pixels", "ram"])


@both
def test_all_ways_to_encode_agree(cls, space, options):
    batch = np.stack([image(*space.shape, seed=seed) for seed in range(3)])
    codec = cls(space, options)
    rows = [codec.transform(row) for row in batch]
    assert rows[0].shape == codec.shape
    np.testing.assert_array_equal(codec.transform_batch(batch), rows)
    np.testing.assert_array_equal(codec.transform_batch(list(batch)), rows)
    np.testing.assert_array_equal(codec.encode_batch(batch), rows)
    np.testing.assert_array_equal(codec.transform(batch[0].tolist()), rows[0])
    out = np.full(codec.size + 5, 7, np.float32)
    codec.write(batch[0], out, 2)
    np.testing.assert_array_equal(out[2:-3], rows[0].ravel())
    np.testing.assert_array_equal(out[[0, 1, -3, -2, -1]], 7)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(codec)).transform(batch[0]), rows[0])


@both
def test_what_is_returned_is_fresh_and_what_is_given_is_kept(cls, space, options):
    obs = image(*space.shape)
    kept = obs.copy()
    codec = cls(space, options)
    first, second = codec.transform(obs), codec.transform(obs)
    first[...] = 9
    np.testing.assert_array_equal(obs, kept)
    assert not np.shares_memory(first, second)
    assert second.max() <= 1


@both
def test_the_leaf_is_numeric_and_covers_the_vector(cls, space, options):
    codec = cls(space, options)
    [leaf] = codec.leaves(3)
    assert (leaf.start, leaf.stop, leaf.shape, leaf.numeric) == (
        3,
        3 + codec.size,
        codec.shape,
        True,
    )


@both
@pytest.mark.parametrize("check", ["first", "never"])
@pytest.mark.parametrize("fault", ["shape", "float", "text", "ragged"])
def test_an_observation_that_does_not_fit_is_refused(cls, space, options, check, fault):
    codec = cls(space, options, check=check)
    good = image(*space.shape)
    bad = {"shape": good[:-1], "float": good / 255, "text": "no", "ragged": [[1, 2], [3]]}[fault]
    for encode in (codec.transform, lambda obs: codec.transform_batch([obs])):
        with pytest.raises(ObservationError, match=r"^obs: expected Box.*found|cannot be stacked"):
            encode(bad)


@both
@pytest.mark.parametrize(("value", "at"), [(256, 0), (-1, 3)])
def test_integers_that_are_no_bytes_are_refused(cls, space, options, value, at):
    obs = image(*space.shape).astype(np.int64)
    obs.flat[at] = value
    with pytest.raises(
        ObservationError, match=rf"values within the bounds of the space, at \[.*{value}"
    ):
        cls(space, options).transform(obs)


@pytest.mark.parametrize(
    ("key", "value"), [("dim", 0), ("dim", 1.5), ("grayscale", "yes"), ("zero_mean", 2)]
)
def test_a_wrong_option_is_refused_by_name(key, value):
    with pytest.raises(ConfigError, match=key):
        GenericPixelPreprocessor(SCREEN, {key: value})


def test_options_may_be_missing():
    assert GenericPixelPreprocessor(SCREEN).shape == (84, 84, 3)
    assert AtariRamPreprocessor(RAM).shape == (128,)


# --- chosen by name only --------------------------------------------------------------------------


@pytest.mark.parametrize("space", [SCREEN, RAM])
def test_no_space_is_encoded_so_by_default(space):
    assert rlcatalog.default_catalog().preprocessor_for(space).component.name == "none"


@pytest.mark.parametrize(
    ("name", "kwargs", "keys", "shape"),
    [
        ("generic_pixel", {}, {"dim": 12, "grayscale": True}, (12, 12, 1)),
        ("atari_ram", {"obs_type": "ram"}, {}, (128,)),
    ],
)
def test_a_policy_uses_the_codec_its_config_names(name, kwargs, keys, shape):
    """The wrapper keeps its hands off then."""
    env = gymnasium.make("ALE/Breakout-v5", **kwargs)
    config = {"custom_preprocessor": name, **keys}
    policy = rlcatalog.build(env=env, config=config)
    assert policy.wrap_env(env) is env
    assert policy.preprocessor.component.name == name
    assert policy.preprocessor.shape == policy.encoded_space.shape == shape
    obs, _ = env.reset(seed=0)
    assert env.action_space.contains(policy.act(obs[None]).action[0])
