"""Parts of Tuple and Dict distributions: masks, the catalog's choice, and parts of your own."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from scipy import stats

from rlcatalog import ModelCatalog, SpaceInfo
from rlcatalog.actions import ActionDistribution, action_codec
from rlcatalog.errors import ActionMaskError, NoClosedFormError, UnsupportedSpaceError
from rlcatalog_multi_action.plugin import size

LOWEST_FLOAT32 = np.finfo(np.float32).min


def make_dist(framework, space, inputs):
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    return dist_class(framework.tensor(inputs, "float32"))


# --- masks ----------------------------------------------------------------------------------------


def make_masked_pair(framework):
    """Create a distribution over pairs of three and of two values with equal logits; the first must
    not be 1, and the second must be 0.
    """
    space = Tuple([Discrete(3), Discrete(2)])
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    mask = np.array([[True, False, True, True, False]])
    inputs = framework.tensor(np.zeros((1, 5), np.float32))
    return dist_class(dist_class.masked(inputs, framework.tensor(mask)))


@pytest.mark.parametrize("action", [[0, 0], [2, 0]], ids=str)
def test_masked_logp_is_normalised_over_allowed_actions(framework, action):
    logp = make_masked_pair(framework).logp(np.array([action]))

    np.testing.assert_allclose(logp, [np.log(1 / 2)], rtol=1e-5)  # two actions are allowed


@pytest.mark.parametrize("action", [[1, 0], [0, 1], [1, 1]], ids=str)
def test_masked_logp_of_forbidden_actions_is_low_and_finite(framework, action):
    logp = framework.numpy(make_masked_pair(framework).logp(np.array([action])))

    assert np.isfinite(logp).all()
    assert (logp < -1e30).all()


def test_masked_entropy_is_that_of_allowed_actions(framework):
    entropy = make_masked_pair(framework).entropy()

    np.testing.assert_allclose(entropy, [np.log(2)], rtol=1e-5)  # two actions are allowed


def test_kl_of_masked_from_unmasked_is_log_of_allowed_share(framework):
    masked = make_masked_pair(framework)
    unmasked = make_dist(framework, Tuple([Discrete(3), Discrete(2)]), np.zeros((1, 5)))

    # Two of six equally likely actions are allowed.
    np.testing.assert_allclose(masked.kl(unmasked), [np.log(6 / 2)], rtol=1e-5)
    assert framework.all_finite(unmasked.kl(masked))


@pytest.mark.parametrize(
    ("space", "width"),
    [
        (Tuple([Discrete(5), Box(-1, 1, (2,)), Dict(x=MultiDiscrete([2, 3]))]), 5 + 0 + 2 + 3),
        (MultiBinary([2, 2]), 8),  # may be 0 and may be 1, for each bit
        (Dict(a=Box(-1, 1, (2,))), 0),
    ],
    ids=["nested", "MultiBinary", "Box alone"],
)
def test_mask_width_counts_values_of_choices_and_bits(space, width):
    assert action_codec(SpaceInfo.read(space)).mask_width == width


def test_mask_changes_inputs_of_forbidden_values_only(framework):
    space = Tuple([Discrete(2), Box(-1, 1, (1,)), Discrete(2)])
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    # The two inputs of the Box have no columns in the mask.
    inputs = framework.tensor([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]], "float32")
    mask = framework.tensor([[True, False, False, True]])

    masked = dist_class.masked(inputs, mask)

    expected = [[0.1, LOWEST_FLOAT32, 0.3, 0.4, LOWEST_FLOAT32, 0.6]]
    np.testing.assert_array_equal(masked, np.float32(expected))


def test_part_with_own_masked_method_uses_it(framework):
    categorical = framework.load("Categorical")

    class Halved(categorical):
        @classmethod
        def masked(cls, inputs, mask, **options):
            return 0.5 * inputs  # forbids nothing

    masked = framework.load("MultiActionDistribution").masked(
        framework.tensor([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]], "float32"),
        framework.tensor([[True, False, True, True, False, True]]),
        child_distributions=[categorical, Halved, categorical],
        input_lens=[2, 2, 2],
        action_space=Tuple([Discrete(2), Discrete(2), Discrete(2)]),
    )

    expected = [[0.1, LOWEST_FLOAT32, 0.3 / 2, 0.4 / 2, LOWEST_FLOAT32, 0.6]]
    np.testing.assert_allclose(masked, np.float32(expected))


def test_mask_of_wrong_width_is_an_error(framework):
    space = Tuple([Discrete(5), Box(-1, 1, (2,))])
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    mask_of_all_inputs = framework.tensor(np.ones((7, 5 + 4), bool))

    with pytest.raises(ActionMaskError, match=r"\(action\[0\]: 5, action\[1\]: 0\)"):
        dist_class.masked(framework.tensor(np.zeros((7, 5 + 4), np.float32)), mask_of_all_inputs)


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "of_class"), [("torch", "torch"), ("tf", "tf"), ("tf2", "tf")]
)
def test_catalog_chooses_parts_of_the_same_framework(framework, of_class):
    space = Tuple([Discrete(2), Dict(x=Box(-1, 1, (2,)), y=MultiDiscrete([2, 3]))])

    dist_class, size = ModelCatalog.get_action_dist(space, {}, framework=framework)

    # RLlib gives "tf2" PyTorch's class with TensorFlow's parts.
    parts = dist_class(np.zeros((1, size), np.float32)).flat_child_distributions
    assert [type(part).__name__ for part in parts] == [
        "Categorical",
        "DiagGaussian",
        "MultiCategorical",
    ]
    assert {part.framework_of_class for part in parts} == {of_class}
    assert dist_class.cls.framework_of_class == of_class
    assert dist_class.cls.__name__ == "MultiActionDistribution"


@pytest.mark.parametrize(
    ("custom", "expected"),
    [(None, 5 + 2 * 4), ("multi_action", 5 + 2 * 4), ({"action[1]": "deterministic"}, 5 + 4)],
    ids=["default", "by name", "Box deterministic"],
)
def test_size_counts_inputs_of_the_parts(framework, custom, expected):
    # By default, the Box has four means and four deviations.
    space = Tuple([Discrete(5), Box(-1, 1, (4,))])
    config = {"custom_action_dist": custom}
    cls = framework.load("MultiActionDistribution")

    _, size = ModelCatalog.get_action_dist(space, config, framework=framework.name)

    assert size == expected
    assert cls.required_model_output_shape(space, config) == expected


def test_size_of_subclass_may_build_on_that_of_the_parts(framework):
    multi = framework.load("MultiActionDistribution")

    class OneMore(multi):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return multi.required_model_output_shape(action_space, model_config) + 1

    space = Tuple([Discrete(5), Discrete(2)])
    config = {"custom_action_dist": OneMore}

    _, size = ModelCatalog.get_action_dist(space, config, framework=framework.name)

    assert size == 5 + 2 + 1


def test_size_without_catalog_is_an_error():
    space = SpaceInfo.read(Tuple([Discrete(5), Discrete(2)]), "action")

    with pytest.raises(UnsupportedSpaceError, match=r"Catalog.action_dist\(\)"):
        size(space, {})


def test_empty_tuple_is_an_error():
    with pytest.raises(UnsupportedSpaceError):
        ModelCatalog.get_action_dist(Tuple([]), {})


def test_subclass_with_signature_of_rllib_gets_the_children(framework):
    class Subclass(framework.load("MultiActionDistribution")):
        def __init__(self, inputs, model, *, child_distributions, input_lens, action_space):
            self.count = len(child_distributions)
            self.lens = tuple(input_lens)
            super().__init__(
                inputs,
                model,
                child_distributions=child_distributions,
                input_lens=input_lens,
                action_space=action_space,
            )

    space = Tuple([Discrete(5), Dict(x=Discrete(2), y=Box(-1, 1, (2,)))])
    config = {"custom_action_dist": Subclass}

    dist_class, size = ModelCatalog.get_action_dist(space, config, framework=framework.name)
    dist = dist_class(framework.tensor(np.zeros((1, size), np.float32)), None)  # no model

    assert isinstance(dist, Subclass)
    assert dist.count == 2
    assert dist.lens == (5, 2 + 4)  # the choice; the Dict: 2 logits, 2 means, 2 deviations


# --- parts given by hand --------------------------------------------------------------------------

#: Leaves that take 5, 2 and 2 inputs.
PAIR_AND_CHOICE = Dict(a=Tuple([Discrete(5), Box(-1, 1, (1,))]), b=Discrete(2))


def make_from_leaves(framework, inputs):
    """Create the distribution of PAIR_AND_CHOICE from one distribution per leaf, as RLlib does."""
    categorical = framework.load("Categorical")
    return framework.load("MultiActionDistribution")(
        framework.tensor(inputs),
        child_distributions=[categorical, framework.load("DiagGaussian"), categorical],
        input_lens=[5, 2, 2],
        action_space=PAIR_AND_CHOICE,
    )


def make_from_children(framework, inputs):
    """Create the same from one distribution per child; the first child has two of its own."""
    multi = framework.load("MultiActionDistribution")
    categorical = framework.load("Categorical")
    pair = functools.partial(
        multi,
        child_distributions=[categorical, framework.load("DiagGaussian")],
        input_lens=[5, 2],
        action_space=PAIR_AND_CHOICE["a"],
    )
    return multi(
        framework.tensor(inputs),
        child_distributions=[pair, categorical],
        input_lens=[5 + 2, 2],
        action_space=PAIR_AND_CHOICE,
    )


@pytest.mark.parametrize("make_by_hand", [make_from_leaves, make_from_children])
def test_parts_by_hand_are_those_of_the_catalog(framework, make_by_hand):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(7, 9)).astype(np.float32)
    other_inputs = rng.normal(size=(7, 9)).astype(np.float32)
    chosen = make_dist(framework, PAIR_AND_CHOICE, inputs)  # by the catalog
    by_hand = make_by_hand(framework, inputs)

    sample = by_hand.sample()

    assert list(sample) == ["a", "b"]
    np.testing.assert_allclose(by_hand.logp(sample), chosen.logp(sample), rtol=1e-5)
    np.testing.assert_allclose(by_hand.multi_entropy(), chosen.multi_entropy(), rtol=1e-5)
    # The other distribution is the catalog's in both cases.
    other = make_dist(framework, PAIR_AND_CHOICE, other_inputs)
    np.testing.assert_allclose(by_hand.kl(other), chosen.kl(other), rtol=1e-4)


# --- parts of your own ----------------------------------------------------------------------------


@pytest.fixture
def dist_with_doubled_dict(framework):
    """A choice of two, and a Dict of a choice and a number, whose distribution is of another class:
    it doubles log densities. The logits are equal, and the number is standard normal.
    """

    class DoubleLogp(framework.load("MultiActionDistribution")):
        def logp(self, actions):
            return 2 * super().logp(actions)

    categorical = framework.load("Categorical")
    inner_space = Dict(p=Discrete(3), q=Box(-1, 1, (1,)))
    inner = functools.partial(
        DoubleLogp,
        child_distributions=[categorical, framework.load("DiagGaussian")],
        input_lens=[3, 2],
        action_space=inner_space,
    )
    return framework.load("MultiActionDistribution")(
        framework.tensor(np.zeros((1, 2 + 3 + 2), np.float32)),
        child_distributions=[categorical, inner],
        input_lens=[2, 3 + 2],
        action_space=Tuple([Discrete(2), inner_space]),
    )


@pytest.mark.parametrize("form", ["sample", "other order of keys", "flat", "split"])
def test_inner_composite_of_another_class_is_not_taken_apart(dist_with_doubled_dict, form):
    dist = dist_with_doubled_dict
    sample = dist.sample()
    choice, inner = sample
    forms = {
        "sample": sample,
        "other order of keys": (choice, {"q": inner["q"], "p": inner["p"]}),
        "flat": dist.join(sample),
        "split": dist.split(dist.join(sample)),
    }

    logp = dist.logp(forms[form])

    # A choice of two, and the inner Dict, whose class doubles its log density: a choice of three
    # and a number that is standard normal.
    logp_of_choice = np.log(1 / 2)
    logp_of_dict = np.log(1 / 3) + stats.norm.logpdf(float(inner["q"][0, 0]))
    np.testing.assert_allclose(logp, [logp_of_choice + 2 * logp_of_dict], rtol=1e-5)


@pytest.fixture
def dist_with_own_leaf(framework):
    """A choice of three with equal logits, and a distribution with the log density -2."""

    class OwnLeaf(ActionDistribution):
        framework_of_class = framework.name

        def sample(self):
            self.last_sample = self.inputs + 1
            return self.last_sample

        deterministic_sample = sample

        def logp(self, actions):
            return self.inputs[:, 0] * 0 - 2

    return framework.load("MultiActionDistribution")(
        framework.tensor(np.zeros((1, 3 + 2), np.float32)),
        child_distributions=[framework.load("Categorical"), OwnLeaf],
        input_lens=[3, 2],
        action_space=Tuple([Discrete(3), Box(-9, 9, (2,))]),
    )


def test_logp_includes_a_user_leaf(dist_with_own_leaf):
    logp = dist_with_own_leaf.logp(dist_with_own_leaf.sample())

    np.testing.assert_allclose(logp, [np.log(1 / 3) - 2], rtol=1e-5)


def test_entropy_of_a_user_leaf_is_estimated(dist_with_own_leaf):
    with pytest.raises(NoClosedFormError):
        dist_with_own_leaf.entropy()
    # The estimate is the exact entropy of the choice, minus the log density of the user's leaf.
    np.testing.assert_allclose(dist_with_own_leaf.entropy_estimate(), [np.log(3) + 2], rtol=1e-5)
