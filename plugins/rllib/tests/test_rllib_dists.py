"""The distribution class that Ray builds from parameters alone says what the catalog's distribution
says.
"""

import numpy as np
import pytest
from action_kinds import ACTIONS, PAIR

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import torch

import rlcatalog
from rlcatalog.errors import ModelContractError, NoClosedFormError, NotServedError
from rlcatalog_rllib.distribution import CatalogDistribution
from rlcatalog_torch import Categorical, FullyConnectedNetwork


def policy_of(name):
    space, model = ACTIONS[name]
    return rlcatalog.build(PAIR, space, {"fcnet_hiddens": [8], **model})


def params_of(policy, *shape):
    return torch.randn(
        *shape, policy.resolution.num_outputs, generator=torch.Generator().manual_seed(1)
    )


@pytest.mark.parametrize(
    ("name", "shape"), [*((name, (2, 3)) for name in ACTIONS), ("discrete", (6,)), ("dict", (6,))]
)
def test_draws_and_densities_have_the_shape_of_the_batch(name, shape):
    policy = policy_of(name)
    cls = CatalogDistribution.of(policy)
    params = params_of(policy, *shape)
    dist = cls.from_logits(params)
    action, logp = dist.sample(return_logp=True)
    width = () if policy.action_codec.scalar else (policy.action_codec.width,)
    assert action.shape == (*shape, *width)
    plain = policy.dist_class(params.reshape(6, -1), None)
    torch.testing.assert_close(logp.reshape(6), plain.logp(action.reshape(6, *width)))
    torch.testing.assert_close(dist.logp(action), logp)
    assert dist.entropy().shape == shape
    best = dist.to_deterministic()
    torch.testing.assert_close(best.sample(), best.sample())
    assert best.logp(best.sample()).shape == shape


def test_categorical_agrees_with_torch():
    cls = CatalogDistribution.of(policy_of("discrete"))
    old, new = torch.randn(4, 5), torch.randn(4, 5)
    theirs = [torch.distributions.Categorical(logits=x) for x in (old, new)]
    ours = [cls.from_logits(x) for x in (old, new)]
    torch.testing.assert_close(ours[0].kl(ours[1]), torch.distributions.kl_divergence(*theirs))
    torch.testing.assert_close(ours[0].entropy(), theirs[0].entropy())
    action = ours[0].sample()
    torch.testing.assert_close(ours[1].logp(action), theirs[1].log_prob(action))
    torch.testing.assert_close(ours[0].to_deterministic().sample(), old.argmax(-1))


def test_gaussian_agrees_with_torch():
    cls = CatalogDistribution.of(policy_of("box of rank 3"))
    old, new = torch.randn(2, 4, 12), torch.randn(2, 4, 12)
    theirs = [
        torch.distributions.Normal(*x.chunk(2, -1)[:1], x.chunk(2, -1)[1].exp()) for x in (old, new)
    ]
    ours = [cls.from_logits(x) for x in (old, new)]
    torch.testing.assert_close(
        ours[0].kl(ours[1]), torch.distributions.kl_divergence(*theirs).sum(-1)
    )
    torch.testing.assert_close(ours[0].entropy(), theirs[0].entropy().sum(-1))
    action = ours[0].rsample()
    torch.testing.assert_close(ours[1].logp(action), theirs[1].log_prob(action).sum(-1))


def test_an_entropy_without_a_closed_form_is_estimated_without_bias():
    policy = policy_of("box, squashed")
    params = torch.tensor([[0.3, -0.4, -1.0, -0.5]]).expand(40_000, 4)
    estimate = CatalogDistribution.of(policy).from_logits(params).entropy()
    draws = policy.dist_class(params, None)
    truth = -draws.logp(draws.sample()).mean()
    assert abs(float(estimate.mean() - truth)) < 0.02
    assert float(estimate.std()) > 0.1  # of one draw each


def test_a_divergence_without_a_closed_form_names_the_way_out():
    cls = CatalogDistribution.of(policy_of("discrete, relaxed"))
    with pytest.raises(NoClosedFormError, match="use_kl_loss=False"):
        cls.from_logits(torch.zeros(2, 4)).kl(cls.from_logits(torch.ones(2, 4)))


def test_draws_of_another_shape_are_refused():
    cls = CatalogDistribution.of(policy_of("discrete"))
    with pytest.raises(NotServedError, match=r"sample_shape=\(3,\)"):
        cls.from_logits(torch.zeros(2, 5)).sample(sample_shape=(3,))
    with pytest.raises(NotServedError, match=r"policy\.resolution\.num_outputs"):
        cls.required_input_dim(ACTIONS["discrete"][0])


def test_two_policies_have_two_classes():
    one, two = (CatalogDistribution.of(policy_of(name)) for name in ("discrete", "box"))
    assert one.from_logits(torch.zeros(3, 5)).sample().dtype is torch.int64
    assert two.from_logits(torch.zeros(3, 4)).sample().shape == (3, 2)
    assert np.all(np.abs(one.from_logits(torch.zeros(3, 5)).entropy().numpy() - np.log(5)) < 1e-6)


class Tempered(Categorical):
    """In RLlib's own form, and it reads the model that made its inputs."""

    def __init__(self, inputs, model):
        super().__init__(inputs * model.sharpness, model)


class Sharp(FullyConnectedNetwork):
    def __init__(self, *args):
        super().__init__(*args)
        self.sharpness = torch.nn.Parameter(torch.tensor(0.5))


def test_one_that_needs_the_model_has_that_of_its_module(bench):
    model = {"custom_model": Sharp, "custom_action_dist": Tempered}
    config = bench.config("CartPole-v1", model, fragment=10)
    runner = bench.runner(config)
    learner = bench.learner(config, runner)
    module = learner.module["default_policy"]
    params = torch.randn(4, 2)
    dist = module.get_train_action_dist_cls().from_logits(params)
    torch.testing.assert_close(dist.dist.inputs, params * 0.5)
    before = module.model.sharpness.item()
    bench.update(learner, runner.sample())
    assert module.model.sharpness.item() != before


class InNumPy(Categorical):
    """Samples arrays."""

    def sample(self):
        return super().sample().numpy()


def test_one_that_samples_arrays_is_named(bench):
    runner = bench.runner(bench.config("CartPole-v1", {"custom_action_dist": InNumPy}, fragment=10))
    with pytest.raises(
        ModelContractError,
        match=r"InNumPy\.sample\(\) must return tensors .*'torch'; found ndarray",
    ):
        runner.sample()
