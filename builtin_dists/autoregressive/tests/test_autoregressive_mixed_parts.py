"""Mixed parts: densities under the parameters of `params_given`, adapted actions,
saving, stepping.
"""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from scipy import special, stats

import rlcatalog
from rlcatalog.errors import ActionRangeWarning, ConfigError, SavedPolicyError
from rlcatalog.spaces import Simplex

pytestmark = pytest.mark.twins

LOW, HIGH = np.array([-2.0, 0.5], np.float32), np.array([3.0, 20.0], np.float32)
SPACE = Tuple(
    [
        Discrete(3, start=-1),
        Box(-1, 1, (2,), np.float32),
        Box(LOW, HIGH, dtype=np.float32),
        Box(LOW, HIGH, dtype=np.float32),
        MultiBinary(3),
        MultiDiscrete([2, 4], start=[1, -1]),
        Box(-3, -1, (2,), np.int16),
        Dict({"b": Discrete(2), "a": Tuple([Box(-np.inf, np.inf, (1,), np.float32), Discrete(4)])}),
        Simplex((3,)),
    ]
)
CONFIG = {"custom_action_dist": {"action[2]": "beta", "action[3]": "squashed_gaussian"}}


def contains(space, action, rows):
    """Whether each row of a batch of actions lies in a space."""
    if isinstance(space, Tuple):
        return all(
            contains(child, part, rows) for child, part in zip(space.spaces, action, strict=True)
        )
    if isinstance(space, Dict):
        return all(contains(child, action[key], rows) for key, child in space.spaces.items())
    return all(
        space.contains(np.asarray(action[i]) if isinstance(space, Box) else action[i])
        for i in range(rows)
    )


def test_logp_of_mixed_parts_is_scipys_given_the_parameters(ar, framework):
    policy, obs = ar.build(SPACE, framework, CONFIG, scale=0.4), ar.observations(30)
    step = policy.act(obs)
    params = np.split(
        step.dist_inputs.astype(np.float64), np.cumsum([3, 4, 4, 4, 3, 2, 4, 3, 3, 2, 4, 2]), axis=1
    )
    raw = np.split(
        step.raw_action.astype(np.float64), np.cumsum([1, 2, 2, 2, 3, 1, 1, 1, 1, 1, 1, 1]), axis=1
    )
    assert params[-1].shape[1] == raw[-1].shape[1] == 3

    def choice(i):
        return special.log_softmax(params[i], axis=1)[np.arange(30), raw[i][:, 0].astype(int)]

    def normal(i):
        mean, log_std = np.split(params[i], 2, axis=1)
        return stats.norm.logpdf(raw[i], mean, np.exp(log_std)).sum(axis=1)

    def squashed(i):
        mean, log_std = np.split(params[i], 2, axis=1)
        half, middle = (HIGH - LOW) / 2, (HIGH + LOW) / 2
        unit = np.clip((raw[i] - middle) / half, -1 + 1e-6, 1 - 1e-6)
        log_det = np.log(half * (1 - unit**2))
        return (stats.norm.logpdf(np.arctanh(unit), mean, np.exp(log_std)) - log_det).sum(axis=1)

    beta = torch.distributions.Beta(
        *(torch.from_numpy(np.log1p(np.exp(p)) + 1) for p in np.split(params[2], 2, 1))
    )
    unit = torch.from_numpy((raw[2] - LOW) / (HIGH - LOW))
    expected = {
        0: choice(0),
        1: normal(1),
        2: (beta.log_prob(unit).numpy() - np.log(HIGH - LOW)).sum(axis=1),
        3: squashed(3),
        4: stats.bernoulli.logpmf(raw[4], special.expit(params[4])).sum(axis=1),
        **{i: choice(i) for i in (5, 6, 7, 8, 10, 11)},
        9: normal(9),
    }
    found = {}  # in the space's order: in the Dict, "a" stands before "b"
    for i, part in enumerate(
        sorted(policy.dist_class.options["layout"].parts, key=lambda part: part.params)
    ):
        dist = part.dist(ar.tensor(params[i].astype(np.float32), framework), None)
        value = ar.tensor(raw[i].astype(np.float32), framework)
        found[i] = ar.array(dist.logp(value[:, 0] if part.single else value))
    for i, logp in expected.items():
        np.testing.assert_allclose(found[i], logp, rtol=2e-3, atol=2e-3, err_msg=str(i))
    np.testing.assert_allclose(step.logp, sum(found.values()), rtol=1e-3, atol=1e-3)


@pytest.mark.grid
@pytest.mark.parametrize("bounds", ["clip", "affine"])
def test_every_action_lies_in_the_space(ar, framework, bounds):
    policy = ar.build(SPACE, framework, {**CONFIG, "action_bounds": bounds}, scale=1.5)
    with ar.untraced(policy):
        best = policy.act(ar.observations(200), explore=False)
    for step in (policy.act(ar.observations(200)), best):
        assert contains(SPACE, step.action, 200)
        assert np.isfinite(step.logp).all()
        assert step.raw_action.shape == (200, 20)
        assert step.dist_inputs.shape == (200, 41)


def test_what_continuous_parts_show_is_brought_into_their_bounds(ar, framework):
    """What is seen of a Box is [-1, 1] between its bounds, however wide these are."""
    space = Tuple([Box(LOW, HIGH, dtype=np.float32), Discrete(3)])
    config = {"action_bounds": "clip"}
    weights = ar.build(space, framework, config).model.get_weights()
    wide = Tuple([Box(LOW * 1000, HIGH * 1000, dtype=np.float32), Discrete(3)])
    obs, raw = ar.observations(4), np.array([[0.5, 1, 2]] * 4, np.float32)
    found = []
    for one, scale in ((space, 1), (wide, 1000)):
        with warnings.catch_warnings():
            # Of actions that a new policy hardly reaches in the wide Box.
            warnings.simplefilter("ignore", ActionRangeWarning)
            policy = ar.build(one, framework, config)
        policy.model.set_weights(weights)
        scaled = ar.tensor(raw * np.array([scale, scale, 1], np.float32), framework)
        found.append(ar.array(ar.dist_of(policy, obs).params_given(scaled)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("path", ["slate_multi_categorical", "gumbel_softmax"])
def test_parts_may_have_any_distribution_by_path(ar, framework, path):
    inner = MultiDiscrete([3, 3]) if path.startswith("slate") else Discrete(3)
    space = Tuple([inner, Discrete(4), Box(-1, 1, (1,))])
    policy = ar.build(space, framework, {"custom_action_dist": {"action[0]": path}})
    obs = ar.observations(50)
    step = policy.act(obs)
    assert contains(space, step.action, 50)
    found = policy.evaluate({"obs": obs, "raw_action": step.raw_action})
    np.testing.assert_allclose(ar.array(found.logp), step.logp, rtol=1e-3, atol=1e-3)
    reading = ar.dist_of(policy, obs)
    before = ar.array(reading.params_given(ar.tensor(step.raw_action, framework)))
    other = step.raw_action.copy()
    other[:, :-2] = other[::-1, :-2]
    after = ar.array(reading.params_given(ar.tensor(other, framework)))
    width = 6 if path.startswith("slate") else 3
    np.testing.assert_array_equal(before[:, :width], after[:, :width])
    # The second part sees the first.
    assert np.abs(before - after)[:, width : width + 4].max() > 0.05


def test_saved_and_loaded_it_is_the_same(ar, framework, tmp_path):
    space = Tuple([Discrete(3, start=-1), Box(LOW, HIGH, dtype=np.float32), MultiBinary(3)])
    config = {"custom_action_dist": {"action[1]": "beta"}, "autoregressive_order": ["action[2]"]}
    policy = ar.build(space, framework, config)
    obs = ar.observations(9)
    policy.save(tmp_path)
    again = rlcatalog.load(tmp_path)
    first, second = (one.act(obs, explore=False) for one in (policy, again))
    np.testing.assert_array_equal(first.raw_action, second.raw_action)
    np.testing.assert_array_equal(first.dist_inputs, second.dist_inputs)
    assert again.config["autoregressive_order"] == ["action[2]"]
    assert next(part.path for part in again.dist_class.options["layout"].parts) == "action[2]"


def test_a_policy_with_a_function_is_not_saved(ar, tmp_path):
    policy = ar.build(SPACE, "torch", {**CONFIG, "autoregressive_mask": lambda path, earlier: None})
    with pytest.raises(SavedPolicyError, match="autoregressive_mask"):
        policy.save(tmp_path)


def test_a_stepper_acts_and_starts_anew(ar, framework):
    policy = ar.build(SPACE, framework, {**CONFIG, "use_lstm": True, "lstm_cell_size": 4})
    stepper, obs = policy.stepper(3), ar.observations(3)
    first = stepper.step(obs)
    second = stepper.step(obs)
    third = stepper.step(obs, done=[True, False, True])
    context = [step.value for step in (first, second, third)]
    np.testing.assert_allclose(context[2][[0, 2]], context[0][[0, 2]], rtol=1e-5)
    assert np.abs(context[1] - context[0]).max() > 1e-4
    assert abs(context[2][1] - context[0][1]) > 1e-5
    assert contains(SPACE, third.action, 3)


def test_many_parts_at_once(ar, framework):
    """Twenty choices: no sum over combinations is tried, and one pass scores what twenty drew."""
    policy, obs = ar.build(MultiDiscrete([3] * 20), framework), ar.observations(5)
    step = policy.act(obs)
    found = policy.evaluate({"obs": obs, "raw_action": step.raw_action})
    assert found.entropy_kind == "estimate"
    np.testing.assert_allclose(ar.array(found.logp), step.logp, rtol=1e-4)
    reference = ar.Reference(policy.model.get_weights(), gym.spaces.MultiDiscrete([3] * 20))
    np.testing.assert_allclose(step.logp, reference.logp(obs, step.raw_action), rtol=1e-4)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("autoregressive_hiddens", [], "autoregressive_hiddens"),
        ("autoregressive_hiddens", [0], "autoregressive_hiddens"),
        ("autoregressive_activation", "tanhh", "autoregressive_activation.*tanh"),
        ("autoregressive_exact", -1, "autoregressive_exact"),
        (
            "autoregressive_mask",
            "never",
            r"autoregressive_mask: expected a function \(path, earlier\)",
        ),
    ],
)
def test_wrong_values_are_refused_by_name(ar, key, value, says):
    with pytest.raises(ConfigError, match=says):
        rlcatalog.explain(ar.OBS, SPACE, {"use_autoregressive": True, key: value})
