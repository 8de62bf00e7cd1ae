"""`policy.as_module()` and `actor_critic` in PyTorch, against NumPy and `torch.distributions`."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from torch import nn

import rlcatalog
from rlcatalog.errors import ActionMaskError, NotServedError, ObservationError
from rlcatalog_torch import TorchModelV2, actor_critic

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
FOUR_ACTIONS = Discrete(4)


def build_policy(action_space=FOUR_ACTIONS, obs_space=THREE_FEATURES, **config):
    return rlcatalog.build(obs_space, action_space, {"fcnet_hiddens": [8], **config}, "torch")


def build_masked_policy():
    """Build a policy whose observations have a mask of four actions."""
    return build_policy(obs_space=Dict({"obs": THREE_FEATURES, "action_mask": MultiBinary(4)}))


def random_observations(*axes):
    obs = np.random.default_rng(0).uniform(-1, 1, (*axes, 3))
    return torch.from_numpy(obs.astype(np.float32))


def compute_by_hand(policy, obs):
    """Return logits and values of one shared layer, in NumPy from the policy's weights."""
    weights = list(policy.model.get_weights().values())
    layer, bias, logits, logits_bias, value, value_bias = weights
    features = np.tanh(obs.numpy() @ layer.T + bias)
    values = features @ value.T + value_bias
    return torch.from_numpy(features @ logits.T + logits_bias), torch.from_numpy(values[:, 0])


# --- what a module returns ------------------------------------------------------------------------


def test_module_returns_distribution_and_value_of_its_weights():
    policy = build_policy()
    obs = random_observations(5)
    actions = torch.tensor([0, 1, 2, 3, 0])

    dist, value = policy.as_module()(obs)

    logits, expected_value = compute_by_hand(policy, obs)
    expected = torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(dist.logp(actions), expected.log_prob(actions))
    torch.testing.assert_close(dist.entropy(), expected.entropy())
    torch.testing.assert_close(value, expected_value)


def test_module_applies_masks():
    policy = build_masked_policy()
    obs = random_observations(6)
    mask = torch.tensor([[True, False, True, False]] * 6)
    allowed_actions = torch.tensor([0, 2, 0, 2, 0, 2])

    dist, _ = policy.as_module()(obs, mask)

    logits, _ = compute_by_hand(policy, obs)
    expected = torch.distributions.Categorical(logits=logits.where(mask, -torch.inf))
    torch.testing.assert_close(dist.logp(allowed_actions), expected.log_prob(allowed_actions))


class WithoutValue(TorchModelV2):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.layer = nn.Linear(3, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs"]), state


def test_module_of_model_without_value_returns_none():
    policy = build_policy(custom_model=WithoutValue)

    _, value = policy.as_module()(random_observations(2))

    assert value is None


# --- training, copying, moving --------------------------------------------------------------------


def test_module_has_the_parameters_of_the_model():
    policy = build_policy()

    parameters = zip(policy.as_module().parameters(), policy.model.parameters(), strict=True)

    assert all(of_module is of_model for of_module, of_model in parameters)


def test_training_the_module_trains_the_policy():
    policy = build_policy(vf_share_layers=False)
    obs = random_observations(32)
    before = policy.act(obs.numpy(), explore=False)

    # Train towards action 2 and value 1.
    module = policy.as_module()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(50):
        dist, value = module(obs)
        loss = (value - 1).square().mean() - dist.logp(torch.full((32,), 2)).mean()
        optimizer.zero_grad()
        loss.backward()
        assert all(weight.grad is not None for weight in module.parameters())
        optimizer.step()

    after = policy.act(obs.numpy(), explore=False)
    assert (after.raw_action == 2).all()
    assert not (before.raw_action == 2).all()
    assert abs(after.value - 1).mean() < 0.1 < abs(before.value - 1).mean()


class WithDropout(TorchModelV2):
    """Drops half of its features in training."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.layer = nn.Linear(3, self.num_outputs)
        self.dropout = nn.Dropout(0.5)

    def forward(self, input_dict, state, seq_lens):
        self.is_training = input_dict["is_training"]
        self.outputs = self.layer(self.dropout(input_dict["obs"]))
        return self.outputs, state

    def value_function(self):
        return self.outputs[:, 0]


def test_module_in_train_mode_trains_after_the_policy_acted():
    policy = build_policy(custom_model=WithDropout)
    obs = random_observations(64)
    module = policy.as_module()

    value_of_act = policy.act(obs.numpy()).value  # leaves the model in eval mode
    _, value = module(obs)

    assert policy.model.is_training
    assert not torch.allclose(value, torch.from_numpy(value_of_act))


def test_module_in_eval_mode_does_not_train_after_an_evaluation():
    policy = build_policy(custom_model=WithDropout)
    obs = random_observations(64)
    module = policy.as_module().eval()
    value_of_act = torch.from_numpy(policy.act(obs.numpy()).value)

    # Leaves the model in train mode.
    policy.evaluate({"obs": obs, "raw_action": torch.zeros(64, 1)})
    _, value = module(obs)

    assert not policy.model.is_training
    torch.testing.assert_close(value, value_of_act)


def test_deepcopy_of_module_has_its_own_weights():
    module = build_policy().as_module()

    copied = copy.deepcopy(module)

    weights = {id(weight) for weight in module.parameters()}
    assert copied.policy is module.policy
    assert weights.isdisjoint(id(weight) for weight in copied.parameters())


def test_deepcopy_of_module_keeps_its_values():
    obs = random_observations(4)
    module = build_policy().as_module()
    copied = copy.deepcopy(module)
    value_before = module(obs)[1].detach()

    with torch.no_grad():
        for weight in module.parameters():
            weight += 1

    _, value_of_copy = copied(obs)
    torch.testing.assert_close(value_of_copy, value_before)


def test_deepcopy_of_module_loads_a_state_dict():
    obs = random_observations(4)
    module = build_policy().as_module()
    copied = copy.deepcopy(module)
    with torch.no_grad():
        for weight in module.parameters():
            weight += 1

    copied.load_state_dict(module.state_dict())

    _, value = module(obs)
    _, value_of_copy = copied(obs)
    torch.testing.assert_close(value_of_copy, value)


def test_moving_the_module_moves_the_policy():
    policy = build_policy()

    policy.as_module().to("meta")

    assert policy.device == "meta"
    assert str(policy.backend.device) == "meta"


def test_moving_a_copy_does_not_move_the_policy():
    policy = build_policy()

    copy.deepcopy(policy.as_module()).to("meta")

    assert policy.device == "cpu"
    assert next(policy.model.parameters()).device.type == "cpu"


def test_module_in_double_precision_returns_double_values():
    module = build_policy().as_module().double()

    _, value = module(random_observations(2))

    assert value.dtype is torch.float64


def test_functional_call_uses_the_given_weights():
    module = build_policy().as_module()
    zeros = {name: torch.zeros_like(weight) for name, weight in module.named_parameters()}

    dist, value = torch.func.functional_call(module, zeros, (random_observations(4),))

    # Without weights all values are 0, and four actions equally likely.
    expected_entropy = torch.full((4,), np.log(4), dtype=torch.float32)
    torch.testing.assert_close(value, torch.zeros(4))
    torch.testing.assert_close(dist.entropy(), expected_entropy)


# --- errors ---------------------------------------------------------------------------------------


def test_observation_without_batch_axis_is_an_error():
    module = build_policy().as_module()

    with pytest.raises(ObservationError, match=r"of shape \[B, 3\].*add an axis") as caught:
        module(random_observations(1)[0])

    assert "expected encoded observations" in str(caught.value)


def test_mask_of_wrong_shape_is_an_error():
    module = build_masked_policy().as_module()

    with pytest.raises(ActionMaskError, match=r"shape \(2, 4\).*found shape \(2, 3\)"):
        module(random_observations(2), torch.ones(2, 3))


def test_mask_that_allows_nothing_is_an_error():
    mask = torch.tensor([[True, True, True, True], [False, False, False, False]])

    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        build_masked_policy().as_module()(random_observations(2), mask)


def test_missing_mask_is_an_error():
    with pytest.raises(ActionMaskError, match="none is given"):
        build_masked_policy().as_module()(random_observations(2))


def test_state_without_memory_is_an_error():
    with pytest.raises(NotServedError, match="has no memory"):
        build_policy().as_module()(random_observations(2), state=())


def test_module_of_model_with_past_actions_is_an_error():
    policy = build_policy(use_lstm=True, lstm_use_prev_action=True)

    with pytest.raises(NotServedError, match="reads past steps"):
        policy.as_module()


# --- actor_critic ---------------------------------------------------------------------------------


def test_actor_critic_of_model_with_memory_is_an_error():
    with pytest.raises(NotServedError, match="has a memory"):
        actor_critic(build_policy(use_lstm=True))


def test_actor_critic_of_model_without_value_is_an_error():
    with pytest.raises(NotServedError, match="WithoutValue has no value_function"):
        actor_critic(build_policy(custom_model=WithoutValue))


each_action_space = pytest.mark.parametrize(
    "action_space", [Discrete(4), Box(-1, 1, (2,), np.float32)], ids=str
)
each_batch_shape = pytest.mark.parametrize("axes", [(), (5,), (2, 3)], ids=str)


@each_action_space
@each_batch_shape
def test_actor_and_critic_take_batches_of_any_shape(action_space, axes):
    policy = build_policy(action_space)
    obs = random_observations(*axes)
    actor, critic, _ = actor_critic(policy)

    logits, value = compute_by_hand(policy, obs.reshape(-1, 3))

    # Both spaces need four outputs.
    torch.testing.assert_close(actor(obs), logits.reshape(*axes, 4))
    torch.testing.assert_close(critic(obs), value.reshape(*axes, 1))


def make_exact(action_space, inputs):
    """Return the distribution of PyTorch for the outputs of an actor."""
    if isinstance(action_space, Discrete):
        return torch.distributions.Categorical(logits=inputs)
    mean, log_std = inputs.chunk(2, -1)
    return torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)


@each_action_space
@each_batch_shape
def test_distribution_of_actor_has_shapes_of_pytorch(action_space, axes):
    actor, _, dist_class = actor_critic(build_policy(action_space))
    inputs = actor(random_observations(*axes))

    dist = dist_class(inputs)

    exact = make_exact(action_space, inputs)
    assert dist.batch_shape == axes
    assert dist.sample().shape == exact.sample().shape
    assert dist.sample((2, 1)).shape == exact.sample((2, 1)).shape


@each_action_space
@each_batch_shape
def test_distribution_of_actor_matches_pytorch(action_space, axes):
    actor, _, dist_class = actor_critic(build_policy(action_space))
    inputs = actor(random_observations(*axes))

    dist = dist_class(inputs)

    exact = make_exact(action_space, inputs)
    sample = dist.sample()
    torch.testing.assert_close(dist.log_prob(sample), exact.log_prob(sample))
    torch.testing.assert_close(dist.entropy(), exact.entropy())
    torch.testing.assert_close(dist.mode, exact.mode)
    torch.testing.assert_close(dist.deterministic_sample, exact.mode)


@each_action_space
@each_batch_shape
def test_distribution_of_actor_has_no_stddev(action_space, axes):
    actor, _, dist_class = actor_critic(build_policy(action_space))

    dist = dist_class(actor(random_observations(*axes)))

    assert dist.stddev.shape == dist.sample().shape
    assert dist.stddev.isnan().all()


def test_actor_takes_masks_of_any_shape():
    actor, _, dist_class = actor_critic(build_masked_policy())
    mask = torch.tensor([False, True, False, True]).expand(2, 3, 4)

    dist = dist_class(actor(random_observations(2, 3), mask))

    samples = torch.stack([dist.sample() for _ in range(20)])
    assert set(samples.flatten().tolist()) == {1, 3}


def test_autoregressive_distribution_of_actor_reads_the_model():
    # It asks the model for the parameters of its later parts.
    policy = build_policy(Tuple([Discrete(2), Discrete(3)]), custom_action_dist="autoregressive")
    obs = random_observations(4)
    actor, _, dist_class = actor_critic(policy)

    dist = dist_class(actor(obs))
    sample = dist.sample()

    expected, _ = policy.as_module()(obs)
    torch.testing.assert_close(dist.log_prob(sample), expected.logp(sample))
