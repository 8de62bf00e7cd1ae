"""`policy.as_module()` and `actor_critic` in PyTorch, against NumPy by hand and
`torch.distributions`.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from torch import nn

import rlcatalog
from rlcatalog.errors import ActionMaskError, NotServedError, ObservationError
from rlcatalog_torch import TorchModelV2, actor_critic

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = Box(-1, 1, (3,), np.float32)
MASKED = Dict({"obs": OBS, "action_mask": MultiBinary(4)})
SEPARATE = {"fcnet_hiddens": [8], "vf_share_layers": False}


def policy_of(action=None, config=None, obs=OBS):
    return rlcatalog.build(
        obs, action or Discrete(4), {"fcnet_hiddens": [8], **(config or {})}, "torch"
    )


def observations(*axes):
    return torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (*axes, 3)).astype(np.float32))


def by_hand(policy, obs):
    """Return logits and values of a net with one shared layer, as NumPy computes them of its
    weights.
    """
    weights = list(policy.model.get_weights().values())
    layer, bias, logits, logits_bias, value, value_bias = weights
    features = np.tanh(obs.numpy() @ layer.T + bias)
    return torch.from_numpy(features @ logits.T + logits_bias), torch.from_numpy(
        features @ value.T + value_bias
    )[:, 0]


def test_it_returns_the_distribution_and_the_value_that_its_weights_say():
    policy, obs = policy_of(), observations(5)
    dist, value = policy.as_module()(obs)
    logits, expected = by_hand(policy, obs)
    truth, actions = torch.distributions.Categorical(logits=logits), torch.tensor([0, 1, 2, 3, 0])
    torch.testing.assert_close(dist.logp(actions), truth.log_prob(actions))
    torch.testing.assert_close(dist.entropy(), truth.entropy())
    torch.testing.assert_close(value, expected)


def test_training_it_trains_the_policy():
    policy, obs = policy_of(config=SEPARATE), observations(32)
    module, before = policy.as_module(), policy.act(obs.numpy(), explore=False)
    assert list(map(id, module.parameters())) == list(map(id, policy.model.parameters()))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(50):
        dist, value = module(obs)
        optimizer.zero_grad()
        ((value - 1).square().mean() - dist.logp(torch.full((32,), 2)).mean()).backward()
        assert all(weight.grad is not None for weight in module.parameters())
        optimizer.step()
    after = policy.act(obs.numpy(), explore=False)
    assert (after.raw_action == 2).all()
    assert not (before.raw_action == 2).all()
    assert abs(after.value - 1).mean() < 0.1 < abs(before.value - 1).mean()


def test_masks_are_baked_in():
    policy, obs = policy_of(obs=MASKED), observations(6)
    mask = torch.tensor([[True, False, True, False]] * 6)
    dist, _ = policy.as_module()(obs, mask)
    logits, _ = by_hand(policy, obs)
    truth = torch.distributions.Categorical(logits=logits.where(mask, -torch.inf))
    actions = torch.tensor([0, 2] * 3)
    torch.testing.assert_close(dist.logp(actions), truth.log_prob(actions))
    assert not {1, 3} & {int(action) for _ in range(50) for action in dist.sample()}


class Dropping(TorchModelV2):
    """Half of its features are dropped in training."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.layer, self.drop = nn.Linear(3, self.num_outputs), nn.Dropout(0.5)

    def forward(self, input_dict, state, seq_lens):
        self.told = input_dict["is_training"]
        self.outputs = self.layer(self.drop(input_dict["obs"]))
        return self.outputs, state

    def value_function(self):
        return self.outputs[:, 0]


def test_its_mode_is_the_models_whatever_acting_and_scoring_have_set():
    policy, obs = policy_of(config={"custom_model": Dropping}), observations(64)
    # Leaves the model in eval mode.
    module, acted = policy.as_module(), torch.from_numpy(policy.act(obs.numpy()).value)
    assert not torch.allclose(module(obs)[1], acted)
    assert policy.model.told
    module.eval()
    policy.evaluate({"obs": obs, "raw_action": torch.zeros(64, 1)})  # and this in train mode
    torch.testing.assert_close(module(obs)[1], acted)
    assert not policy.model.told


def test_a_deep_copy_has_weights_of_its_own():
    policy, obs = policy_of(), observations(4)
    module = policy.as_module()
    target, before = copy.deepcopy(module), module(obs)[1].detach()
    assert target.policy is policy
    assert {*map(id, target.parameters())}.isdisjoint(map(id, module.parameters()))
    with torch.no_grad():
        for weight in module.parameters():
            weight += 1
    torch.testing.assert_close(target(obs)[1], before)
    target.load_state_dict(module.state_dict())
    torch.testing.assert_close(target(obs)[1], module(obs)[1])


def test_moved_it_takes_the_policy_along_and_a_copy_does_not():
    policy = policy_of()
    module = policy.as_module()
    copy.deepcopy(module).to("meta")
    assert (policy.device, next(policy.model.parameters()).device.type) == ("cpu", "cpu")
    module.double()
    assert module(observations(2))[1].dtype is torch.float64
    module.to("meta")
    assert (policy.device, str(policy.backend.device)) == ("meta", "meta")


def test_functional_calls_see_the_given_weights():
    policy, obs = policy_of(), observations(4)
    module = policy.as_module()
    zeros = {name: torch.zeros_like(weight) for name, weight in module.named_parameters()}
    dist, value = torch.func.functional_call(module, zeros, (obs,))
    torch.testing.assert_close(value, torch.zeros(4))
    torch.testing.assert_close(dist.entropy(), torch.full((4,), np.log(4), dtype=torch.float32))


def test_what_it_cannot_do_is_refused():
    module, masked = policy_of().as_module(), policy_of(obs=MASKED).as_module()
    with pytest.raises(
        ObservationError, match=r"expected encoded observations of shape \[B, 3\].*add an axis"
    ):
        module(observations(1)[0])
    with pytest.raises(
        ActionMaskError, match=r"mask: expected shape \(2, 4\).*found shape \(2, 3\)"
    ):
        masked(observations(2), torch.ones(2, 3))
    with pytest.raises(ActionMaskError, match="row 1 allows no action"):
        masked(observations(2), torch.tensor([[True] * 4, [False] * 4]))
    with pytest.raises(ActionMaskError, match="none is given"):
        masked(observations(2))
    with pytest.raises(NotServedError, match="has no memory"):
        module(observations(2), state=())
    with pytest.raises(NotServedError, match="reads past steps"):
        policy_of(config={"use_lstm": True, "lstm_use_prev_action": True}).as_module()
    with pytest.raises(NotServedError, match="has a memory"):
        actor_critic(policy_of(config={"use_lstm": True}))


class Valueless(TorchModelV2):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.layer = nn.Linear(3, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs"]), state


def test_a_model_without_values_has_no_critic():
    policy = policy_of(config={"custom_model": Valueless})
    assert policy.as_module()(observations(2))[1] is None
    with pytest.raises(NotServedError, match=r"Valueless has no value_function"):
        actor_critic(policy)


@pytest.mark.parametrize("axes", [(), (5,), (2, 3)], ids=str)
@pytest.mark.parametrize("action", [Discrete(4), Box(-1, 1, (2,), np.float32)], ids=str)
def test_actor_critic_and_distribution_take_batches_of_any_axes(action, axes):
    policy, obs = policy_of(action), observations(*axes)
    actor, critic, dist_class = actor_critic(policy)
    inputs, value = actor(obs), critic(obs)
    logits, expected = by_hand(policy, obs.reshape(-1, 3))
    torch.testing.assert_close(inputs, logits.reshape(*axes, 4))
    torch.testing.assert_close(value, expected.reshape(*axes, 1))
    dist = dist_class(inputs)
    if isinstance(action, Discrete):
        truth = torch.distributions.Categorical(logits=inputs)
        likely = inputs.argmax(-1)
    else:
        likely, log_std = inputs.chunk(2, -1)
        truth = torch.distributions.Independent(
            torch.distributions.Normal(likely, log_std.exp()), 1
        )
    sample = dist.sample()
    assert sample.shape == truth.sample().shape
    assert dist.sample((2, 1)).shape == truth.sample((2, 1)).shape
    assert dist.batch_shape == axes
    torch.testing.assert_close(dist.log_prob(sample), truth.log_prob(sample))
    torch.testing.assert_close(dist.entropy(), truth.entropy())
    torch.testing.assert_close(dist.mode, likely)
    torch.testing.assert_close(dist.deterministic_sample, likely)
    assert dist.stddev.shape == sample.shape
    assert dist.stddev.isnan().all()


def test_an_actor_takes_masks_of_any_axes():
    actor, _, dist_class = actor_critic(policy_of(obs=MASKED))
    mask = torch.tensor([[False, True, False, True]] * 6).reshape(2, 3, 4)
    sample = torch.stack([dist_class(actor(observations(2, 3), mask)).sample() for _ in range(20)])
    assert set(sample.flatten().tolist()) == {1, 3}


def test_parts_that_depend_on_one_another_read_the_model():
    """An autoregressive distribution asks the model for the parameters of its later parts."""
    from gymnasium.spaces import Tuple

    policy = policy_of(Tuple([Discrete(2), Discrete(3)]), {"custom_action_dist": "autoregressive"})
    actor, _, dist_class = actor_critic(policy)
    dist, found = dist_class(actor(observations(4))), policy.as_module()(observations(4))[0]
    sample = dist.sample()
    torch.testing.assert_close(dist.log_prob(sample), found.logp(sample))
