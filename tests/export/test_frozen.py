"""Frozen policies act as the policies they were made of, with the weights of now."""

from __future__ import annotations

import collections
import copy
import pickle

import numpy as np
import pytest

from rlcatalog.plugins import install_hint

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

import torch
from export_cases import built, cases
from frozen_policies import ROWS, VECTOR, same, user_policy, walk
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from scipy.stats import chisquare, kstest

import rlcatalog
from rlcatalog.errors import (
    ActionMaskError,
    CatalogWarning,
    NonFiniteError,
    NotServedError,
    ObservationError,
)
from rlcatalog.provided import declarations
from rlcatalog_export import observations

#: TensorFlow's are not frozen.
NAMES = [name for name, case in cases().items() if case.framework == "torch"]


@pytest.mark.filterwarnings("ignore:custom_preprocessor")
@pytest.mark.parametrize("name", NAMES)
def test_frozen_policy_acts_as_the_policy(name):
    case = cases()[name]
    policy = built(case)
    frozen = policy.freeze(ROWS, seed=0)
    assert frozen.reason is None
    walk(policy, [frozen], 20 if case.recurrent else 4, case.tolerance)
    # What is drawn has the density that the stored distribution gives it.
    obs, mask = observations(policy, ROWS, np.random.default_rng(3))
    reward = np.zeros(ROWS, np.float32)
    step = frozen.act(obs, prev_reward=reward, mask=mask)
    assert frozen.reason is None
    dist = policy.stored_dist(torch.from_numpy(step.dist_inputs), policy.model)
    raw = torch.from_numpy(step.raw_action)
    with torch.no_grad():
        logp = dist.logp(raw[:, 0] if policy.action_codec.scalar else raw)
    np.testing.assert_allclose(step.logp, logp, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "choices, attention",
        "parts, lstm",
        "complex inputs",
        "autoregressive",
        "parametric",
        "a user's model",
        "squashed gaussian, choices",
    ],
)
def test_every_weight_takes_effect_after_an_update(name):
    policy = built(cases()[name])
    for tensor in policy.model.parameters():  # nothing stands still because it is multiplied by 0
        with torch.no_grad():
            tensor.add_(0.1 * torch.rand_like(tensor))
    obs, mask = observations(policy, ROWS, np.random.default_rng(0))
    reward = np.ones(ROWS, np.float32)
    state = policy.act(obs, prev_reward=np.zeros(ROWS, np.float32), mask=mask, explore=False).state
    frozen = policy.freeze(ROWS)
    act = lambda one: one.act(obs, state, prev_reward=reward, mask=mask, explore=False)  # noqa: E731
    before, unseen = act(frozen), []
    for path, tensor in [*policy.model.named_parameters(), *policy.model.named_buffers()]:
        if not tensor.is_floating_point():
            continue
        with torch.no_grad():
            kept = tensor.clone()
            tensor.add_(0.3 + 0.2 * torch.rand_like(tensor))
        frozen.update()
        same(act(frozen), act(policy), 1e-5)
        if np.array_equal(act(policy).dist_inputs, before.dist_inputs) and np.array_equal(
            act(policy).value, before.value
        ):
            unseen.append(path)
        with torch.no_grad():
            tensor.copy_(kept)
    frozen.update()
    same(act(frozen), before, 0)
    assert frozen.reason is None
    assert len(unseen) <= 4, unseen  # biases of keys, say, which softmax takes out


def test_weights_that_are_other_tensors_now():
    policy = rlcatalog.build(VECTOR, Discrete(3), {"fcnet_hiddens": [8]}, "torch")
    frozen = policy.freeze(ROWS)
    policy.model.load_state_dict(
        {k: v + 0.5 for k, v in policy.model.state_dict().items()}, assign=True
    )
    frozen.update()
    walk(policy, [frozen], 3, 1e-5)
    policy.model.double()
    frozen.update()
    walk(policy, [frozen], 3, 1e-5)
    assert frozen.reason is None


def test_draws_follow_the_distribution():
    logits, n = np.array([2.0, 0.0, -1.0, 0.5], np.float32), 4000
    policy = rlcatalog.build(VECTOR, Discrete(4), {"fcnet_hiddens": []}, "torch")
    weights = policy.model.get_weights()
    policy.model.set_weights({k: logits if w.shape == (4,) else w * 0 for k, w in weights.items()})
    frozen, obs = policy.freeze(n, seed=1), np.zeros((n, 3), np.float32)
    for mask in (None, np.tile(np.array([1, 0, 1, 1], bool), (n, 1))):
        allowed = np.ones(4, bool) if mask is None else mask[0]
        drawn = frozen.act(obs, mask=mask).action
        weights = np.exp(logits.astype(np.float64))[allowed]
        assert not np.isin(drawn, np.flatnonzero(~allowed)).any()
        assert (
            chisquare(np.bincount(drawn, minlength=4)[allowed], weights / weights.sum() * n).pvalue
            > 0.001
        )
    normal = rlcatalog.build(
        VECTOR, Box(-1, 1, (2,), np.float32), {"fcnet_hiddens": []}, "torch"
    ).freeze(n, seed=1)
    step = normal.act(obs)
    centred = (step.raw_action - step.dist_inputs[:, :2]) / np.exp(step.dist_inputs[:, 2:])
    assert kstest(centred.ravel(), "norm").pvalue > 0.001
    assert abs(np.corrcoef(centred.T)[0, 1]) < 0.05


def test_seeds_and_states_of_the_generator():
    policy = rlcatalog.build(VECTOR, Box(-1, 1, (2,), np.float32), {"fcnet_hiddens": [4]}, "torch")
    obs = np.zeros((ROWS, 3), np.float32)
    one, other, third = policy.freeze(seed=3), policy.freeze(seed=3), policy.freeze(seed=4)
    drawn = [one.act(obs).raw_action for _ in range(5)]
    assert all(np.array_equal(other.act(obs).raw_action, raw) for raw in drawn)
    assert not np.array_equal(third.act(obs).raw_action, drawn[0])
    for _ in range(0, 3000, 7):  # over the edges of what is drawn at once
        state = one.random_state()
        drawn = [one.act(obs).raw_action for _ in range(7)]
        third.set_random_state(state)
        assert all(np.array_equal(third.act(obs).raw_action, raw) for raw in drawn)


def test_freezing_leaves_the_policy_unchanged():
    policy = built(cases()["choices, attention"])
    torch.manual_seed(0)
    before = torch.get_rng_state()
    frozen = policy.freeze(ROWS)
    frozen.act(
        *observations(policy, ROWS, np.random.default_rng(0))[:1],
        prev_reward=np.zeros(ROWS, np.float32),
    )
    assert torch.equal(before, torch.get_rng_state())
    obs, _ = observations(policy, ROWS, np.random.default_rng(0))
    encoded = policy.preprocess(obs)
    step = policy.act_encoded(encoded, prev_reward=np.zeros(ROWS, np.float32))
    batch = {
        "obs": encoded,
        "raw_action": step.raw_action,
        "views": step.state.seen,
        "seq_lens": np.ones(ROWS, np.int32),
    }
    frozen.evaluate(batch).logp.sum().backward()
    frozen.update()
    walk(policy, [frozen], 3, 1e-5)


def test_frozen_policy_does_what_the_policy_does(tmp_path):
    policy = built(cases()["bernoulli, lstm"])
    frozen = policy.freeze(2, seed=0)
    assert isinstance(frozen, rlcatalog.Policy)
    stepper, right = frozen.stepper(2), policy.stepper(2)
    for t in range(6):
        obs, _ = observations(policy, 2, np.random.default_rng(t))
        kwargs = {
            "done": np.array([t == 3, False]),
            "prev_reward": np.ones(2, np.float32),
            "explore": False,
        }
        same(stepper.step(obs, **kwargs), right.step(obs, **kwargs), 1e-5)
    encoded = policy.preprocess(obs)
    reward = np.zeros(2, np.float32)
    np.testing.assert_array_equal(
        frozen.values(encoded, prev_reward=reward), policy.values(encoded, prev_reward=reward)
    )
    for copied in (copy.deepcopy(frozen), copy.deepcopy(policy.freeze())):
        assert type(copied) is rlcatalog.Policy
    frozen.save(tmp_path)
    for loaded in (
        rlcatalog.load(tmp_path),
        pickle.loads(pickle.dumps(built(cases()["categorical, filter"]).freeze())),
    ):
        assert type(loaded) is rlcatalog.Policy
    assert "recorded graph" in repr(frozen)
    assert "recorded graph" in repr(frozen.explain())
    assert "recorded graph" not in repr(policy.explain())
    assert frozen.freeze().policy is policy
    with pytest.raises(NotServedError, match="freeze it again"):
        frozen.to("cuda")


def test_frozen_policy_raises_the_errors_of_the_policy():
    space = Dict(obs=VECTOR, action_mask=MultiBinary(3))
    policy = rlcatalog.build(space, Discrete(3), {}, "torch")
    frozen, good = (
        policy.freeze(),
        {"obs": np.zeros((1, 3), np.float32), "action_mask": np.ones((1, 3), np.int8)},
    )
    frozen.act(good)
    with pytest.raises(ObservationError):
        frozen.act({**good, "obs": np.zeros((1, 4), np.float32)})
    with pytest.raises(ActionMaskError):
        frozen.act({**good, "action_mask": np.zeros((1, 3), np.int8)})
    with pytest.raises(NonFiniteError, match=r"NaN at obs\['obs'\]"):
        frozen.act({**good, "obs": np.full((1, 3), np.nan, np.float32)})
    with torch.no_grad():
        next(policy.model.parameters()).fill_(np.inf)
    frozen.update()
    with pytest.raises(NonFiniteError, match="row 0 of 1"):
        frozen.act(good)


@pytest.mark.parametrize(
    ("computed", "said"),
    [
        (lambda m, x: m.layer(x if x.sum() > 9 else -x), "data-dependent if"),
        (lambda m, x: m.layer(x * float(x[0, 0])), "into Python"),
        (lambda m, x: torch.linalg.pinv(m.layer(x)).T.clone(), "the operation"),
        (lambda m, x: m.layer(torch.from_numpy(np.tanh(x.numpy()))), "update"),
    ],
)
def test_unrecordable_model_acts_unrecorded(computed, said):
    policy = user_policy(computed)
    obs = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32).clip(-1, 1)
    frozen = policy.freeze(2)
    if said == "update":  # numbers that leave PyTorch are seen when others come
        with pytest.warns(CatalogWarning, match="no longer matches the policy"):
            frozen.act(obs)
    same(frozen.act(obs, explore=False), policy.act(obs, explore=False), 0)
    assert said in frozen.reason
    assert "no faster" in repr(frozen)


def test_numbers_that_a_model_counts_in_python_are_found():
    policy = user_policy(lambda m, x: m.layer(x) * (2.0 if m.calls > 60 else 1.0))
    frozen, obs = policy.freeze(2), np.ones((2, 3), np.float32)
    for _ in range(62):
        frozen.act(obs)
        policy.act(obs)
    with pytest.warns(CatalogWarning, match="acts from now on"):
        collections.deque((frozen.act(obs) for _ in range(60)), maxlen=0)
    same(frozen.act(obs, explore=False), policy.act(obs, explore=False), 0)


def test_ways_of_writing_in_place():
    def computed(m, x):
        whole = torch.zeros(len(x), 4)
        first, last = whole.split([1, 3], 1)
        last.copy_(x)
        first.add_(x[:, :1])
        whole[:, 1] += 1
        hidden = m.layer(whole[:, :3] + last).relu_()
        hidden[:, 0].mul_(2)
        return hidden.sub_(whole[:, 3:])

    policy = user_policy(computed)
    frozen = policy.freeze(ROWS)
    assert frozen.reason is None
    walk(policy, [frozen], 4, 1e-5)
    assert frozen.reason is None


def test_without_a_package_that_freezes():
    declarations["framework"]["torch: freeze"].leave()
    policy = rlcatalog.build(VECTOR, Discrete(2), {}, "torch")
    frozen = policy.freeze(2)
    assert install_hint("rlcatalog-export[torch]") in frozen.reason
    assert frozen.reason in frozen.explain().as_dict()["frozen"]
    obs = np.zeros((2, 3), np.float32)
    same(frozen.act(obs, explore=False), policy.act(obs, explore=False), 0)
    frozen.update()
    frozen.set_random_state(frozen.random_state())
