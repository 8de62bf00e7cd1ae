"""Encoders: what they make of observations and masks, what a filter learns, and which hints they
give.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog import Filter, FilterSpec, Preprocessor
from rlcatalog.errors import ActionMaskError, NonFiniteError, ObservationError
from rlcatalog_policy import Encoder, with_batch_hint

TWO, THREE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
MASKED = spaces.Dict({"action_mask": spaces.MultiBinary(3), "x": TWO})


class Doubling(Filter):
    """Doubles observations, and notes from which rows it learned."""

    def __init__(self, preprocessor, options):
        super().__init__(preprocessor, options)
        self.learned = []

    def __call__(self, encoded, *, update=False):
        if update:
            self.learned.append(encoded.tolist())
        return np.nan_to_num(2 * encoded)

    def processed_space(self, preprocessor):
        return spaces.Box(-2, 2, preprocessor.shape)


@pytest.fixture
def encoder_of(catalog, module):
    """Make an encoder: `encoder_of(space, config, filters=…)`."""
    module(Doubling=Doubling)
    catalog.register(FilterSpec("doubling", {"numpy": "made_up_parts:Doubling"}, "doubles"))

    def make(space, config=None, **options):
        return Encoder(catalog, catalog.resolve(space, THREE, config or {}, "torch"), **options)

    return make


@pytest.fixture
def filtering(encoder_of):
    return encoder_of(TWO, {"observation_filter": "doubling"}, filters=True)


ROWS = np.float32([[0.5, -1], [0.25, 0]])


def observations(mask):
    return {"action_mask": np.array(mask, np.int8), "x": ROWS}


# --- filters --------------------------------------------------------------------------------------


def test_filter_is_made_on_request(encoder_of, filtering):
    assert encoder_of(TWO, {"observation_filter": "doubling"}).filter is None
    assert encoder_of(TWO, filters=True).filter is None
    assert encoder_of(TWO, filters=True).space == encoder_of(TWO).space == TWO
    assert type(filtering.filter) is Doubling
    assert filtering.space == spaces.Box(-2, 2, (2,))
    encoded, mask = filtering.encode_batch(ROWS)
    np.testing.assert_array_equal(encoded, 2 * ROWS)
    assert mask is None
    np.testing.assert_array_equal(encoder_of(TWO).encode_batch(ROWS)[0], ROWS)
    np.testing.assert_array_equal(filtering.transform_batch(ROWS), ROWS)


@pytest.mark.parametrize(
    ("update", "learned"),
    [
        (False, []),
        (True, [ROWS.tolist()]),
        (np.bool_(True), [ROWS.tolist()]),
        (np.array([False, True]), [[[0.25, 0]]]),
        (np.array([False, False]), []),
        (np.array([True, True]), [ROWS.tolist()]),
        ([True, False], [[[0.5, -1]]]),
    ],
    ids=str,
)
def test_filter_learns_from_the_rows_it_is_told(filtering, update, learned):
    np.testing.assert_array_equal(filtering.filter_batch(ROWS, update), 2 * ROWS)
    assert filtering.filter.learned == learned


def test_filter_does_not_hide_what_is_not_finite(encoder_of, filtering):
    wrong = np.float32([[0, 0], [np.nan, 0]])
    with pytest.raises(NonFiniteError, match=r"row 1 of 2: its observation .* NaN at obs\[0\]"):
        filtering.encode_batch(wrong)
    for encoder in (filtering, encoder_of(TWO)):
        with pytest.raises(NonFiniteError, match="row 1 of 2"):
            encoder.transform_batch(wrong)
        with pytest.raises(NonFiniteError, match="row 0 of 1"):
            encoder.encode(wrong[1])
    encoded, _ = encoder_of(TWO).encode_batch(wrong)  # the step that follows checks it
    assert np.isnan(encoded[1, 0])


# --- masks ----------------------------------------------------------------------------------------


def test_mask_is_taken_from_observations_or_from_elsewhere(encoder_of):
    encoder = encoder_of(MASKED)
    assert encoder.mask_apart
    assert set(encoder.seen(observations([[1, 0, 1]] * 2))) == {"x"}
    own = [[1, 0, 1], [0, 1, 0]]
    encoded, mask = encoder.encode_batch(observations(own))
    assert mask.dtype == np.bool_
    assert mask.tolist() == np.array(own, bool).tolist()
    assert encoder.encode_batch([{"action_mask": np.ones(3, np.int8), "x": row} for row in ROWS])[
        1
    ].all()
    other = [[0, 0, 1], [1, 0, 0]]
    given, mask = encoder.encode_batch(observations(own), np.array(other))
    assert mask.tolist() == np.array(other, bool).tolist()
    np.testing.assert_array_equal(given, encoded)
    # a mask from elsewhere is all that counts: what the observations have there is not looked at
    assert (
        encoder.encode_batch(observations([[0, 0, 0], [0, 0, 0]]), np.array(other))[1].tolist()
        == mask.tolist()
    )
    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        encoder.encode_batch(observations([[1, 0, 0], [0, 0, 0]]))
    for wrong in (np.ones((1, 3)), np.ones((3, 3)), np.ones((2, 4))):
        with pytest.raises(ActionMaskError, match=r"expected shape \(2, 3\)"):
            encoder.encode_batch(observations(own), wrong)
    with pytest.raises(ActionMaskError, match=r"expected shape \(2, 3\); found shape \(1, 3\)"):
        encoder.encode_batch(observations([[1, 0, 1]]))


def test_observation_without_a_mask_takes_one(encoder_of):
    encoder = encoder_of(TWO)
    assert not encoder.mask_apart
    assert encoder.seen(ROWS) is ROWS
    assert encoder.encode_batch(ROWS)[1] is None
    assert encoder.encode_batch(ROWS, np.array([[0, 1, 1], [1, 0, 0]]))[1].tolist() == [
        [False, True, True],
        [True, False, False],
    ]


class X(Preprocessor):
    """Shows only the entry `x` of observations whose mask is left to the policy."""

    def _init_shape(self, obs_space, options):
        return (2,)

    def transform(self, observation):
        assert set(observation) == {"action_mask", "x"}, observation
        return np.asarray(observation["x"], np.float32)


def test_preprocessor_that_sees_the_mask_is_given_it(catalog):
    catalog.register_preprocessor("x", X)
    config = {"custom_preprocessor": "x"}
    encoder = Encoder(catalog, catalog.resolve(MASKED, THREE, config, "torch"))
    encoded, mask = encoder.encode_batch(observations([[1, 0, 1], [0, 1, 0]]))
    np.testing.assert_array_equal(encoded, ROWS)
    assert mask.tolist() == [[True, False, True], [False, True, False]]
    one = {"action_mask": np.ones(3, np.int8), "x": ROWS[0]}
    assert not encoder.mask_apart
    assert encoder.seen(one) is one


def test_mask_of_one_observation(encoder_of):
    encoder = encoder_of(MASKED)
    one, nothing = (
        {"action_mask": np.array(mask, np.int8), "x": ROWS[0]} for mask in ([1, 0, 1], [0, 0, 0])
    )
    for over in (False, True):
        assert encoder.mask_of(one, over=over).tolist() == [True, False, True]
        assert encoder.mask_of(one, np.array([0, 1, 0]), over=over).tolist() == [True, False, True]
    assert encoder.mask_of(nothing, over=True).tolist() == [True, True, True]
    for call in (lambda: encoder.mask_of(nothing), lambda: encoder.mask_of(nothing, over=False)):
        with pytest.raises(ActionMaskError, match="row 0 allows no action"):
            call()
    apart = encoder_of(TWO)
    assert apart.mask_of(ROWS[0], np.array([0, 1, 0])).tolist() == [False, True, False]
    assert apart.mask_of(ROWS[0], np.zeros(3), over=True).all()
    with pytest.raises(ActionMaskError, match="allows no action"):
        apart.mask_of(ROWS[0], np.zeros(3))


def test_masks_of_encoded_observations_stay_what_they_are(encoder_of):
    encoder, mask = encoder_of(TWO), np.array([[1, 0, 1], [0, 1, 0]])
    assert encoder.resolve_mask(ROWS) is None
    for given in (mask, mask.tolist(), list(mask)):
        matrix = encoder.resolve_mask(ROWS, given)
        assert matrix.dtype == np.bool_
        assert matrix.tolist() == mask.astype(bool).tolist()
    for convert in (torch.as_tensor, tf.convert_to_tensor):
        tensor = convert(mask.astype(bool))
        assert encoder.resolve_mask(convert(ROWS), tensor) is tensor
        for wrong in (mask[:1], mask[:, :2]):
            with pytest.raises(
                ActionMaskError, match=r"^mask: expected shape \(2, 3\), as Policy\.action_mask"
            ):
                encoder.resolve_mask(convert(ROWS), convert(wrong))
    for wrong in (mask[:1], mask[:, :2], mask[:1].tolist()):
        with pytest.raises(ActionMaskError, match=r"expected shape \(2, 3\); found shape"):
            encoder.resolve_mask(ROWS, wrong)
    for wrong in (ROWS[0], ROWS[:, :1], ROWS[None]):
        with pytest.raises(
            ObservationError, match=r"^expected encoded observations of shape \[B, 2\]"
        ):
            encoder.resolve_mask(wrong)


# --- hints ----------------------------------------------------------------------------------------


def test_single_observation_gets_a_hint_and_others_get_none(encoder_of):
    preprocessor = encoder_of(TWO).preprocessor
    hint = " This is a single observation: pass a batch of one, [obs]."
    for kind in (ObservationError, ActionMaskError):
        for obs, end in ((ROWS[0], hint), (ROWS, ""), ("text", ""), (None, "")):
            error = kind("wrong.")
            assert with_batch_hint(error, preprocessor, obs) is error
            assert str(error) == f"wrong.{end}"
    for call in (encoder_of(TWO).encode_batch, encoder_of(TWO).transform_batch):
        with pytest.raises(ObservationError, match=r"This is a single observation"):
            call(ROWS[0])
        with pytest.raises(ObservationError) as caught:
            call("text")
        assert "single observation" not in str(caught.value)


class Exits(Preprocessor):
    """Raises what no check should raise."""

    def _init_shape(self, obs_space, options):
        return (2,)

    def transform(self, observation):
        return observation

    def check(self, obs):
        raise SystemExit


def test_check_that_fails_in_any_way_gives_no_hint():
    error = ObservationError("wrong.")
    assert str(with_batch_hint(error, Exits(TWO, {}), ROWS[0])) == "wrong."
