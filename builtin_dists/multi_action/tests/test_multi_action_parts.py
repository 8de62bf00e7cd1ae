"""The distribution of Tuple and Dict spaces: its masks, its children and what the catalog makes of
it.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog import ModelCatalog, SpaceInfo, build
from rlcatalog.actions import ActionDistribution, action_codec
from rlcatalog.errors import ActionMaskError, NoClosedFormError, UnsupportedSpaceError
from rlcatalog_multi_action.plugin import size
from rlcatalog_tf import (
    Categorical as TFCategorical,
    DiagGaussian as TFGaussian,
    MultiActionDistribution as TFMulti,
)
from rlcatalog_torch import (
    Categorical as TorchCategorical,
    DiagGaussian as TorchGaussian,
    MultiActionDistribution as TorchMulti,
)

frameworks = pytest.mark.parametrize("fw", ["torch", "tf"])
CLASSES = {"torch": TorchMulti, "tf": TFMulti}
LEAVES = {"torch": (TorchCategorical, TorchGaussian), "tf": (TFCategorical, TFGaussian)}

INNER = spaces.Dict(
    [
        ("z", spaces.Discrete(4)),
        ("a", spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Discrete(2)])),
    ]
)
SPACE = spaces.Tuple([spaces.Discrete(5, start=2), spaces.Box(-1, 1, (2, 2), np.float32), INNER])
LENS, WIDTHS = (5, 8, 4, 5, 2), (1, 4, 1, 2, 1)
ROWS, SIZE, WIDTH = 7, sum(LENS), sum(WIDTHS)
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(0, 1, (ROWS, SIZE)).astype(np.float32)

# The small space of which every action is listed.
SMALL = spaces.Dict(
    [
        ("x", spaces.Discrete(3)),
        ("b", spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 3])])),
    ]
)
ALL = np.array(list(itertools.product(range(3), range(2), range(2), range(3))))


def tensor(fw, value):
    return torch.from_numpy(np.array(value)) if fw == "torch" else tf.constant(value)


def array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value.numpy()


@functools.cache
def served(fw, name="SPACE"):
    return ModelCatalog.get_action_dist(globals()[name], {}, framework=fw)


def make(fw, inputs=INPUTS, name="SPACE"):
    return served(fw, name)[0](tensor(fw, inputs))


def close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(array(found), expected, rtol=tolerance, atol=tolerance)


def row_of(action, row):
    if isinstance(action, dict):
        return {key: row_of(value, row) for key, value in action.items()}
    return (
        tuple(row_of(value, row) for value in action) if isinstance(action, tuple) else action[row]
    )


# --- masks ----------------------------------------------------------------------------------------

# x is 0 or 2; the last choice 0 or 2; the second 1.
MASK = np.array([1, 0, 1, 1, 1, 0, 1, 1, 0, 1], bool)
ALLOWED = (ALL[:, 0] != 1) & (ALL[:, 2] == 1) & (ALL[:, 3] != 1)


def masked(fw, rows):
    dist_class, count = served(fw, "SMALL")
    inputs = np.tile(np.random.default_rng(5).normal(0, 1, count).astype(np.float32), (rows, 1))
    return dist_class(
        dist_class.masked(tensor(fw, inputs), tensor(fw, np.tile(MASK, (rows, 1))))
    ), inputs


@frameworks
def test_a_masked_distribution_is_the_one_over_the_allowed_actions(fw):
    dist, inputs = masked(fw, len(ALL))
    logp = array(dist.logp(ALL)).astype(np.float64)
    assert np.isfinite(logp).all()
    assert (logp[~ALLOWED] < -1e30).all()
    np.testing.assert_allclose(np.exp(logp[ALLOWED]).sum(), 1, rtol=1e-5)
    unmasked = array(make(fw, inputs, "SMALL").logp(ALL)).astype(np.float64)[ALLOWED]
    np.testing.assert_allclose(
        logp[ALLOWED], unmasked - np.log(np.exp(unmasked).sum()), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        array(dist.entropy())[0], -(np.exp(logp) * logp)[ALLOWED].sum(), rtol=1e-5
    )
    np.testing.assert_allclose(
        array(dist.kl(make(fw, inputs, "SMALL")))[0], -np.log(np.exp(unmasked).sum()), rtol=1e-4
    )
    assert np.isfinite(array(make(fw, inputs, "SMALL").kl(dist))).all()


@frameworks
def test_forbidden_actions_are_never_drawn(fw):
    dist, inputs = masked(fw, 2000)
    allowed = {tuple(row) for row in ALL[ALLOWED]}
    for sample in (dist.sample(), dist.deterministic_sample()):
        assert {tuple(row) for row in array(dist.join(sample)).astype(int)} <= allowed
    free = make(fw, inputs, "SMALL")
    # The control.
    assert not {tuple(row) for row in array(free.join(free.sample())).astype(int)} <= allowed


@frameworks
def test_masked_inputs_rebuild_the_masked_distribution(fw):
    dist, _ = masked(fw, len(ALL))
    again = make(fw, array(dist.inputs), "SMALL")
    np.testing.assert_array_equal(array(again.logp(ALL)), array(dist.logp(ALL)))


@frameworks
def test_leaves_that_take_no_mask_have_no_columns(fw):
    dist_class, _ = served(fw)
    assert action_codec(SpaceInfo.read(SPACE)).mask_width == 5 + 4 + 5 + 2
    assert action_codec(SpaceInfo.read(spaces.MultiBinary([2, 2]))).mask_width == 8
    mask = np.ones((ROWS, 16), bool)
    mask[:, [0, 9, 14]] = False
    found = array(dist_class.masked(tensor(fw, INPUTS), tensor(fw, mask)))
    changed = np.flatnonzero((found != INPUTS).any(axis=0))
    np.testing.assert_array_equal(changed, [0, 17, 22])
    assert (found[:, changed] == np.finfo(np.float32).min).all()


@frameworks
def test_a_part_that_bakes_masks_in_its_own_way_is_given_its_columns(fw):
    class Halved(LEAVES[fw][0]):
        @classmethod
        def masked(cls, inputs, mask, **options):
            return 0.5 * inputs

    categorical, gaussian = LEAVES[fw]
    space = spaces.Tuple(
        [spaces.Discrete(2), spaces.Discrete(3), spaces.Discrete(2), spaces.Box(-1, 1, (1,))]
    )
    options = {
        "child_distributions": [categorical, Halved, categorical, gaussian],
        "input_lens": [2, 3, 2, 2],
        "action_space": space,
    }
    mask = np.array([[1, 0, 1, 0, 1, 0, 1]] * ROWS, bool)
    found = array(CLASSES[fw].masked(tensor(fw, INPUTS[:, :9]), tensor(fw, mask), **options))
    expected = INPUTS[:, :9].copy()
    expected[:, [1, 5]] = np.finfo(np.float32).min
    expected[:, 2:5] /= 2
    np.testing.assert_array_equal(found, expected)


@frameworks
def test_a_mask_of_another_width_is_refused(fw):
    dist_class, _ = served(fw)
    with pytest.raises(ActionMaskError, match=r"16 columns.*action\[0\]: 5"):
        dist_class.masked(tensor(fw, INPUTS), tensor(fw, np.ones((ROWS, SIZE), bool)))


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(("fw", "name"), [("torch", "torch"), ("tf", "tf"), ("tf", "tf2")])
def test_the_catalog_chooses_the_children_of_the_same_framework(fw, name):
    # RLlib gave "tf2" the torch class with TensorFlow's children.
    dist_class, count = ModelCatalog.get_action_dist(SPACE, {}, framework=name)
    assert count == SIZE
    assert dist_class.cls is CLASSES[fw]
    children = dist_class(tensor(fw, INPUTS)).flat_child_distributions
    assert {child.framework_of_class for child in children} == {fw}
    assert [type(child).__name__ for child in children] == [
        "Categorical",
        "DiagGaussian",
        "Categorical",
        "MultiCategorical",
        "Categorical",
    ]
    assert CLASSES[fw].required_model_output_shape(SPACE, {}) == SIZE


@frameworks
def test_its_size_honours_the_distributions_named_for_the_parts(fw):
    class Named(CLASSES[fw]):
        """Asks as a class with a size of its own might."""

        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return CLASSES[fw].required_model_output_shape(action_space, model_config) + 1

    for custom, whole, own in (
        (None, 24, 24),
        ("multi_action", 24, 24),
        (Named, 25, 24),
        ({"action[1]": "deterministic"}, 20, 20),
    ):
        config = {"custom_action_dist": custom}
        assert ModelCatalog.get_action_dist(SPACE, config, framework=fw)[1] == whole
        assert CLASSES[fw].required_model_output_shape(SPACE, config) == own


def test_its_size_is_the_catalogs_to_know():
    with pytest.raises(UnsupportedSpaceError, match=r"Catalog.action_dist\(\)"):
        size(SpaceInfo.read(SPACE, "action"), {})
    with pytest.raises(UnsupportedSpaceError):
        ModelCatalog.get_action_dist(spaces.Tuple([]), {})


@frameworks
def test_a_policy_acts_and_scores_what_it_did(fw):
    obs_space = spaces.Box(-1, 1, (3,), np.float32)
    policy = build(obs_space, SPACE, {"fcnet_hiddens": [8]}, framework=fw)
    obs = RANDOM.uniform(-1, 1, (4, 3)).astype(np.float32)
    step = policy.act(obs)
    assert step.raw_action.shape == (4, WIDTH)
    for row in range(4):
        assert SPACE.contains(row_of(step.action, row))
    found = policy.evaluate({"obs": policy.preprocess(obs), "raw_action": step.raw_action})
    close(found.logp, step.logp, 1e-4)
    assert found.entropy_kind == "exact"


@frameworks
def test_a_subclass_is_given_the_children_by_keyword(fw):
    class Counted(CLASSES[fw]):
        """RLlib's signature, to the letter."""

        def __init__(self, inputs, model, *, child_distributions, input_lens, action_space):
            self.given = len(child_distributions), tuple(input_lens)
            super().__init__(
                inputs,
                model,
                child_distributions=child_distributions,
                input_lens=input_lens,
                action_space=action_space,
            )

    dist_class, count = ModelCatalog.get_action_dist(
        SPACE, {"custom_action_dist": Counted}, framework=fw
    )
    dist = dist_class(tensor(fw, INPUTS), None)
    assert count == SIZE
    assert isinstance(dist, Counted)
    assert dist.given == (3, (5, 8, 11))
    sample = dist.sample()
    close(dist.logp(sample), array(make(fw).logp(sample)))


@frameworks
def test_children_may_be_given_one_per_leaf_as_rllib_does(fw):
    categorical, gaussian = LEAVES[fw]
    space = spaces.Dict(
        a=spaces.Tuple([spaces.Discrete(5), spaces.Box(-1, 1, (1,))]), b=spaces.Discrete(2)
    )
    dist_class = functools.partial(
        CLASSES[fw],
        child_distributions=[categorical, gaussian, categorical],
        input_lens=[5, 2, 2],
        action_space=space,
    )
    dist = dist_class(tensor(fw, INPUTS[:, :9]), None)
    sample = dist.sample()
    assert list(sample) == ["a", "b"]
    assert len(sample["a"]) == 2
    nested = functools.partial(
        CLASSES[fw],
        child_distributions=[
            functools.partial(
                CLASSES[fw],
                child_distributions=[categorical, gaussian],
                input_lens=[5, 2],
                action_space=space["a"],
            ),
            categorical,
        ],
        input_lens=[7, 2],
        action_space=space,
    )
    close(nested(tensor(fw, INPUTS[:, :9]), None).logp(sample), array(dist.logp(sample)))
    chosen, _ = ModelCatalog.get_action_dist(space, {}, framework=fw)
    mine, other = (chosen(tensor(fw, inputs)) for inputs in (INPUTS[:, :9], INPUTS[:, 9:18]))
    for by_hand in (dist, nested(tensor(fw, INPUTS[:, :9]), None)):
        close(by_hand.kl(dist_class(tensor(fw, INPUTS[:, 9:18]), None)), array(mine.kl(other)))
        close(by_hand.kl(other), array(mine.kl(other)))
        close(by_hand.multi_entropy(), array(mine.multi_entropy()))


@frameworks
def test_a_nested_composite_of_another_class_is_left_whole(fw):
    class Doubled(CLASSES[fw]):
        def logp(self, actions):
            return 2 * super().logp(actions)

    categorical, _ = LEAVES[fw]
    inner = spaces.Dict(p=spaces.Discrete(3), q=spaces.Discrete(2))
    space = spaces.Tuple([spaces.Discrete(2), inner])
    doubled = functools.partial(
        Doubled,
        child_distributions=[categorical, categorical],
        input_lens=[3, 2],
        action_space=inner,
    )
    dist = CLASSES[fw](
        tensor(fw, INPUTS[:, :7]),
        child_distributions=[categorical, doubled],
        input_lens=[2, 5],
        action_space=space,
    )
    sample = dist.sample()
    part = doubled(tensor(fw, INPUTS[:, 2:7]))
    expected = array(categorical(tensor(fw, INPUTS[:, :2])).logp(sample[0])) + array(
        part.logp(sample[1])
    )
    for form in (
        sample,
        (sample[0], dict(reversed(sample[1].items()))),
        dist.join(sample),
        dist.split(dist.join(sample)),
    ):
        close(dist.logp(form), expected)


@frameworks
def test_a_leaf_of_the_users_own_takes_part(fw):
    class Shifted(ActionDistribution):
        framework_of_class = fw

        def sample(self):
            self.last_sample = self.inputs + 1
            return self.last_sample

        deterministic_sample = sample

        def logp(self, actions):
            return self.inputs[:, 0] * 0 - 2

    categorical, _ = LEAVES[fw]
    space = spaces.Tuple([spaces.Discrete(3), spaces.Box(-9, 9, (2,))])
    dist = CLASSES[fw](
        tensor(fw, INPUTS[:, :5]),
        child_distributions=[categorical, Shifted],
        input_lens=[3, 2],
        action_space=space,
    )
    sample = dist.sample()
    close(dist.logp(sample), array(categorical(tensor(fw, INPUTS[:, :3])).logp(sample[0])) - 2)
    with pytest.raises(NoClosedFormError):
        dist.entropy()
    exact = array(categorical(tensor(fw, INPUTS[:, :3])).entropy())
    close(dist.entropy_estimate(), exact + 2)
