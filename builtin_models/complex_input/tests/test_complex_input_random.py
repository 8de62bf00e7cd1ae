"""Random nested spaces: by hand from raw observations, flat and as structures, in
both frameworks.
"""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import GraphInstance
from hypothesis import assume, given
from random_spaces import bounded, cases, dicts, lists, mixed_space, seeds, tuples

from rlcatalog import Request, SpaceInfo, restore_original_dimensions
from rlcatalog.errors import UnsupportedSpaceError

CONFIG = {"fcnet_hiddens": [4]}
some_space = mixed_space | lists(dicts(mixed_space) | tuples(lists(mixed_space)))


def tame(obs):
    """Cut numbers off at 9: they stay in their spaces, and sums of them stay exact enough to
    compare.
    """
    if isinstance(obs, dict):
        return {key: tame(value) for key, value in obs.items()}
    if isinstance(obs, GraphInstance):
        return GraphInstance(
            tame(obs.nodes), None if obs.edges is None else tame(obs.edges), obs.edge_links
        )
    if isinstance(obs, tuple | list):
        return type(obs)(tame(value) for value in obs)
    if isinstance(obs, np.ndarray) and obs.dtype.kind in "fiu":
        return np.clip(obs, -9 if obs.dtype.kind != "u" else 0, 9)
    return obs


def built(build, case, framework, **more):
    try:
        return build(case.space, {**CONFIG, **case.options, **more}, framework, None)
    except UnsupportedSpaceError:  # neither values nor lengths
        assume(False)
        raise


@bounded(40)
@given(cases(some_space), seeds)
def test_by_hand(build, run, by_hand, paths_of, assert_close, case, seed):
    model, preprocessor = built(build, case, "torch")
    paths = paths_of(case.space, case.options)
    observations = [tame(obs) for obs in case.samples(4, seed)]
    hand = by_hand(case.space, case.options, model.get_weights(), paths)
    truth = np.stack([hand.features(obs) for obs in observations])
    found, _ = run(model, preprocessor.transform_batch(observations))
    np.testing.assert_allclose(found, truth, rtol=1e-4, atol=1e-4)


@bounded(40)
@given(cases(some_space), seeds)
def test_observations_as_structures(build, run, convert, assert_close, case, seed):
    model, preprocessor = built(build, case, "torch")
    encoded = preprocessor.transform_batch([tame(obs) for obs in case.samples(3, seed)])
    expected = run(model, encoded)
    restored = restore_original_dimensions(encoded, preprocessor.observation_space)
    assert_close(run(model, restored), expected)
    assert_close(run(model, restored, obs_flat=convert(encoded, "torch")), expected)


@bounded(30)
@given(cases(some_space), seeds)
def test_integers_instead_of_one_hots(build, run, assert_close, case, seed):
    """With `_disable_preprocessor_api` Discrete parts arrive as integers; they become the same
    one-hots.
    """
    assume("Discrete" in repr(case.space))
    # These hold integers in their encoding.
    assume("OneOf" not in repr(case.space) and "Graph" not in repr(case.space))
    case = case.with_options(text_encoding="index")
    model, preprocessor = built(build, case, "torch")
    other, encoder = built(build, case, "torch", _disable_preprocessor_api=True)
    observations = [tame(obs) for obs in case.samples(3, seed)]
    expected = run(model, preprocessor.transform_batch(observations))
    encoded = encoder.transform_batch(observations)
    assert_close(run(other, encoded), expected)
    assert_close(
        run(other, restore_original_dimensions(encoded, encoder.observation_space)), expected
    )


@bounded(12)
@given(cases(some_space), seeds)
def test_the_frameworks_agree(build, run, assert_close, case, seed):
    first, preprocessor = built(build, case, "torch")
    second, _ = built(build, case, "tf")
    assert list(first.get_weights()) == list(second.get_weights())
    second.set_weights(first.get_weights())
    encoded = preprocessor.transform_batch([tame(obs) for obs in case.samples(3, seed)])
    expected = run(first, encoded)
    assert_close(run(second, encoded), expected)
    assert_close(
        run(second, restore_original_dimensions(encoded, preprocessor.observation_space)), expected
    )


@bounded(30)
@given(cases(some_space))
def test_described_widths_are_those_of_the_built_nets(build, catalog, case):
    model, preprocessor = built(build, case, "torch", post_fcnet_hiddens=[3])
    config = {**CONFIG, **case.options, "post_fcnet_hiddens": [3], "custom_model": "complex_input"}
    values = catalog.parse_config(config)
    component = catalog.registry.get("model", "complex_input")
    request = Request(
        SpaceInfo.read(case.space), None, values, "torch", preprocessor.shape, 2, catalog=catalog
    )
    stages = {stage.name: stage.shape for stage in component.declaration.describe(request)}
    assert stages["concatenated features"] == (model.hidden.layers[0].in_features,)
    assert stages["post_fcnet 1 (relu)"] == (3,)
    parts = [net.num_outputs for net in model.nets]
    assert [shape for name, shape in stages.items() if "fcnet: hidden" in name] == [
        (width,) for width in parts
    ]


def test_the_spaces_have_what_they_should():
    """The properties above see lists, integers and parts that are read from the encoding."""
    kinds, seen = ("Repeated(", "Sequence(", "Graph(", "OneOf", "Text(", "Discrete("), set()

    @bounded(40)
    @given(cases(some_space))
    def look(case):
        seen.update(kind for kind in kinds if kind in repr(case.space))

    look()
    assert seen == set(kinds)
