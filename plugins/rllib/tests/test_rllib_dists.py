"""Distribution classes that Ray builds from parameters, compared with the catalog's and with
PyTorch's.
"""

import numpy as np
import pytest
from action_kinds import ACTIONS as ACTION_SPACES, PAIR

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import torch
from engine_models import SamplesArrays
from torch.distributions import Normal, kl_divergence

import rlcatalog
from rlcatalog.errors import ModelContractError, NoClosedFormError, NotServedError
from rlcatalog_rllib.distribution import CatalogDistribution
from rlcatalog_torch import Categorical, FullyConnectedNetwork


def build_policy(name):
    """Return a policy for an action space of `ACTION_SPACES`."""
    action_space, model = ACTION_SPACES[name]
    return rlcatalog.build(PAIR, action_space, {"fcnet_hiddens": [8], **model})


def dist_class_of(name):
    return CatalogDistribution.of(build_policy(name))


# --- every action space ---------------------------------------------------------------------------


@pytest.mark.parametrize("name_of_action_space", ACTION_SPACES)
def test_sample_has_the_shape_of_the_batch(name_of_action_space):
    policy = build_policy(name_of_action_space)
    # Two sequences of three steps.
    params = torch.randn(2, 3, policy.resolution.num_outputs)
    dist = CatalogDistribution.of(policy).from_logits(params)

    action = dist.sample()

    if policy.action_codec.scalar:  # an action is one number, without an axis of its own
        assert action.shape == (2, 3)
    else:
        assert action.shape == (2, 3, policy.action_codec.width)
    assert dist.entropy().shape == (2, 3)


@pytest.mark.parametrize("name_of_action_space", ACTION_SPACES)
def test_sampled_actions_are_scored_like_in_the_catalog(name_of_action_space):
    policy = build_policy(name_of_action_space)
    # Two sequences of three steps.
    params = torch.randn(2, 3, policy.resolution.num_outputs)
    dist = CatalogDistribution.of(policy).from_logits(params)

    action, logp = dist.sample(return_logp=True)

    # The catalog's distribution has one batch axis, here of six rows.
    catalog_dist = policy.dist_class(params.flatten(0, 1), None)
    expected = catalog_dist.logp(action.flatten(0, 1)).reshape(2, 3)
    torch.testing.assert_close(logp, expected)
    torch.testing.assert_close(dist.logp(action), expected)


@pytest.mark.parametrize("name_of_action_space", ACTION_SPACES)
def test_deterministic_sample_is_always_the_same(name_of_action_space):
    policy = build_policy(name_of_action_space)
    params = torch.randn(2, 3, policy.resolution.num_outputs)

    deterministic = CatalogDistribution.of(policy).from_logits(params).to_deterministic()

    action = deterministic.sample()
    torch.testing.assert_close(deterministic.sample(), action)
    assert deterministic.logp(action).shape == (2, 3)


# --- compared with PyTorch ------------------------------------------------------------------------


def test_categorical_agrees_with_torch():
    dist_class = dist_class_of("discrete")  # five choices
    old_logits = torch.randn(4, 5)
    new_logits = torch.randn(4, 5)
    old = dist_class.from_logits(old_logits)
    new = dist_class.from_logits(new_logits)
    torch_old = torch.distributions.Categorical(logits=old_logits)
    torch_new = torch.distributions.Categorical(logits=new_logits)

    action = old.sample()

    torch.testing.assert_close(old.kl(new), kl_divergence(torch_old, torch_new))
    torch.testing.assert_close(old.entropy(), torch_old.entropy())
    torch.testing.assert_close(new.logp(action), torch_new.log_prob(action))


def test_gaussian_agrees_with_torch():
    def make_normal(params):
        mean, log_std = params.chunk(2, dim=-1)
        return Normal(mean, log_std.exp())

    dist_class = dist_class_of("box of rank 3")  # six numbers, with six means and log_stds
    old_params = torch.randn(4, 12)
    new_params = torch.randn(4, 12)
    old = dist_class.from_logits(old_params)
    new = dist_class.from_logits(new_params)
    torch_old = make_normal(old_params)
    torch_new = make_normal(new_params)

    action = old.rsample()

    # PyTorch's results are those of each number: an action has their sum.
    torch.testing.assert_close(old.kl(new), kl_divergence(torch_old, torch_new).sum(-1))
    torch.testing.assert_close(old.entropy(), torch_old.entropy().sum(-1))
    torch.testing.assert_close(new.logp(action), torch_new.log_prob(action).sum(-1))


# --- entropies and divergences --------------------------------------------------------------------


def test_entropy_without_closed_form_is_estimated_without_bias():
    policy = build_policy("box, squashed")
    params = torch.tensor([[0.3, -0.4, -1.0, -0.5]]).expand(40_000, 4)

    estimates = CatalogDistribution.of(policy).from_logits(params).entropy()

    catalog_dist = policy.dist_class(params, None)
    mean_of_samples = -catalog_dist.logp(catalog_dist.sample()).mean()
    assert abs(float(estimates.mean() - mean_of_samples)) < 0.02
    assert float(estimates.std()) > 0.1  # each is an estimate from one sample


def test_kl_without_closed_form_names_the_setting():
    dist_class = dist_class_of("discrete, relaxed")
    old = dist_class.from_logits(torch.zeros(2, 4))
    new = dist_class.from_logits(torch.ones(2, 4))

    with pytest.raises(NoClosedFormError, match="use_kl_loss=False"):
        old.kl(new)


def test_sample_shape_is_rejected():
    dist = dist_class_of("discrete").from_logits(torch.zeros(2, 5))

    with pytest.raises(NotServedError, match=r"sample_shape=\(3,\)"):
        dist.sample(sample_shape=(3,))


def test_required_input_dim_names_the_number_of_outputs():
    dist_class = dist_class_of("discrete")
    action_space, _ = ACTION_SPACES["discrete"]

    with pytest.raises(NotServedError, match=r"policy\.resolution\.num_outputs"):
        dist_class.required_input_dim(action_space)


def test_two_policies_have_different_classes():
    discrete = dist_class_of("discrete").from_logits(torch.zeros(3, 5))
    box = dist_class_of("box").from_logits(torch.zeros(3, 4))

    assert discrete.sample().dtype is torch.int64
    assert box.sample().shape == (3, 2)
    # The entropy of five equal logits is log 5.
    np.testing.assert_allclose(discrete.entropy().numpy(), np.log(5), rtol=0, atol=1e-6)


# --- a user's distributions -----------------------------------------------------------------------


class WithSharpness(FullyConnectedNetwork):
    """A model with a weight that its distribution uses."""

    def __init__(self, *args):
        super().__init__(*args)
        self.sharpness = torch.nn.Parameter(torch.tensor(0.5))


class SharpCategorical(Categorical):
    """Multiplies its inputs by the model's sharpness."""

    def __init__(self, inputs, model):
        super().__init__(inputs * model.sharpness, model)


def test_distribution_uses_and_trains_a_weight_of_its_model(rllib):
    # The model has a weight "sharpness", which starts at 0.5 and multiplies the
    # distribution's inputs.
    model = {"custom_model": WithSharpness, "custom_action_dist": SharpCategorical}
    config = rllib.configure("CartPole-v1", model, steps_per_env=10)
    runner, learner, module = rllib.make_training(config)
    params = torch.randn(4, 2)

    dist = module.get_train_action_dist_cls().from_logits(params)
    rllib.update(learner, runner.sample())

    catalog_dist = dist.dist  # which Ray's distribution wraps
    torch.testing.assert_close(catalog_dist.inputs, params * 0.5)
    assert module.model.sharpness.item() != 0.5


def test_distribution_that_samples_arrays_is_named(rllib):
    model = {"custom_action_dist": SamplesArrays}
    runner = rllib.make_runner(rllib.configure("CartPole-v1", model))

    with pytest.raises(ModelContractError, match=r"SamplesArrays\.sample\(\) must") as caught:
        runner.sample()

    message = str(caught.value)
    assert "must return tensors" in message
    assert "'torch'; found ndarray" in message
