"""What stands in the empty places of lists reaches neither outputs nor gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from random_spaces import Case

from rlcatalog import restore_original_dimensions
from rlcatalog.spaces import Repeated

FRAMEWORKS = ["torch", "tf"]
ITEM = spaces.Dict(
    {
        "map": spaces.Box(-1, 1, (2, 2, 1), np.float32),
        "in": Repeated(spaces.Box(-1, 1, (2,), np.float32), 2),
        "gear": spaces.Discrete(3),
        "word": spaces.Text(2, charset="ab"),
    }
)
SPACE = spaces.Dict({"units": Repeated(ITEM, 3), "speed": spaces.Box(-1, 1, (2,), np.float32)})
CONFIG = {"fcnet_hiddens": [5], "post_fcnet_hiddens": [4], "post_fcnet_activation": "tanh"}


def spoiled(encoded, preprocessor, garbage):
    """Observations with garbage in the empty places; the lists in empty places get garbage as
    lengths, too.
    """
    encoded = np.array(encoded)
    leaves = {leaf.path: leaf for leaf in preprocessor.leaves()}
    units = leaves["obs['units'][:]"]
    (codec,) = preprocessor.children[preprocessor.info.keys.index("units")].children
    inner = {leaf.path: leaf for leaf in codec.leaves()}
    lengths, places = inner["obs['units'][:]['in'].lengths"], inner["obs['units'][:]['in'][:]"]
    counts = encoded[:, leaves["obs['units'].lengths"].start].astype(int)
    blocks = encoded[:, units.start : units.stop].reshape(len(encoded), *units.shape).copy()
    for items, count in zip(blocks, counts, strict=True):
        items[count:] = garbage
        for item in items[:count]:
            item[places.start : places.stop].reshape(places.shape)[int(item[lengths.start]) :] = (
                garbage
            )
    encoded[:, units.start : units.stop] = blocks.reshape(len(encoded), -1)
    return encoded


@pytest.fixture
def batch(build):
    """Return a model, its preprocessor and observations: full and empty lists among them."""

    def batch(framework, **more):
        model, preprocessor = build(SPACE, {**CONFIG, **more}, framework)
        observations = Case(SPACE).samples(12, seed=4)
        assert {len(obs["units"]) for obs in observations} == {0, 1, 2, 3}
        assert {len(unit["in"]) for obs in observations for unit in obs["units"]} == {0, 1, 2}
        return model, preprocessor, preprocessor.transform_batch(observations)

    return batch


def loss_and_gradients(model, obs, convert):
    variables = model.trainable_variables(as_dict=True)
    x = convert(obs, model.framework)
    if model.framework == "torch":
        loss = model({"obs": x})[0].square().sum() + model.value_function().square().sum()
        return loss.item(), [g.numpy() for g in torch.autograd.grad(loss, list(variables.values()))]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model({"obs": x})[0] ** 2) + tf.reduce_sum(model.value_function() ** 2)
    return loss.numpy(), [g.numpy() for g in tape.gradient(loss, list(variables.values()))]


@pytest.mark.grid
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("garbage", [1.0, -1e30, np.inf, np.nan])
@pytest.mark.parametrize("structured", [False, True])
def test_empty_places_do_not_matter(
    framework, garbage, structured, batch, run, convert, assert_close
):
    model, preprocessor, encoded = batch(framework)
    changed = spoiled(encoded, preprocessor, garbage)
    assert not np.array_equal(changed, encoded)
    if structured:
        changed = restore_original_dimensions(changed, preprocessor.observation_space)
    for found, expected in zip(run(model, changed), run(model, encoded), strict=True):
        np.testing.assert_array_equal(found, expected)
    loss, found = loss_and_gradients(model, changed, convert)
    truth, expected = loss_and_gradients(model, encoded, convert)
    assert loss == truth
    for one, other in zip(found, expected, strict=True):
        assert np.isfinite(other).all()
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_taken_places_do_matter(batch, run):
    model, preprocessor, encoded = batch("torch")
    start = {leaf.path: leaf.start for leaf in preprocessor.leaves()}["obs['units'][:]"]
    changed = encoded.copy()
    changed[:, start] += 1  # the first value of the first item
    differ = (run(model, changed)[0] != run(model, encoded)[0]).any(axis=1)
    lengths = encoded[:, start - 1]
    np.testing.assert_array_equal(differ, lengths > 0)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_order_of_items_does_not_matter_and_their_number_does(framework, build, run):
    space = spaces.Tuple((Repeated(spaces.Box(-1, 1, (2,), np.float32), 4),))
    model, preprocessor = build(space, {"fcnet_hiddens": [5]}, framework)
    a, b = np.float32([0.5, -1]), np.float32([-0.25, 1])
    encoded = preprocessor.transform_batch([([a, b],), ([b, a],), ([a, b, a, b],), ([],)])
    output, _ = run(model, encoded)
    np.testing.assert_allclose(output[0], output[1], rtol=1e-5, atol=1e-6)
    # The average of four is that of two; the difference is the length's weight times 2 / 4.
    weight = model.get_weights()["outputs.logits.weight"][:, -1]
    np.testing.assert_allclose(output[2] - output[0], 0.5 * weight, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        output[3], model.get_weights()["outputs.logits.bias"], rtol=1e-5, atol=1e-6
    )
