"""The distribution of OneOf spaces: densities, entropies, samples, gradients, masks, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Tuple
from scipy import integrate, stats

from rlcatalog import ModelCatalog
from rlcatalog.actions import ActionMasks
from rlcatalog.errors import ActionMaskError, ModelContractError, UnsupportedSpaceError
from rlcatalog.spaces import SpaceInfo
from rlcatalog_torch import Categorical, TorchDistribution

NUMBER = Box(-1, 1, (1,), np.float32)
#: Raw actions are the choice, the value of the Discrete, and two bits.
CHOICES = OneOf([Discrete(3), MultiBinary(2)])
#: Raw actions are the choice, the value of the Discrete, and the number.
MIXED = OneOf([Discrete(2), NUMBER])


def all_raw_actions(parts):
    """Return every raw action of a OneOf whose parts have values of these counts, with 0 in the
    parts that are not chosen.
    """
    rows = []
    for place, counts in enumerate(parts):
        for values in itertools.product(*map(range, counts)):
            row = [place]
            for other, other_counts in enumerate(parts):
                row += values if other == place else [0] * len(other_counts)
            rows.append(row)
    return np.array(rows, np.int64)


#: Space → its raw actions. The third has a OneOf among its parts: (0, ·), (1, 0, ·), (1, 1, ·).
DISCRETE_CASES = {
    "a Discrete and bits": (CHOICES, all_raw_actions([[3], [2, 2]])),
    "several choices": (
        OneOf([MultiDiscrete([2, 3]), Discrete(1), Tuple([Discrete(2), Discrete(2)])]),
        all_raw_actions([[2, 3], [1], [2, 2]]),
    ),
    "a OneOf in a OneOf": (
        OneOf([Discrete(2), OneOf([Discrete(3), Discrete(2)])]),
        np.array(
            [
                *([0, value, 0, 0, 0] for value in range(2)),
                *([1, 0, 0, value, 0] for value in range(3)),
                *([1, 0, 1, 0, value] for value in range(2)),
            ]
        ),
    ),
}
each_discrete_case = pytest.mark.parametrize("case", DISCRETE_CASES)


def class_of(framework, space, config=None):
    """Return the distribution's class for a space, and its number of inputs."""
    return ModelCatalog.get_action_dist(space, config or {}, framework=framework.name)


def make_dist(framework, space, inputs, config=None, mask=None):
    dist_class, _ = class_of(framework, space, config)
    tensor = framework.tensor(inputs, "float32")
    if mask is not None:
        columns = ActionMasks(SpaceInfo.read(space, "action")).matrix(mask)
        tensor = dist_class.masked(tensor, framework.tensor(columns))
    return dist_class(tensor)


def random_inputs(framework, space, rows=1, seed=0, config=None):
    _, size = class_of(framework, space, config)
    return np.random.default_rng(seed).normal(size=(rows, size)).astype(np.float32)


def probabilities(framework, space, row, actions, mask=None):
    """Return the probability of each action for the same inputs, in float64."""
    inputs = np.tile(row, (len(actions), 1))
    if mask is not None:
        mask = np.tile(mask, (len(actions), 1))
    dist = make_dist(framework, space, inputs, mask=mask)
    return np.exp(framework.numpy(dist.logp(actions)).astype(np.float64))


# --- densities ------------------------------------------------------------------------------------


def test_logp_is_that_of_part_and_action(framework):
    # Logits of the choice with probabilities 1/4 and 3/4; two equal logits; mean, log deviation.
    inputs = np.tile([0, np.log(3), 0, 0, 0.5, np.log(2)], (2, 1))
    dist = make_dist(framework, MIXED, inputs)

    logp = dist.logp(np.array([[0, 1, 0], [1, 0, 0.7]], np.float32))

    of_number = stats.norm.logpdf(0.7, loc=0.5, scale=2)
    np.testing.assert_allclose(logp, [np.log(1 / 4 / 2), np.log(3 / 4) + of_number], rtol=1e-5)


@each_discrete_case
def test_probabilities_of_all_actions_sum_to_1(framework, case):
    space, actions = DISCRETE_CASES[case]
    row = random_inputs(framework, space)

    assert probabilities(framework, space, row, actions).sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("dist_name", "low", "high"),
    [("diag_gaussian", -30, 30), ("beta", -1, 1), ("squashed_gaussian", -1, 1)],
)
def test_density_integrates_to_1_together_with_choices(framework, dist_name, low, high):
    config = {"custom_action_dist": {"action[1]": dist_name}}
    row = random_inputs(framework, MIXED, config=config)

    def density(actions):
        inputs = np.tile(row, (len(actions), 1))
        dist = make_dist(framework, MIXED, inputs, config)
        return np.exp(framework.numpy(dist.logp(actions)).astype(np.float64))

    # SciPy's rule of fixed order asks for many points at once.
    def density_of_number(numbers):
        zeros = np.zeros_like(numbers)
        return density(np.stack([zeros + 1, zeros, numbers], axis=1).astype(np.float32))

    edges = np.linspace(low, high, 101)
    of_number = sum(
        integrate.fixed_quad(density_of_number, start, stop, n=8)[0]
        for start, stop in itertools.pairwise(edges)
    )
    of_choices = density(np.array([[0, 0, 0], [0, 1, 0]], np.float32)).sum()
    assert of_number + of_choices == pytest.approx(1, abs=2e-3)
    assert of_number > 0.01


def test_logp_does_not_read_parts_that_are_not_chosen(framework):
    row = random_inputs(framework, MIXED)
    actions = np.array([[0, 1, 0], [0, 1, 7], [0, 1, np.nan]], np.float32)

    logp = framework.numpy(make_dist(framework, MIXED, np.tile(row, (3, 1))).logp(actions))

    np.testing.assert_array_equal(logp, logp[:1].repeat(3))


@pytest.mark.parametrize("place", ["tuple", "dict", "one of"])
def test_logp_inside_other_spaces_adds_up(framework, place):
    outer = {
        "tuple": Tuple([Discrete(2), MIXED]),
        "dict": Dict([("gear", Discrete(2)), ("act", MIXED)]),
        "one of": OneOf([Discrete(1), MIXED]),
    }[place]
    rng = np.random.default_rng(0)
    own_inputs = random_inputs(framework, MIXED, rows=4)
    # In each case two logits precede, of a gear or of the choice.
    logits = rng.normal(size=(4, 2)).astype(np.float32)
    first = np.ones(4, np.int64)
    between = []
    if place == "one of":
        between = [np.zeros((4, 1), np.float32)]  # the logit of the Discrete with one value
    inputs = np.concatenate([logits, *between, own_inputs], axis=1)
    dist = make_dist(framework, outer, inputs)
    own_dist = make_dist(framework, MIXED, own_inputs)

    own_actions = np.array([[0, 1, 0], [1, 0, 0.5], [1, 0, -2], [0, 0, 0]], np.float32)
    columns = [first[:, None], *between, own_actions]
    logp = framework.numpy(dist.logp(np.concatenate(columns, axis=1).astype(np.float32)))

    of_first = logits[:, 1] - np.logaddexp(logits[:, 0], logits[:, 1])
    np.testing.assert_allclose(
        logp, of_first + framework.numpy(own_dist.logp(own_actions)), rtol=1e-4, atol=1e-5
    )


# --- entropy and divergence -----------------------------------------------------------------------


@each_discrete_case
def test_entropy_and_kl_equal_sums_over_all_actions(framework, case):
    space, actions = DISCRETE_CASES[case]
    row, other_row = random_inputs(framework, space, rows=2)
    p = probabilities(framework, space, row, actions)
    q = probabilities(framework, space, other_row, actions)
    dist = make_dist(framework, space, row[None])
    other = make_dist(framework, space, other_row[None])

    assert dist.entropy_kind == "exact"
    np.testing.assert_allclose(dist.entropy(), [-(p * np.log(p)).sum()], rtol=1e-4)
    np.testing.assert_allclose(dist.kl(other), [(p * np.log(p / q)).sum()], rtol=1e-3)


def test_entropy_and_kl_of_numbers_are_those_of_formulas(framework):
    # Probabilities 1/4 and 3/4, equal logits, a normal with mean 0.5 and deviation 2.
    inputs = [[0, np.log(3), 0, 0, 0.5, np.log(2)]]
    dist = make_dist(framework, MIXED, inputs)
    # Equal probabilities, and a standard normal.
    other = make_dist(framework, MIXED, np.zeros((1, 6)))

    entropy_of_choice = stats.entropy([1 / 4, 3 / 4])
    expected = entropy_of_choice + np.log(2) / 4 + 3 / 4 * stats.norm.entropy(scale=2)
    np.testing.assert_allclose(dist.entropy(), [expected], rtol=1e-5)
    kl_of_choice = stats.entropy([1 / 4, 3 / 4], [1 / 2, 1 / 2])
    kl_of_normals = -np.log(2) + (2**2 + 0.5**2) / 2 - 1 / 2
    np.testing.assert_allclose(dist.kl(other), [kl_of_choice + 3 / 4 * kl_of_normals], rtol=1e-5)


def test_entropy_estimate_is_unbiased(framework):
    # A squashed Gaussian has no closed form for its entropy.
    config = {"custom_action_dist": {"action[1]": "squashed_gaussian"}}
    row = random_inputs(framework, MIXED, config=config)
    dist = make_dist(framework, MIXED, np.tile(row, (20_000, 1)), config)
    framework.seed(0)

    estimates = framework.numpy(dist.entropy_estimate())
    minus_logp = -framework.numpy(dist.logp(dist.sample()))

    assert dist.entropy_kind == "estimate"
    error = np.hypot(estimates.std(), minus_logp.std()) / np.sqrt(20_000)
    assert abs(estimates.mean() - minus_logp.mean()) < 5 * error
    # The choice and the Discrete are not drawn, so that the estimate varies less.
    assert estimates.std() < minus_logp.std()


def test_kl_of_distributions_with_other_parts_is_refused(framework):
    dist = make_dist(framework, MIXED, np.zeros((1, 6)))
    other_space = OneOf([Discrete(3), NUMBER])
    other = make_dist(framework, other_space, np.zeros((1, 7)))

    with pytest.raises(ModelContractError, match="with the same parts"):
        dist.kl(other)


# --- samples --------------------------------------------------------------------------------------


def test_samples_have_the_frequencies_of_logp(framework):
    space, actions = DISCRETE_CASES["a OneOf in a OneOf"]
    row = random_inputs(framework, space)
    framework.seed(0)

    samples = framework.numpy(make_dist(framework, space, np.tile(row, (20_000, 1))).sample())

    frequencies = [(samples == action).all(axis=1).mean() for action in actions]
    assert sum(frequencies) == pytest.approx(1)  # other parts are 0
    np.testing.assert_allclose(
        frequencies, probabilities(framework, space, row, actions), atol=0.015
    )


def test_sample_and_its_flat_form_have_the_same_logp(framework):
    dist = make_dist(framework, MIXED, random_inputs(framework, MIXED, rows=50))
    sample = dist.sample()

    # A copy is not recognised as the last sample.
    copy = framework.tensor(framework.numpy(sample))
    np.testing.assert_allclose(dist.logp(sample), dist.logp(copy), rtol=1e-5)
    np.testing.assert_allclose(dist.sampled_action_logp(), dist.logp(copy), rtol=1e-5)


@each_discrete_case
def test_deterministic_sample_is_most_likely_action(framework, case):
    space, actions = DISCRETE_CASES[case]
    for row in random_inputs(framework, space, rows=20):
        dist = make_dist(framework, space, row[None])

        best = framework.numpy(dist.deterministic_sample())[0]

        most_likely = actions[probabilities(framework, space, row[None], actions).argmax()]
        np.testing.assert_array_equal(best, most_likely)


def test_deterministic_sample_with_numbers_is_of_likely_part(framework):
    # The first row prefers the Discrete and its value 1, the second row the number 0.25.
    inputs = [[1, 0, 0, 1, 0.25, 0], [0, 1, 0, 1, 0.25, 0]]
    dist = make_dist(framework, MIXED, inputs)

    np.testing.assert_allclose(dist.deterministic_sample(), [[0, 1, 0], [1, 0, 0.25]])


def test_rsample_has_gradient_of_chosen_part(framework):
    # The choice of the number is certain.
    inputs = np.array([[-50, 50, 0, 0, 0.3, 0]], np.float32)

    def number_of_sample(inputs):
        dist_class, _ = class_of(framework, MIXED)
        return dist_class(inputs).rsample()[:, 2]

    gradient = framework.gradient(number_of_sample, inputs)
    assert gradient[0, 4] == 1  # the mean shifts the number
    np.testing.assert_array_equal(gradient[0, :4], 0)


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number_dist", ["diag_gaussian", "beta", "squashed_gaussian"])
def test_part_that_is_not_chosen_has_gradient_zero(framework, number_dist):
    config = {"custom_action_dist": {"action[1]": number_dist}}
    space = OneOf([Discrete(2), Box(2, 5, (1,), np.float32)])
    dist_class, _ = class_of(framework, space, config)
    inputs = random_inputs(framework, space, rows=3, config=config)
    # 0 is outside the bounds of the Box; other columns of the first part may hold anything.
    actions = np.array([[0, 1, 0], [1, 0, 2.5], [0, 1, np.inf]], np.float32)

    gradient = framework.gradient(lambda inputs: dist_class(inputs).logp(actions), inputs)

    of_discrete = gradient[:, 2:4]
    of_number = gradient[:, 4:]
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(of_number[[0, 2]], 0)
    np.testing.assert_array_equal(of_discrete[1], 0)
    assert (of_discrete[[0, 2]] != 0).all()
    assert (of_number[1] != 0).all()


class PowerLaw(TorchDistribution):
    """A distribution of the program on (0, 1): log p(x) = log a + (a - 1) log x, infinite at 0."""

    def logp(self, actions):
        shape = self.inputs[:, 0].exp()
        return shape.log() + (shape - 1) * actions[:, 0].log()

    def sample(self):
        return torch.rand(len(self.inputs), 1) ** self.inputs.detach().neg().exp()

    def deterministic_sample(self):
        return torch.full((len(self.inputs), 1), 0.5)

    @staticmethod
    def required_model_output_shape(action_space, model_config=None):
        return 1


def test_infinite_density_of_another_part_gives_no_nan():
    config = {"custom_action_dist": {"action[1]": PowerLaw}}
    dist_class, size = ModelCatalog.get_action_dist(MIXED, config, framework="torch")
    inputs = torch.zeros(1, size, requires_grad=True)

    # 0 stands in the columns of the part that is not chosen.
    dist_class(inputs).logp(torch.tensor([[0, 1, 0.0]])).sum().backward()

    assert torch.isfinite(inputs.grad).all()
    assert inputs.grad[0, 4] == 0


# --- masks ----------------------------------------------------------------------------------------


class NeedsAnAllowedValue(Categorical):
    """A distribution of the program that cannot mask a row without allowed values."""

    @classmethod
    def masked(cls, inputs, mask, **options):
        assert mask.any(dim=1).all()
        return super().masked(inputs, mask, **options)


def test_distribution_of_shut_part_gets_no_row_without_values():
    config = {"custom_action_dist": {"action[0]": NeedsAnAllowedValue}}
    dist_class, size = ModelCatalog.get_action_dist(CHOICES, config, framework="torch")
    # The second part may be chosen, and has all four values of its bits.
    mask = torch.tensor([[False, True, *[False] * 3, *[True] * 4]])

    dist = dist_class(dist_class.masked(torch.zeros(1, size), mask))

    np.testing.assert_allclose(dist.entropy(), [np.log(4)], rtol=1e-5)


def test_masks_shut_choice_and_values_exactly(framework):
    space = OneOf([Discrete(3), MultiDiscrete([2, 3]), NUMBER])
    rows = 10_000
    rng = np.random.default_rng(0)
    masks = ActionMasks(SpaceInfo.read(space, "action"))
    mask = rng.random((rows, masks.size)) < 0.5
    mask[:, [0, 3]] = True  # the first part, and one of its values
    inputs = 3 * random_inputs(framework, space, rows=rows)
    framework.seed(0)
    dist = make_dist(framework, space, inputs, mask=mask)

    samples = framework.numpy(dist.sample())
    best = framework.numpy(dist.deterministic_sample())

    for raw in (samples, best):
        chosen = raw[:, 0].astype(int)
        assert mask[np.arange(rows), chosen].all()
        first = chosen == 0
        assert mask[first, 3 + raw[first, 1].astype(int)].all()
        second = chosen == 1
        assert mask[second, 6 + raw[second, 2].astype(int)].all()
        assert mask[second, 8 + raw[second, 3].astype(int)].all()
        assert framework.all_finite(dist.logp(raw))
    assert set(np.unique(samples[:, 0])) == {0, 1, 2}


@each_discrete_case
def test_forbidden_actions_have_probability_zero(framework, case):
    space, actions = DISCRETE_CASES[case]
    masks = ActionMasks(SpaceInfo.read(space, "action"))
    codec = masks._codec
    rng = np.random.default_rng(0)
    row = random_inputs(framework, space)
    for _ in range(10):
        mask = rng.random((1, masks.size)) < 0.6
        mask[0, codec.mask_taken(actions[rng.integers(len(actions))][None])] = True
        is_allowed = mask[0, codec.mask_taken(actions)].all(axis=1)

        chances = probabilities(framework, space, row, actions, mask)

        assert (chances[~is_allowed] == 0).all()
        assert (chances[is_allowed] > 0).all()
        assert chances.sum() == pytest.approx(1, abs=1e-5)


def test_part_without_allowed_values_is_not_chosen(framework):
    inputs = np.zeros((1, 3 + 2 + 2), np.float32)
    # In Gymnasium's format, masks have no choice; MultiBinary: 2 allows both values of a bit.
    mask = (np.zeros((1, 3)), np.full((1, 2), 2))
    space = CHOICES

    dist = make_dist(framework, space, inputs, mask=mask)

    logp = dist.logp(np.array([[0, 1, 0, 0]]))
    assert framework.numpy(logp)[0] < -1e30
    np.testing.assert_allclose(dist.entropy(), [np.log(4)], rtol=1e-5)


def test_mask_of_shut_part_does_not_matter(framework):
    inputs = np.zeros((1, 3 + 2 + 2), np.float32)
    choice = np.array([[0, 1]])
    for mask_of_discrete in ([[0, 0, 0]], [[1, 0, 0]], [[1, 1, 1]]):
        mask = (choice, np.array(mask_of_discrete), None)

        dist = make_dist(framework, CHOICES, inputs, mask=mask)

        np.testing.assert_allclose(dist.entropy(), [np.log(4)], rtol=1e-5)
        assert framework.all_finite(dist.kl(make_dist(framework, CHOICES, inputs)))


def test_mask_of_wrong_width_is_refused(framework):
    dist_class, size = class_of(framework, CHOICES)

    with pytest.raises(ActionMaskError, match="expected a mask of 9 columns"):
        dist_class.masked(framework.tensor(np.zeros((1, size), np.float32)), np.ones((1, 5), bool))


# --- both frameworks, forms and errors ------------------------------------------------------------


def test_torch_and_tensorflow_agree():
    space = OneOf([MIXED, Dict({"bits": MultiBinary(2), "at": NUMBER}), CHOICES])
    torch_class, size = ModelCatalog.get_action_dist(space, {}, framework="torch")
    tf_class, tf_size = ModelCatalog.get_action_dist(space, {}, framework="tf")
    assert size == tf_size
    inputs, other_inputs = np.random.default_rng(0).normal(size=(2, 8, size)).astype(np.float32)
    dist = torch_class(torch.tensor(inputs))
    tf_dist = tf_class(tf.constant(inputs))

    actions = dist.sample().numpy()
    np.testing.assert_allclose(dist.logp(actions), tf_dist.logp(actions), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dist.entropy(), tf_dist.entropy(), rtol=1e-5)
    np.testing.assert_allclose(dist.deterministic_sample(), tf_dist.deterministic_sample())
    kl = dist.kl(torch_class(torch.tensor(other_inputs)))
    np.testing.assert_allclose(kl, tf_dist.kl(tf_class(tf.constant(other_inputs))), rtol=1e-4)


@pytest.mark.parametrize("space", [MIXED, CHOICES], ids=["numbers", "choices"])
def test_half_precision_equals_float32_up_to_rounding(framework, space):
    dist_class, size = class_of(framework, space)
    inputs, other_inputs = np.random.default_rng(0).normal(size=(2, 20, size)).astype(np.float16)
    full = dist_class(framework.tensor(inputs, "float32"))
    half = dist_class(framework.tensor(inputs, "float16"))
    other = dist_class(framework.tensor(other_inputs, "float16"))
    other_full = dist_class(framework.tensor(other_inputs, "float32"))

    actions = framework.numpy(full.sample())

    for result, expected in (
        (half.logp(actions), full.logp(actions)),
        (half.entropy(), full.entropy()),
        (half.kl(other), full.kl(other_full)),
    ):
        np.testing.assert_allclose(
            framework.numpy(result), framework.numpy(expected), rtol=0.02, atol=0.02
        )
    assert framework.all_finite(half.logp(half.sample()))
    assert framework.all_finite(half.logp(half.deterministic_sample()))


def test_raw_actions_are_integers_if_all_parts_are_choices(framework):
    sample = make_dist(framework, CHOICES, np.zeros((2, 7))).sample()

    assert framework.numpy(sample).dtype == np.int64
    assert tuple(sample.shape) == (2, 4)


def test_wrong_width_of_actions_is_refused(framework):
    dist = make_dist(framework, CHOICES, np.zeros((2, 7)))

    with pytest.raises(ModelContractError, match="expected raw actions of shape"):
        dist.logp(np.zeros((2, 3)))


def test_wrong_width_of_inputs_is_refused(framework):
    with pytest.raises(ModelContractError, match="expected 7 model outputs"):
        make_dist(framework, CHOICES, np.zeros((2, 6)))


def test_relaxed_choice_is_refused(framework):
    with pytest.raises(UnsupportedSpaceError, match="must draw the number of a part"):
        class_of(framework, MIXED, {"custom_action_dist": "gumbel_softmax"})


def test_part_may_have_a_relaxed_distribution(framework):
    config = {"custom_action_dist": {"action[0]": "gumbel_softmax"}}
    dist = make_dist(framework, MIXED, np.zeros((3, 6)), config)

    # The choice, a relaxed one-hot vector of two numbers, and the number.
    assert tuple(dist.sample().shape) == (3, 4)
    assert framework.all_finite(dist.logp(dist.sample()))


@pytest.mark.parametrize("name", ["one_of", "multi_action"])
def test_joint_distribution_for_another_space_is_refused(framework, name):
    space = {"one_of": Tuple([Discrete(2)]), "multi_action": MIXED}[name]

    with pytest.raises(UnsupportedSpaceError, match="which does not fit"):
        class_of(framework, space, {"custom_action_dist": name})
