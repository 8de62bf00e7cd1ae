"""The complex-input network for random nested spaces: NumPy, structures, frameworks, widths."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import GraphInstance
from hypothesis import assume, given
from model_runs import assert_close, run_model
from random_spaces import bounded, cases, dicts, lists, mixed_space, seeds, tuples

from rlcatalog import restore_original_dimensions
from rlcatalog.errors import UnsupportedSpaceError

some_space = mixed_space | lists(dicts(mixed_space) | tuples(lists(mixed_space)))


def clip(obs):
    """Return an observation whose numbers are at most 9.

    They stay in their spaces, and sums of them stay exact enough to compare.
    """
    if isinstance(obs, dict):
        return {key: clip(value) for key, value in obs.items()}
    if isinstance(obs, GraphInstance):
        edges = None if obs.edges is None else clip(obs.edges)
        return GraphInstance(clip(obs.nodes), edges, obs.edge_links)
    if isinstance(obs, tuple | list):
        return type(obs)(clip(value) for value in obs)
    if isinstance(obs, np.ndarray) and obs.dtype.kind == "u":
        return np.clip(obs, 0, 9)
    if isinstance(obs, np.ndarray) and obs.dtype.kind in "fi":
        return np.clip(obs, -9, 9)
    return obs


def draw_observations(case, count, seed):
    return [clip(obs) for obs in case.samples(count, seed)]


@pytest.fixture
def build_trunk(build_model):
    """Build a trunk with random weights for a random space; return it and its preprocessor."""

    def build(case, framework="torch", **config):
        config = {"fcnet_hiddens": [4], **case.options, **config}
        try:
            return build_model(case.space, config, framework, num_outputs=None)
        except UnsupportedSpaceError:
            # A space without values and lists: Hypothesis draws another one.
            assume(False)
            raise

    return build


@bounded(40)
@given(cases(some_space), seeds)
def test_trunk_matches_numpy(build_trunk, build_numpy_network, case, seed):
    model, preprocessor = build_trunk(case)
    observations = draw_observations(case, 4, seed)

    results = run_model(model, preprocessor.transform_batch(observations))

    network = build_numpy_network(case, model.get_weights())
    assert_close(results.outputs, network.compute_features(observations), tolerance=1e-4)


@bounded(40)
@given(cases(some_space), seeds)
def test_structured_observations_match_flat_ones(build_trunk, case, seed):
    model, preprocessor = build_trunk(case)
    flat = preprocessor.transform_batch(draw_observations(case, 3, seed))

    structured = restore_original_dimensions(flat, preprocessor.observation_space)

    expected = run_model(model, flat)
    assert_close(run_model(model, structured).outputs, expected.outputs)
    assert_close(run_model(model, structured, obs_flat=flat).outputs, expected.outputs)


@bounded(30)
@given(cases(some_space), seeds)
def test_integers_match_their_one_hots(build_trunk, case, seed):
    assume("Discrete" in repr(case.space))
    # The encodings of OneOf and Graph contain integers in any case.
    assume("OneOf" not in repr(case.space))
    assume("Graph" not in repr(case.space))
    case = case.with_options(text_encoding="index")
    model, preprocessor = build_trunk(case)
    # With this key, integers reach the model as they are.
    integer_model, integer_preprocessor = build_trunk(case, _disable_preprocessor_api=True)
    integer_model.set_weights(model.get_weights())
    observations = draw_observations(case, 3, seed)

    integers = integer_preprocessor.transform_batch(observations)

    expected = run_model(model, preprocessor.transform_batch(observations))
    structured = restore_original_dimensions(integers, integer_preprocessor.observation_space)
    assert_close(run_model(integer_model, integers).outputs, expected.outputs)
    assert_close(run_model(integer_model, structured).outputs, expected.outputs)


@bounded(12)
@given(cases(some_space), seeds)
def test_frameworks_agree_after_weights_are_copied(build_trunk, case, seed):
    torch_model, preprocessor = build_trunk(case, "torch")
    tf_model, _ = build_trunk(case, "tf")
    flat = preprocessor.transform_batch(draw_observations(case, 3, seed))
    structured = restore_original_dimensions(flat, preprocessor.observation_space)

    tf_model.set_weights(torch_model.get_weights())

    expected = run_model(torch_model, flat)
    assert_close(run_model(tf_model, flat).outputs, expected.outputs)
    assert_close(run_model(tf_model, structured).outputs, expected.outputs)
