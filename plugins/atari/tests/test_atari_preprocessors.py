"""Preprocessors of pixels and RAM, compared with the same computation in float64."""

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


def draw_image(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encode_pixels(image, **options):
    space = Box(0, 255, image.shape, np.uint8)
    return GenericPixelPreprocessor(space, options).transform(image)


# --- the computation in float64 -------------------------------------------------------------------


def area_weights(n, m):
    """Return the weights `[m, n]` with which n pixels are averaged into m.

    A weight is how much of an old pixel lies in a new one.
    """
    edges = np.linspace(0, n, m + 1)
    low = edges[:-1, None]
    high = edges[1:, None]
    places = np.arange(n)
    overlap = np.minimum(places + 1, high) - np.maximum(places, low)
    return np.clip(overlap, 0, None) * m / n


def resize(pixels, size):
    rows = area_weights(pixels.shape[0], size)
    columns = area_weights(pixels.shape[1], size)
    return np.einsum("yh,xw,hw...->yx...", rows, columns, pixels, optimize=True)


def encode_slowly(image, *, dim=84, grayscale=False, zero_mean=True):
    pixels = image.astype(np.float64)
    if pixels.shape[0] == 210:
        pixels = pixels[25:185]  # without the score
    if dim < 84:
        pixels = resize(pixels, 84)
    pixels = resize(pixels, dim)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if grayscale:
        pixels = pixels.mean(-1, keepdims=True)
    return (pixels - 128) / 128 if zero_mean else pixels / 255


# --- pixels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 50, 84, 160])
@pytest.mark.parametrize(("grayscale", "channels"), [(False, 3), (True, 1)])
@pytest.mark.parametrize("zero_mean", [False, True])
def test_pixels_equal_those_in_float64(dim, grayscale, channels, zero_mean):
    image = draw_image(210, 160, 3)
    options = {"dim": dim, "grayscale": grayscale, "zero_mean": zero_mean}

    encoded = encode_pixels(image, **options)

    assert encoded.shape == (dim, dim, channels)
    assert encoded.dtype == np.float32
    np.testing.assert_allclose(encoded, encode_slowly(image, **options), rtol=0, atol=2e-6)


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
def test_image_of_one_value_has_one_value(value, zero_mean, expected):
    image = np.full((96, 96, 3), value, np.uint8)

    encoded = encode_pixels(image, zero_mean=zero_mean)

    assert encoded.shape == (84, 84, 3)
    np.testing.assert_allclose(encoded, expected, rtol=0, atol=1e-6)


def test_black_is_minus_one_and_white_nearly_one():
    # RLlib subtracts in uint8, which wraps around: its black is 1, and 127 becomes 1.99.
    image = np.zeros((84, 84, 3), np.uint8)
    image[:42] = 255

    encoded = encode_pixels(image)

    np.testing.assert_array_equal(encoded[:42], np.float32(127 / 128))
    np.testing.assert_array_equal(encoded[42:], np.float32(-1))


# At 50 and 200 the weights of an area sum to a little more than 1.
each_dim = pytest.mark.parametrize("dim", [50, 84, 200])
each_range = pytest.mark.parametrize(("zero_mean", "low"), [(True, -1.0), (False, 0.0)])


@each_range
@each_dim
def test_encoded_space_has_the_range_of_the_values(zero_mean, low, dim):
    # RLlib's has the bounds -1 and 1, whatever the range.
    preprocessor = GenericPixelPreprocessor(SCREEN, {"zero_mean": zero_mean, "dim": dim})

    space = preprocessor.observation_space

    assert set(space.low.flat) == {low}
    assert set(space.high.flat) == {1.0}
    assert space.dtype == np.float32
    assert space.original_space is SCREEN


@each_range
@each_dim
@pytest.mark.parametrize("value", [0, 255])
def test_encoded_space_contains_the_extremes(zero_mean, low, dim, value):
    preprocessor = GenericPixelPreprocessor(SCREEN, {"zero_mean": zero_mean, "dim": dim})

    encoded = preprocessor.transform(np.full((210, 160, 3), value, np.uint8))

    assert encoded in preprocessor.observation_space


def test_score_is_cut_off_screens_of_210_rows():
    screen = draw_image(210, 160, 3)
    # The rows of the game are 25 to 184.
    other_score = screen.copy()
    other_score[:25] = 0
    other_score[185:] = 0
    other_game = screen.copy()
    other_game[25] = 0

    encoded = encode_pixels(screen)

    np.testing.assert_array_equal(encode_pixels(other_score), encoded)
    assert not np.array_equal(encode_pixels(other_game), encoded)


@pytest.mark.parametrize("height", [209, 250])
def test_score_is_not_cut_off_other_screens(height):
    image = draw_image(height, 160, 3)

    # This cuts only images of 210 rows.
    expected = encode_slowly(image)

    np.testing.assert_allclose(encode_pixels(image), expected, rtol=0, atol=2e-6)


def test_gray_is_the_mean_of_the_colours():
    red = np.zeros((84, 84, 3), np.uint8)
    red[..., 0] = 192

    encoded = encode_pixels(red, grayscale=True)

    mean = 192 / 3
    np.testing.assert_array_equal(encoded, np.float32((mean - 128) / 128))


@pytest.mark.parametrize("shape", [(210, 160), (210, 160, 1)], ids=str)
@pytest.mark.parametrize("grayscale", [False, True])
def test_gray_images_have_one_channel_whatever_the_config(shape, grayscale):
    image = draw_image(*shape)

    encoded = encode_pixels(image, grayscale=grayscale)

    assert encoded.shape == (84, 84, 1)
    np.testing.assert_allclose(encoded, encode_slowly(image), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(Box(0, 255, (210, 160, 3), np.float32), id="floats"),
        pytest.param(Box(0, 1, (84, 84, 3)), id="floats-up-to-1"),
        pytest.param(Box(0, 255, (84, 84, 4), np.uint8), id="four-channels"),
        pytest.param(Box(0, 255, (84, 84, 3, 1), np.uint8), id="four-axes"),
        pytest.param(RAM, id="ram"),
        pytest.param(Discrete(3), id="discrete"),
    ],
)
def test_space_without_images_is_an_error(space):
    with pytest.raises(UnsupportedSpaceError, match=r"takes images.*found") as caught:
        GenericPixelPreprocessor(space, {})

    assert str(caught.value).startswith("obs: GenericPixelPreprocessor ")


# --- RAM ------------------------------------------------------------------------------------------


def test_ram_is_scaled_byte_by_byte():
    preprocessor = AtariRamPreprocessor(RAM, {})

    low_bytes = preprocessor.transform(np.arange(0, 128, dtype=np.uint8))
    high_bytes = preprocessor.transform(np.arange(128, 256, dtype=np.uint8))

    assert low_bytes.dtype == np.float32
    np.testing.assert_array_equal(low_bytes, np.arange(-128, 0) / 128)
    np.testing.assert_array_equal(high_bytes, np.arange(0, 128) / 128)
    assert low_bytes in preprocessor.observation_space
    assert high_bytes in preprocessor.observation_space


def test_encoded_space_of_ram_has_the_range_of_bytes():
    space = AtariRamPreprocessor(RAM, {}).observation_space

    assert space.low.min() == -1
    assert space.high.max() == 127 / 128


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(Box(-1, 1, (128,)), id="floats"),
        pytest.param(Box(0, 255, (16, 8), np.uint8), id="matrix"),
        pytest.param(SCREEN, id="screen"),
        pytest.param(Discrete(3), id="discrete"),
    ],
)
def test_space_without_bytes_in_a_row_is_an_error(space):
    with pytest.raises(UnsupportedSpaceError, match=r"takes RAM.*found") as caught:
        AtariRamPreprocessor(space, {})

    assert str(caught.value).startswith("obs: AtariRamPreprocessor ")


# --- both preprocessors ---------------------------------------------------------------------------


def make_pixel_preprocessor(**options):
    return GenericPixelPreprocessor(SCREEN, {"dim": 20}, **options)


def make_ram_preprocessor(**options):
    return AtariRamPreprocessor(RAM, {}, **options)


each_preprocessor = pytest.mark.parametrize(
    ("make_preprocessor", "space"),
    [
        pytest.param(make_pixel_preprocessor, SCREEN, id="pixels"),
        pytest.param(make_ram_preprocessor, RAM, id="ram"),
    ],
)


@each_preprocessor
def test_batches_are_encoded_row_by_row(make_preprocessor, space):
    preprocessor = make_preprocessor()
    batch = np.stack([draw_image(*space.shape, seed=seed) for seed in range(3)])

    encoded_rows = [preprocessor.transform(row) for row in batch]

    assert encoded_rows[0].shape == preprocessor.shape
    np.testing.assert_array_equal(preprocessor.transform_batch(batch), encoded_rows)
    np.testing.assert_array_equal(preprocessor.transform_batch(list(batch)), encoded_rows)
    np.testing.assert_array_equal(preprocessor.encode_batch(batch), encoded_rows)


@each_preprocessor
def test_list_of_numbers_is_encoded_like_an_array(make_preprocessor, space):
    preprocessor = make_preprocessor()
    obs = draw_image(*space.shape)

    encoded = preprocessor.transform(obs.tolist())

    np.testing.assert_array_equal(encoded, preprocessor.transform(obs))


@each_preprocessor
def test_write_fills_its_slice_and_nothing_else(make_preprocessor, space):
    preprocessor = make_preprocessor()
    obs = draw_image(*space.shape)
    array = np.full(preprocessor.size + 5, 7, np.float32)

    preprocessor.write(obs, array, 2)

    np.testing.assert_array_equal(array[2:-3], preprocessor.transform(obs).ravel())
    np.testing.assert_array_equal(array[:2], 7)
    np.testing.assert_array_equal(array[-3:], 7)


@each_preprocessor
def test_pickled_preprocessor_encodes_the_same(make_preprocessor, space):
    preprocessor = make_preprocessor()
    obs = draw_image(*space.shape)

    copied = pickle.loads(pickle.dumps(preprocessor))

    np.testing.assert_array_equal(copied.transform(obs), preprocessor.transform(obs))


@each_preprocessor
def test_encodings_do_not_share_memory(make_preprocessor, space):
    preprocessor = make_preprocessor()
    obs = draw_image(*space.shape)

    first = preprocessor.transform(obs)
    second = preprocessor.transform(obs)

    assert not np.shares_memory(first, second)
    assert not np.shares_memory(first, obs)


@each_preprocessor
def test_leaf_is_numeric_and_covers_the_vector(make_preprocessor, space):
    preprocessor = make_preprocessor()

    [leaf] = preprocessor.leaves(3)

    assert leaf.start == 3
    assert leaf.stop == 3 + preprocessor.size
    assert leaf.shape == preprocessor.shape
    assert leaf.numeric


@pytest.fixture(params=["shape", "float", "text", "ragged"])
def make_wrong_obs(request):
    """Return an observation that does not fit a space of bytes."""

    def make(space):
        good = draw_image(*space.shape)
        wrong = {"shape": good[:-1], "float": good / 255, "text": "no", "ragged": [[1, 2], [3]]}
        return wrong[request.param]

    return make


@each_preprocessor
@pytest.mark.parametrize("check", ["first", "never"])
def test_wrong_observation_is_rejected(make_preprocessor, space, check, make_wrong_obs):
    preprocessor = make_preprocessor(check=check)

    with pytest.raises(ObservationError, match=r"expected Box.*found|cannot be stacked"):
        preprocessor.transform(make_wrong_obs(space))


@each_preprocessor
@pytest.mark.parametrize("check", ["first", "never"])
def test_wrong_observation_in_a_batch_is_rejected(make_preprocessor, space, check, make_wrong_obs):
    preprocessor = make_preprocessor(check=check)

    with pytest.raises(ObservationError, match=r"expected Box.*found|cannot be stacked"):
        preprocessor.transform_batch([make_wrong_obs(space)])


@each_preprocessor
@pytest.mark.parametrize(("value", "place"), [(256, 0), (-1, 3)], ids=["256", "negative"])
def test_integers_beyond_bytes_are_rejected(make_preprocessor, space, value, place):
    obs = draw_image(*space.shape).astype(np.int64)
    obs.flat[place] = value

    with pytest.raises(ObservationError, match="values within the bounds of the space") as caught:
        make_preprocessor().transform(obs)

    _, place_and_value = str(caught.value).split("at [")
    assert str(value) in place_and_value


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"), [("dim", 0), ("dim", 1.5), ("grayscale", "yes"), ("zero_mean", 2)]
)
def test_wrong_option_error_names_the_key(key, value):
    with pytest.raises(ConfigError, match=key):
        GenericPixelPreprocessor(SCREEN, {key: value})


def test_options_may_be_missing():
    assert GenericPixelPreprocessor(SCREEN).shape == (84, 84, 3)
    assert AtariRamPreprocessor(RAM).shape == (128,)


# --- chosen by name only --------------------------------------------------------------------------


@pytest.mark.parametrize("space", [SCREEN, RAM], ids=["screen", "ram"])
def test_preprocessors_of_atari_are_not_defaults(space):
    preprocessor = rlcatalog.default_catalog().preprocessor_for(space)

    assert preprocessor.part.name == "none"


@pytest.mark.parametrize(
    ("name", "obs_type", "options", "shape"),
    [
        ("generic_pixel", "rgb", {"dim": 12, "grayscale": True}, (12, 12, 1)),
        ("atari_ram", "ram", {}, (128,)),
    ],
)
def test_policy_has_the_preprocessor_that_its_config_names(name, obs_type, options, shape):
    env = gymnasium.make("ALE/Breakout-v5", obs_type=obs_type)

    policy = rlcatalog.build(env=env, config={"custom_preprocessor": name, **options})

    assert policy.preprocessor.part.name == name
    assert policy.preprocessor.shape == shape
    # The preprocessor needs the screens of the game, so the game is not wrapped.
    assert policy.wrap_env(env) is env
    obs, _ = env.reset(seed=0)
    [action] = policy.act(obs[None]).action
    assert env.action_space.contains(action)
