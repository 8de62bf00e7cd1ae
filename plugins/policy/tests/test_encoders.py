"""Encoders: encoded observations, filters, action masks, and hints about single observations."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import Filter, FilterSpec, Preprocessor
from rlcatalog.actions import ActionMasks
from rlcatalog.errors import ActionMaskError, NonFiniteError, ObservationError
from rlcatalog_policy import Encoder, with_batch_hint

TWO_NUMBERS = spaces.Box(-1, 1, (2,), np.float32)
THREE_ACTIONS = spaces.Discrete(3)
WITH_MASK = spaces.Dict({"action_mask": spaces.MultiBinary(3), "x": TWO_NUMBERS})
SMALL = {"fcnet_hiddens": [3]}
TWO_OBS = np.float32([[0.5, -1], [0.25, 0]])


class DoublingFilter(Filter):
    """Doubles observations, turns NaN into 0, and stores the rows from which it learned."""

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
def make_encoder(catalog, module):
    """Make an encoder for a space: `make_encoder(space, config, filters=…)`."""
    module(DoublingFilter=DoublingFilter)
    catalog.register(FilterSpec("doubling", {"numpy": "made_up_parts:DoublingFilter"}, "doubles"))

    def make(space, config=None, **options):
        resolution = catalog.resolve(space, THREE_ACTIONS, config or {}, "torch")
        return Encoder(catalog, resolution, **options)

    return make


@pytest.fixture
def plain_encoder(make_encoder):
    """An encoder of two numbers, without filter and masks."""
    return make_encoder(TWO_NUMBERS)


@pytest.fixture
def doubling_encoder(make_encoder):
    """An encoder of two numbers with a filter that doubles them."""
    return make_encoder(TWO_NUMBERS, {"observation_filter": "doubling"}, filters=True)


@pytest.fixture
def mask_encoder(make_encoder):
    """An encoder of two numbers with an action mask."""
    return make_encoder(WITH_MASK)


def batch_with_mask(mask):
    """Return two observations with these masks."""
    return {"action_mask": np.array(mask, np.int8), "x": np.float32([[0.5, -1], [0.25, 0]])}


def obs_with_mask(mask):
    return {"action_mask": np.array(mask, np.int8), "x": np.float32([0.5, -1])}


# --- beside a policy ------------------------------------------------------------------------------

WITH_MASK_AND_KIND = spaces.Dict(
    {"action_mask": spaces.MultiBinary(3), "x": TWO_NUMBERS, "kind": spaces.Discrete(2)}
)


def test_encoder_encodes_as_the_policy_does(catalog):
    policy = rlcatalog.build(WITH_MASK_AND_KIND, THREE_ACTIONS, SMALL, "torch", catalog=catalog)
    encoder = Encoder(catalog, policy.resolution)
    obs = {"action_mask": np.int8([1, 0, 1]), "x": np.float32([0.5, -1]), "kind": 1}

    encoded = encoder.encode(obs)

    # The entries are in the order of their keys: "kind", which is one-hot, then "x".
    np.testing.assert_allclose(encoded, [0, 1, 0.5, -1], atol=1e-7)
    np.testing.assert_array_equal(policy.preprocess([obs]), [encoded])


def test_policy_encodes_a_batch_and_returns_its_masks(catalog):
    policy = rlcatalog.build(WITH_MASK_AND_KIND, THREE_ACTIONS, SMALL, "torch", catalog=catalog)
    batch = {
        "action_mask": np.int8([[1, 0, 1], [0, 1, 0]]),
        "kind": np.array([1, 0]),
        "x": np.float32([[0.5, -1], [0.25, 0]]),
    }

    # "kind" is one-hot and comes before "x"; the mask is not a part of the encoded observation.
    assert policy.preprocess(batch).tolist() == [[0, 1, 0.5, -1], [1, 0, 0.25, 0]]
    assert policy.action_mask(batch).tolist() == [[True, False, True], [False, True, False]]


# --- filters --------------------------------------------------------------------------------------


def test_filter_is_only_created_on_request(make_encoder):
    assert make_encoder(TWO_NUMBERS, {"observation_filter": "doubling"}).filter is None


def test_filter_is_only_created_if_the_config_names_one(make_encoder):
    encoder = make_encoder(TWO_NUMBERS, filters=True)

    assert encoder.filter is None
    assert encoder.space == TWO_NUMBERS


def test_encoder_has_the_space_of_its_filter(doubling_encoder):
    assert type(doubling_encoder.filter) is DoublingFilter
    assert doubling_encoder.space == spaces.Box(-2, 2, (2,))


def test_encode_batch_filters_observations(doubling_encoder):
    encoded_batch = doubling_encoder.encode_batch(np.float32([[0.5, -1], [0.25, 0]]))

    assert encoded_batch.obs.tolist() == [[1, -2], [0.5, 0]]
    assert encoded_batch.mask is None


def test_transform_batch_does_not_filter(doubling_encoder):
    np.testing.assert_array_equal(doubling_encoder.transform_batch(TWO_OBS), TWO_OBS)


@pytest.mark.parametrize(
    ("update", "learned"),
    [
        pytest.param(False, [], id="false"),
        pytest.param(True, [[[0.5, -1], [0.25, 0]]], id="true"),
        pytest.param(np.bool_(True), [[[0.5, -1], [0.25, 0]]], id="numpy-true"),
        pytest.param(np.array([False, True]), [[[0.25, 0]]], id="second-row"),
        pytest.param(np.array([False, False]), [], id="no-row"),
        pytest.param(np.array([True, True]), [[[0.5, -1], [0.25, 0]]], id="each-row"),
        pytest.param([True, False], [[[0.5, -1]]], id="list"),
    ],
)
def test_filter_learns_from_the_selected_rows(doubling_encoder, update, learned):
    encoded = np.float32([[0.5, -1], [0.25, 0]])

    filtered = doubling_encoder.filter_batch(encoded, update)

    assert filtered.tolist() == [[1, -2], [0.5, 0]]
    assert doubling_encoder.filter.learned == learned


def test_nan_is_rejected_before_the_filter(doubling_encoder):
    # The filter would turn the NaN into 0.
    with pytest.raises(NonFiniteError, match=r"row 1 of 2: its obs.* NaN at obs\[0\]"):
        doubling_encoder.encode_batch(np.float32([[0, 0], [np.nan, 0]]))


@pytest.mark.parametrize("encoder", ["plain_encoder", "doubling_encoder"])
def test_transform_batch_rejects_nan(request, encoder):
    with pytest.raises(NonFiniteError, match="row 1 of 2"):
        request.getfixturevalue(encoder).transform_batch(np.float32([[0, 0], [np.nan, 0]]))


@pytest.mark.parametrize("encoder", ["plain_encoder", "doubling_encoder"])
def test_encode_rejects_nan(request, encoder):
    encoder = request.getfixturevalue(encoder)
    encoder.encode(np.float32([0, 0]))  # only the first observation is compared with its space

    with pytest.raises(NonFiniteError, match="row 0 of 1"):
        encoder.encode(np.float32([np.nan, 0]))


def test_encode_batch_without_filter_passes_nan_on(plain_encoder):
    encoded_batch = plain_encoder.encode_batch(np.float32([[0, 0], [np.nan, 0]]))

    # The policy, which acts on it, rejects it.
    assert np.isnan(encoded_batch.obs[1, 0])


# --- masks in observations ------------------------------------------------------------------------


def test_mask_is_removed_from_what_the_preprocessor_sees(mask_encoder):
    batch = batch_with_mask([[1, 0, 1], [1, 0, 1]])

    assert mask_encoder.removes_mask
    assert set(mask_encoder.preprocessor_input(batch)) == {"x"}


def test_mask_is_taken_from_the_observations(mask_encoder):
    encoded_batch = mask_encoder.encode_batch(batch_with_mask([[1, 0, 1], [0, 1, 0]]))

    np.testing.assert_array_equal(encoded_batch.obs, TWO_OBS)
    assert encoded_batch.mask.dtype == np.bool_
    assert encoded_batch.mask.tolist() == [[True, False, True], [False, True, False]]


def test_mask_is_taken_from_a_list_of_observations(mask_encoder):
    encoded_batch = mask_encoder.encode_batch([obs_with_mask([1, 1, 1]), obs_with_mask([1, 0, 1])])

    assert encoded_batch.mask.tolist() == [[True, True, True], [True, False, True]]


@pytest.mark.parametrize(
    "own_mask",
    [[[1, 0, 1], [0, 1, 0]], [[0, 0, 0], [0, 0, 0]]],
    ids=["valid", "forbids-everything"],
)
def test_passed_mask_replaces_the_one_in_observations(mask_encoder, own_mask):
    passed_mask = np.array([[0, 0, 1], [1, 0, 0]])

    encoded_batch = mask_encoder.encode_batch(batch_with_mask(own_mask), passed_mask)

    np.testing.assert_array_equal(encoded_batch.obs, TWO_OBS)
    assert encoded_batch.mask.tolist() == [[False, False, True], [True, False, False]]


@pytest.mark.parametrize("shape", [(1, 3), (3, 3), (2, 4)], ids=str)
def test_passed_mask_of_another_shape_is_an_error(mask_encoder, shape):
    batch = batch_with_mask([[1, 0, 1], [0, 1, 0]])

    with pytest.raises(ActionMaskError, match=r"expected shape \(2, 3\)"):
        mask_encoder.encode_batch(batch, np.ones(shape))


def test_mask_in_observations_has_a_row_for_each(mask_encoder):
    mask_of_one_row = [[1, 0, 1]]

    with pytest.raises(ActionMaskError, match=r"shape \(2, 3\); found shape \(1, 3\)"):
        mask_encoder.encode_batch(batch_with_mask(mask_of_one_row))


def test_observations_without_mask_have_none(plain_encoder):
    assert not plain_encoder.removes_mask
    assert plain_encoder.preprocessor_input(TWO_OBS) is TWO_OBS
    assert plain_encoder.encode_batch(TWO_OBS).mask is None


def test_mask_may_be_passed_for_observations_without_mask(plain_encoder):
    encoded_batch = plain_encoder.encode_batch(TWO_OBS, np.array([[0, 1, 1], [1, 0, 0]]))

    assert encoded_batch.mask.tolist() == [[False, True, True], [True, False, False]]


class ReadsMask(Preprocessor):
    """Is given the mask, but encodes only the entry `x`."""

    def _init_shape(self, obs_space, options):
        return (2,)

    def transform(self, observation):
        assert set(observation) == {"action_mask", "x"}, observation
        return np.asarray(observation["x"], np.float32)


@pytest.fixture
def encoder_that_reads_mask(catalog):
    """An encoder whose preprocessor asserts that it is given the mask."""
    catalog.register_preprocessor("reads_mask", ReadsMask)
    config = {"custom_preprocessor": "reads_mask"}
    return Encoder(catalog, catalog.resolve(WITH_MASK, THREE_ACTIONS, config, "torch"))


def test_custom_preprocessor_is_given_the_mask(encoder_that_reads_mask):
    obs = obs_with_mask([1, 1, 1])

    assert not encoder_that_reads_mask.removes_mask
    assert encoder_that_reads_mask.preprocessor_input(obs) is obs


def test_mask_counts_even_if_a_preprocessor_sees_it(encoder_that_reads_mask):
    batch = batch_with_mask([[1, 0, 1], [0, 1, 0]])

    encoded_batch = encoder_that_reads_mask.encode_batch(batch)

    np.testing.assert_array_equal(encoded_batch.obs, TWO_OBS)
    assert encoded_batch.mask.tolist() == [[True, False, True], [False, True, False]]


@pytest.fixture
def mask_checks(monkeypatch):
    """A list with an entry for each check of action masks."""
    checks = []
    real_matrix = ActionMasks.matrix

    def matrix(self, *arguments, **options):
        checks.append("matrix")
        return real_matrix(self, *arguments, **options)

    monkeypatch.setattr(ActionMasks, "matrix", matrix)
    return checks


def test_act_checks_masks_of_observations_once(catalog, mask_checks):
    policy = rlcatalog.build(WITH_MASK, THREE_ACTIONS, SMALL, "torch", catalog=catalog)
    mask_checks.clear()  # building a policy checks one, too

    step = policy.act(batch_with_mask([[0, 0, 1], [0, 1, 0]]), explore=False)

    assert step.action.tolist() == [2, 1]  # the only actions that the mask allows
    assert len(mask_checks) == 1


def test_act_checks_a_passed_mask_once(catalog, mask_checks):
    policy = rlcatalog.build(WITH_MASK, THREE_ACTIONS, SMALL, "torch", catalog=catalog)
    mask_checks.clear()  # building a policy checks one, too
    passed_mask = np.array([[1, 0, 0], [1, 0, 0]])

    policy.act(batch_with_mask([[0, 0, 1], [0, 1, 0]]), mask=passed_mask)

    assert len(mask_checks) == 1


# --- the mask of one observation ------------------------------------------------------------------


@pytest.mark.parametrize("passed_mask", [None, np.array([0, 1, 0])], ids=["none", "passed"])
@pytest.mark.parametrize("over", [False, True], ids=["running", "over"])
def test_mask_of_an_observation_is_its_own(mask_encoder, passed_mask, over):
    mask = mask_encoder.mask_of(obs_with_mask([1, 0, 1]), passed_mask, over=over)

    assert mask.tolist() == [True, False, True]


def test_mask_of_an_observation_without_one_is_the_passed(plain_encoder):
    mask = plain_encoder.mask_of(TWO_OBS[0], np.array([0, 1, 0]))

    assert mask.tolist() == [False, True, False]


def test_mask_of_nothing_allows_everything_at_the_end(mask_encoder):
    mask = mask_encoder.mask_of(obs_with_mask([0, 0, 0]), over=True)

    assert mask.tolist() == [True, True, True]


def test_passed_mask_of_nothing_allows_everything_at_the_end(plain_encoder):
    mask = plain_encoder.mask_of(TWO_OBS[0], np.array([0, 0, 0]), over=True)

    assert mask.tolist() == [True, True, True]


@pytest.mark.parametrize("options", [{}, {"over": False}], ids=["default", "over=False"])
def test_mask_of_an_observation_allows_an_action(mask_encoder, options):
    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        mask_encoder.mask_of(obs_with_mask([0, 0, 0]), **options)


def test_passed_mask_of_an_observation_allows_an_action(plain_encoder):
    with pytest.raises(ActionMaskError, match="allows no action"):
        plain_encoder.mask_of(TWO_OBS[0], np.array([0, 0, 0]))


# --- masks of encoded observations ----------------------------------------------------------------


def test_encoded_observations_need_no_mask(plain_encoder):
    assert plain_encoder.resolve_mask(TWO_OBS) is None


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param(np.array([[1, 0, 1], [0, 1, 0]]), id="array"),
        pytest.param([[1, 0, 1], [0, 1, 0]], id="list"),
        pytest.param([np.array([1, 0, 1]), np.array([0, 1, 0])], id="list-of-arrays"),
    ],
)
def test_mask_of_encoded_observations_becomes_booleans(plain_encoder, mask):
    matrix = plain_encoder.resolve_mask(TWO_OBS, mask)

    assert matrix.dtype == np.bool_
    assert matrix.tolist() == [[True, False, True], [False, True, False]]


to_tensors = pytest.mark.parametrize(
    "to_tensor", [torch.as_tensor, tf.convert_to_tensor], ids=["torch", "tf"]
)


@to_tensors
def test_mask_tensor_stays_a_tensor(plain_encoder, to_tensor):
    mask = to_tensor(np.array([[True, False, True], [False, True, False]]))

    assert plain_encoder.resolve_mask(to_tensor(TWO_OBS), mask) is mask


wrong_shapes = pytest.mark.parametrize("shape", [(1, 3), (2, 2)], ids=["rows", "columns"])


@to_tensors
@wrong_shapes
def test_mask_tensor_of_another_shape_is_an_error(plain_encoder, to_tensor, shape):
    mask = to_tensor(np.ones(shape, bool))

    with pytest.raises(ActionMaskError, match=r"^mask: expected shape \(2, 3\), as Pol"):
        plain_encoder.resolve_mask(to_tensor(TWO_OBS), mask)


@pytest.mark.parametrize("shape", [(2,), (2, 1), (1, 2, 2)], ids=str)
def test_encoded_observations_of_another_shape_are_an_error(plain_encoder, shape):
    with pytest.raises(ObservationError, match=r"encoded observations of shape \[B, 2\]"):
        plain_encoder.resolve_mask(np.zeros(shape, np.float32))


# --- hints ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error_class", [ObservationError, ActionMaskError])
def test_single_observation_gets_a_hint(plain_encoder, error_class):
    error = error_class("wrong.")
    single_obs = np.float32([0.5, -1])

    assert with_batch_hint(error, plain_encoder.preprocessor, single_obs) is error
    assert str(error) == "wrong. This is a single observation: pass a batch of one, [obs]."


@pytest.mark.parametrize("error_class", [ObservationError, ActionMaskError])
@pytest.mark.parametrize("obs", [TWO_OBS, "text", None], ids=["batch", "text", "none"])
def test_other_values_get_no_hint(plain_encoder, error_class, obs):
    error = error_class("wrong.")

    assert with_batch_hint(error, plain_encoder.preprocessor, obs) is error
    assert str(error) == "wrong."


class ExitingPreprocessor(Preprocessor):
    """Raises what no check should raise."""

    def _init_shape(self, obs_space, options):
        return (2,)

    def transform(self, observation):
        return observation

    def check(self, obs):
        raise SystemExit


def test_check_that_exits_gives_no_hint():
    error = ObservationError("wrong.")

    with_batch_hint(error, ExitingPreprocessor(TWO_NUMBERS, {}), TWO_OBS[0])

    assert str(error) == "wrong."
