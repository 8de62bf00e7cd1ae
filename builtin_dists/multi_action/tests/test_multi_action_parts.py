"""Parts of Tuple and Dict distributions: masks, the catalog's choice, and parts of your own."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats
from scipy.special import log_softmax

from rlcatalog import ModelCatalog, SpaceInfo, build
from rlcatalog.actions import ActionDistribution, action_codec
from rlcatalog.errors import ActionMaskError, NoClosedFormError, UnsupportedSpaceError
from rlcatalog_multi_action.plugin import size

#: Three levels with five leaves, which take 5, 8, 4, 5 and 2 inputs.
NESTED = spaces.Tuple(
    [
        spaces.Discrete(5, start=2),
        spaces.Box(-1, 1, (2, 2), np.float32),
        spaces.Dict(
            [
                ("z", spaces.Discrete(4)),
                ("a", spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Discrete(2)])),
            ]
        ),
    ]
)


def random_inputs(rows=7, columns=24, seed=0):
    return np.random.default_rng(seed).normal(0, 1, (rows, columns)).astype(np.float32)


def make_dist(framework, inputs, space=NESTED):
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    return dist_class(framework.tensor(inputs))


def assert_close(actual, expected, tolerance=1e-5):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# --- masks ----------------------------------------------------------------------------------------

#: Choices x of 3 values, and in b of 2, 2 and 3 values.
CHOICES = spaces.Dict(
    [
        ("x", spaces.Discrete(3)),
        ("b", spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 3])])),
    ]
)
#: All 36 actions.
ALL_ACTIONS = np.array(list(itertools.product(range(3), range(2), range(2), range(3))))
#: x may be 0 or 2, the first of b anything, the second 1, the third 0 or 2.
MASK = np.array([1, 0, 1, 1, 1, 0, 1, 1, 0, 1], bool)
IS_ALLOWED = (ALL_ACTIONS[:, 0] != 1) & (ALL_ACTIONS[:, 2] == 1) & (ALL_ACTIONS[:, 3] != 1)


def make_masked_and_unmasked(framework, rows=36):
    """Return distributions of CHOICES with and without MASK, with the same inputs in each row."""
    dist_class, _ = ModelCatalog.get_action_dist(CHOICES, {}, framework=framework.name)
    inputs = framework.tensor(np.tile(random_inputs(rows=1, columns=10, seed=5), (rows, 1)))
    mask = framework.tensor(np.tile(MASK, (rows, 1)))
    return dist_class(dist_class.masked(inputs, mask)), dist_class(inputs)


def test_masked_logp_is_normalised_over_allowed_actions(framework):
    masked, unmasked = make_masked_and_unmasked(framework)

    logp = framework.numpy(masked.logp(ALL_ACTIONS)).astype(np.float64)

    unmasked_logp = framework.numpy(unmasked.logp(ALL_ACTIONS)).astype(np.float64)[IS_ALLOWED]
    expected = unmasked_logp - np.log(np.exp(unmasked_logp).sum())
    np.testing.assert_allclose(logp[IS_ALLOWED], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(logp[IS_ALLOWED]).sum(), 1, rtol=1e-5)


def test_masked_logp_of_forbidden_actions_is_low_and_finite(framework):
    masked, _ = make_masked_and_unmasked(framework)

    logp = framework.numpy(masked.logp(ALL_ACTIONS))

    assert np.isfinite(logp).all()
    assert (logp[~IS_ALLOWED] < -1e30).all()


def test_masked_entropy_is_sum_over_allowed_actions(framework):
    masked, _ = make_masked_and_unmasked(framework)

    logp = framework.numpy(masked.logp(ALL_ACTIONS)).astype(np.float64)[IS_ALLOWED]

    expected = -(np.exp(logp) * logp).sum()
    np.testing.assert_allclose(framework.numpy(masked.entropy())[0], expected, rtol=1e-5)


def test_kl_of_masked_from_unmasked_is_log_of_allowed_share(framework):
    masked, unmasked = make_masked_and_unmasked(framework)

    kl = framework.numpy(masked.kl(unmasked))[0]

    # Allowed actions are more probable by the same factor.
    allowed_share = np.exp(framework.numpy(unmasked.logp(ALL_ACTIONS)))[IS_ALLOWED].sum()
    np.testing.assert_allclose(kl, -np.log(allowed_share), rtol=1e-4)


def test_kl_of_unmasked_from_masked_is_finite(framework):
    masked, unmasked = make_masked_and_unmasked(framework)

    assert np.isfinite(framework.numpy(unmasked.kl(masked))).all()


def test_masked_samples_are_allowed(framework):
    masked, unmasked = make_masked_and_unmasked(framework, rows=2000)
    allowed = {tuple(action) for action in ALL_ACTIONS[IS_ALLOWED]}

    def draws(dist, sample):
        return {tuple(action) for action in framework.numpy(dist.join(sample)).astype(int)}

    assert draws(masked, masked.sample()) <= allowed
    assert draws(masked, masked.deterministic_sample()) <= allowed
    assert not draws(unmasked, unmasked.sample()) <= allowed


def test_masked_inputs_give_the_same_distribution(framework):
    masked, _ = make_masked_and_unmasked(framework)

    restored = make_dist(framework, framework.numpy(masked.inputs), CHOICES)

    np.testing.assert_array_equal(
        framework.numpy(restored.logp(ALL_ACTIONS)), framework.numpy(masked.logp(ALL_ACTIONS))
    )


@pytest.mark.parametrize(
    ("space", "width"),
    [
        (NESTED, 5 + 4 + 5 + 2),  # of the choices; the Box has none
        (spaces.MultiBinary([2, 2]), 8),  # may be 0 and may be 1, for each bit
        (spaces.Dict(a=spaces.Box(-1, 1, (2,))), 0),
    ],
    ids=["nested", "MultiBinary", "Box alone"],
)
def test_mask_width_counts_values_of_choices_and_bits(space, width):
    assert action_codec(SpaceInfo.read(space)).mask_width == width


def test_mask_changes_inputs_of_forbidden_values_only(framework):
    dist_class, _ = ModelCatalog.get_action_dist(NESTED, {}, framework=framework.name)
    inputs = random_inputs()
    mask = np.ones((7, 16), bool)
    mask[:, [0, 9, 14]] = False

    masked = framework.numpy(dist_class.masked(framework.tensor(inputs), framework.tensor(mask)))

    # The eight inputs of the Box, after the first five, have no columns in the mask.
    expected = inputs.copy()
    expected[:, [0, 9 + 8, 14 + 8]] = np.finfo(np.float32).min
    np.testing.assert_array_equal(masked, expected)


def test_part_with_own_masked_method_gets_its_columns(framework):
    categorical = framework.load("Categorical")

    class Halved(categorical):
        @classmethod
        def masked(cls, inputs, mask, **options):
            return 0.5 * inputs

    inputs = random_inputs(columns=9)
    # Columns of the three choices, with 2, 3 and 2 values; the Box has none.
    mask = np.array([[0, 1, 1, 0, 1, 1, 0]] * 7, bool)

    masked = framework.load("MultiActionDistribution").masked(
        framework.tensor(inputs),
        framework.tensor(mask),
        child_distributions=[categorical, Halved, categorical, framework.load("DiagGaussian")],
        input_lens=[2, 3, 2, 2],
        action_space=spaces.Tuple(
            [spaces.Discrete(2), spaces.Discrete(3), spaces.Discrete(2), spaces.Box(-1, 1, (1,))]
        ),
    )

    expected = inputs.copy()
    expected[:, [0, 6]] = np.finfo(np.float32).min  # of the first and the third choice
    expected[:, 2:5] /= 2  # of the second choice
    np.testing.assert_array_equal(framework.numpy(masked), expected)


def test_mask_of_wrong_width_is_an_error(framework):
    dist_class, _ = ModelCatalog.get_action_dist(NESTED, {}, framework=framework.name)

    with pytest.raises(ActionMaskError, match=r"16 columns.*action\[0\]: 5"):
        dist_class.masked(
            framework.tensor(random_inputs()), framework.tensor(np.ones((7, 24), bool))
        )


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "of_class"), [("torch", "torch"), ("tf", "tf"), ("tf2", "tf")]
)
def test_catalog_chooses_parts_of_the_same_framework(framework, of_class):
    dist_class, found_size = ModelCatalog.get_action_dist(NESTED, {}, framework=framework)

    # RLlib gives "tf2" PyTorch's class with TensorFlow's parts.
    parts = dist_class(random_inputs()).flat_child_distributions
    assert found_size == 24
    assert dist_class.cls.framework_of_class == of_class
    assert dist_class.cls.__name__ == "MultiActionDistribution"
    assert dist_class.cls.required_model_output_shape(NESTED, {}) == 24
    assert {part.framework_of_class for part in parts} == {of_class}
    assert [type(part).__name__ for part in parts] == [
        "Categorical",
        "DiagGaussian",
        "Categorical",
        "MultiCategorical",
        "Categorical",
    ]


@pytest.mark.parametrize(
    ("custom", "expected"),
    [(None, 24), ("multi_action", 24), ({"action[1]": "deterministic"}, 20)],
    ids=["default", "by name", "Box deterministic"],
)
def test_size_counts_inputs_of_the_parts(framework, custom, expected):
    config = {"custom_action_dist": custom}
    cls = framework.load("MultiActionDistribution")

    _, size = ModelCatalog.get_action_dist(NESTED, config, framework=framework.name)

    # A deterministic Box takes four inputs instead of eight.
    assert size == expected
    assert cls.required_model_output_shape(NESTED, config) == expected


def test_size_of_subclass_may_build_on_that_of_the_parts(framework):
    multi = framework.load("MultiActionDistribution")

    class OneMore(multi):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return multi.required_model_output_shape(action_space, model_config) + 1

    config = {"custom_action_dist": OneMore}

    _, size = ModelCatalog.get_action_dist(NESTED, config, framework=framework.name)

    assert size == 24 + 1
    assert multi.required_model_output_shape(NESTED, config) == 24


def test_size_without_catalog_is_an_error():
    with pytest.raises(UnsupportedSpaceError, match=r"Catalog.action_dist\(\)"):
        size(SpaceInfo.read(NESTED, "action"), {})


def test_empty_tuple_is_an_error():
    with pytest.raises(UnsupportedSpaceError):
        ModelCatalog.get_action_dist(spaces.Tuple([]), {})


def select_row(action, row):
    """Return one row of a batch of actions."""
    if isinstance(action, dict):
        return {key: select_row(value, row) for key, value in action.items()}
    if isinstance(action, tuple):
        return tuple(select_row(value, row) for value in action)
    return action[row]


def test_policy_acts_in_nested_space_and_evaluates_its_actions(framework):
    obs_space = spaces.Box(-1, 1, (3,), np.float32)
    policy = build(obs_space, NESTED, {"fcnet_hiddens": [8]}, framework=framework.name)
    obs = np.random.default_rng(0).uniform(-1, 1, (4, 3)).astype(np.float32)

    step = policy.act(obs)
    evaluation = policy.evaluate({"obs": policy.preprocess(obs), "raw_action": step.raw_action})

    assert step.raw_action.shape == (4, 9)
    assert all(NESTED.contains(select_row(step.action, row)) for row in range(4))
    assert_close(framework.numpy(evaluation.logp), step.logp, tolerance=1e-4)
    assert evaluation.entropy_kind == "exact"


def test_subclass_with_signature_of_rllib_gets_the_children(framework):
    class Subclass(framework.load("MultiActionDistribution")):
        def __init__(self, inputs, model, *, child_distributions, input_lens, action_space):
            self.arguments = (len(child_distributions), tuple(input_lens))
            super().__init__(
                inputs,
                model,
                child_distributions=child_distributions,
                input_lens=input_lens,
                action_space=action_space,
            )

    config = {"custom_action_dist": Subclass}
    dist_class, found_size = ModelCatalog.get_action_dist(NESTED, config, framework=framework.name)
    dist = dist_class(framework.tensor(random_inputs()), None)

    sample = dist.sample()
    assert found_size == 24
    assert isinstance(dist, Subclass)
    assert dist.arguments == (3, (5, 8, 11))  # the choice, the Box and the Dict
    expected = make_dist(framework, random_inputs()).logp(sample)
    assert_close(framework.numpy(dist.logp(sample)), framework.numpy(expected))


# --- parts given by hand --------------------------------------------------------------------------

#: Leaves that take 5, 2 and 2 inputs.
PAIR_AND_CHOICE = spaces.Dict(
    a=spaces.Tuple([spaces.Discrete(5), spaces.Box(-1, 1, (1,))]), b=spaces.Discrete(2)
)


def make_flat(framework, inputs):
    """Create the distribution of PAIR_AND_CHOICE from one distribution per leaf, as RLlib does."""
    categorical = framework.load("Categorical")
    return framework.load("MultiActionDistribution")(
        framework.tensor(inputs),
        None,
        child_distributions=[categorical, framework.load("DiagGaussian"), categorical],
        input_lens=[5, 2, 2],
        action_space=PAIR_AND_CHOICE,
    )


def make_nested(framework, inputs):
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
        None,
        child_distributions=[pair, categorical],
        input_lens=[7, 2],
        action_space=PAIR_AND_CHOICE,
    )


each_making = pytest.mark.parametrize("make", [make_flat, make_nested])


def test_samples_of_leaves_by_hand_have_the_spaces_structure(framework):
    sample = make_flat(framework, random_inputs(columns=9)).sample()

    assert list(sample) == ["a", "b"]
    assert len(sample["a"]) == 2


@each_making
def test_logp_of_parts_by_hand_is_that_of_the_catalogs(framework, make):
    inputs = random_inputs(columns=9)
    chosen = make_dist(framework, inputs, PAIR_AND_CHOICE)
    sample = chosen.sample()

    logp = make(framework, inputs).logp(sample)

    assert_close(framework.numpy(logp), framework.numpy(chosen.logp(sample)))


@each_making
@pytest.mark.parametrize(
    "make_other",
    [make_flat, functools.partial(make_dist, space=PAIR_AND_CHOICE)],
    ids=["flat", "catalog"],
)
def test_kl_of_parts_by_hand_is_that_of_the_catalogs(framework, make, make_other):
    p = random_inputs(columns=9, seed=0)
    q = random_inputs(columns=9, seed=1)

    kl = make(framework, p).kl(make_other(framework, q))

    expected = make_dist(framework, p, PAIR_AND_CHOICE).kl(make_dist(framework, q, PAIR_AND_CHOICE))
    assert_close(framework.numpy(kl), framework.numpy(expected))


@each_making
def test_multi_entropy_of_parts_by_hand_is_that_of_the_catalogs(framework, make):
    inputs = random_inputs(columns=9)

    entropies = make(framework, inputs).multi_entropy()

    expected = make_dist(framework, inputs, PAIR_AND_CHOICE).multi_entropy()
    assert_close(framework.numpy(entropies), framework.numpy(expected))


# --- parts of your own ----------------------------------------------------------------------------


@pytest.fixture
def double_logp(framework):
    """A subclass whose log densities are doubled, so that it must not be taken apart."""

    class DoubleLogp(framework.load("MultiActionDistribution")):
        def logp(self, actions):
            return 2 * super().logp(actions)

    return DoubleLogp


def make_with_inner(framework, inputs, inner_class, inner_children, inner_lens, inner_space):
    """Create a distribution over a choice of two and an inner composite of another class."""
    categorical = framework.load("Categorical")
    inner = functools.partial(
        inner_class,
        child_distributions=inner_children,
        input_lens=inner_lens,
        action_space=inner_space,
    )
    return framework.load("MultiActionDistribution")(
        framework.tensor(inputs),
        child_distributions=[categorical, inner],
        input_lens=[2, sum(inner_lens)],
        action_space=spaces.Tuple([spaces.Discrete(2), inner_space]),
    )


@pytest.mark.parametrize("form", ["sample", "other order of keys", "flat", "split"])
def test_inner_composite_of_another_class_is_not_taken_apart(framework, double_logp, form):
    categorical = framework.load("Categorical")
    inputs = random_inputs(columns=7)
    # A choice of two, and a Dict whose distribution doubles its log densities.
    dist = make_with_inner(
        framework,
        inputs,
        double_logp,
        inner_children=[categorical, categorical],
        inner_lens=[3, 2],
        inner_space=spaces.Dict(p=spaces.Discrete(3), q=spaces.Discrete(2)),
    )
    sample = dist.sample()
    first, inner = sample
    forms = {
        "sample": sample,
        "other order of keys": (first, dict(reversed(inner.items()))),
        "flat": dist.join(sample),
        "split": dist.split(dist.join(sample)),
    }

    logp = dist.logp(forms[form])

    logp_of_first = categorical(framework.tensor(inputs[:, :2])).logp(first)
    logp_of_p = categorical(framework.tensor(inputs[:, 2:5])).logp(inner["p"])
    logp_of_q = categorical(framework.tensor(inputs[:, 5:7])).logp(inner["q"])
    expected = logp_of_first + 2 * (logp_of_p + logp_of_q)
    assert_close(framework.numpy(logp), framework.numpy(expected))


def test_inner_composite_of_another_class_may_mix_dtypes(framework, double_logp):
    inputs = random_inputs(rows=5, columns=9)
    # A choice of two, and a Tuple whose distribution doubles its log densities.
    dist = make_with_inner(
        framework,
        inputs,
        double_logp,
        inner_children=[framework.load("Categorical"), framework.load("DiagGaussian")],
        inner_lens=[3, 4],
        inner_space=spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
    )
    rng = np.random.default_rng(0)
    choices = rng.integers(0, 2, (5, 2))
    numbers = rng.normal(size=(5, 2)).astype(np.float32)
    flat_actions = np.concatenate([choices, numbers], axis=1).astype(np.float32)

    logp = dist.logp(framework.tensor(flat_actions))

    rows = np.arange(5)
    logp_of_first = log_softmax(inputs[:, :2], axis=1)[rows, choices[:, 0]]
    logp_of_second = log_softmax(inputs[:, 2:5], axis=1)[rows, choices[:, 1]]
    means = inputs[:, 5:7]
    stds = np.exp(inputs[:, 7:])
    logp_of_numbers = stats.norm.logpdf(numbers, means, stds).sum(axis=1)
    expected = logp_of_first + 2 * (logp_of_second + logp_of_numbers)
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-5)


def make_with_own_leaf(framework, inputs):
    """Create a distribution over a choice of three and a distribution with logp -2."""

    class OwnLeaf(ActionDistribution):
        framework_of_class = framework.name

        def sample(self):
            self.last_sample = self.inputs + 1
            return self.last_sample

        deterministic_sample = sample

        def logp(self, actions):
            return self.inputs[:, 0] * 0 - 2

    return framework.load("MultiActionDistribution")(
        framework.tensor(inputs),
        child_distributions=[framework.load("Categorical"), OwnLeaf],
        input_lens=[3, 2],
        action_space=spaces.Tuple([spaces.Discrete(3), spaces.Box(-9, 9, (2,))]),
    )


def test_logp_includes_a_user_leaf(framework):
    inputs = random_inputs(columns=5)
    dist = make_with_own_leaf(framework, inputs)
    sample = dist.sample()

    logp = dist.logp(sample)

    logp_of_choice = framework.load("Categorical")(framework.tensor(inputs[:, :3])).logp(sample[0])
    assert_close(framework.numpy(logp), framework.numpy(logp_of_choice) - 2)


def test_entropy_of_a_user_leaf_is_estimated(framework):
    inputs = random_inputs(columns=5)
    dist = make_with_own_leaf(framework, inputs)

    with pytest.raises(NoClosedFormError):
        dist.entropy()
    entropy_of_choice = framework.load("Categorical")(framework.tensor(inputs[:, :3])).entropy()
    assert_close(framework.numpy(dist.entropy_estimate()), framework.numpy(entropy_of_choice) + 2)
