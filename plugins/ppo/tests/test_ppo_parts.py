"""The small parts of PPO, each by itself: minibatches, penalties, figures, counts,
losses in lists.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import FrameworkSpec, SpaceInfo
from rlcatalog.errors import ConfigError, NonFiniteError, NotServedError, ObservationError
from rlcatalog.frameworks import Evaluation, tensor_ops
from rlcatalog_ppo.advantages import refuse_infinite
from rlcatalog_ppo.callbacks import Every
from rlcatalog_ppo.config import PPOConfig
from rlcatalog_ppo.env_errors import EnvErrors
from rlcatalog_ppo.env_returns import RESET, STEP, ReturnChecker
from rlcatalog_ppo.learner import (
    FIGURES,
    Learner,
    array_rows,
    minibatches,
    optimizer_of,
    set_threads,
)
from rlcatalog_ppo.loss import PPO_OBJECTIVE, Rates, losses
from rlcatalog_ppo.rollout import Episodes

OBS, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
BOX = SpaceInfo.read(OBS)
IN_ORDER = SimpleNamespace(permutation=np.arange)
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def parts_of(framework):
    module = importlib.import_module(f"rlcatalog_ppo.{framework}")
    return (
        module.Optimizer,
        tensor_ops(framework),
        torch.as_tensor if framework == "torch" else tf.constant,
    )


@pytest.mark.parametrize(
    ("lengths", "size", "expected"),
    [
        ([3, 3, 2, 4], 6, [[0, 1], [2, 3]]),
        ([3, 3, 2, 4], 5, [[0], [1, 2], [3]]),  # a sequence belongs where its last row falls
        ([2, 2, 2], 2, [[0], [1], [2]]),
        ([5, 1, 5, 5], 100, [[0, 1, 2, 3]]),
        ([1, 4, 1, 1, 3], 5, [[0, 1], [2, 3, 4]]),
    ],
)
def test_sequences_fill_minibatches_of_about_the_size_asked_for(lengths, size, expected):
    rows = np.arange(sum(lengths))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    batch = {"logp": rows, "seq_lens": np.array(lengths), "state": [np.arange(len(lengths)) * 10]}
    found = list(minibatches(batch, size, IN_ORDER))
    assert [part["state"][0].tolist() for part in found] == [
        [10 * s for s in group] for group in expected
    ]
    for part, group in zip(found, expected, strict=True):
        np.testing.assert_array_equal(part["logp"], rows[np.isin(owner, group)])
        assert part["seq_lens"].tolist() == [lengths[s] for s in group]


def test_rows_without_sequences_are_cut_every_so_many():
    batch = {"logp": np.arange(7), "views": {"a": (np.arange(7) * 2,)}}
    found = list(minibatches(batch, 3, IN_ORDER))
    # The seventh row would be alone, and is left out.
    assert [part["logp"].tolist() for part in found] == [[0, 1, 2], [3, 4, 5]]
    assert [part["views"]["a"][0].tolist() for part in found] == [[0, 2, 4], [6, 8, 10]]


def test_structures_are_gone_through_to_their_arrays():
    tree = {"a": np.ones(2), "b": (np.zeros(1), (np.full(3, 2.0),), {"c": np.arange(2)})}
    found = array_rows(tree, np.array([0, 0]))
    assert found["a"].tolist() == [1, 1]
    assert [part.tolist() for part in (found["b"][0], found["b"][1][0], found["b"][2]["c"])] == [
        [0, 0],
        [2, 2],
        [0, 0],
    ]
    assert isinstance(found["b"][1], tuple)


def test_finished_episodes_are_counted_beyond_the_hundred_that_are_kept():
    episodes = Episodes()
    for i in range(130):
        episodes.add(float(i), i + 1)
    assert episodes.total == 130
    assert list(episodes.returns) == list(range(30, 130))
    assert list(episodes.lengths) == list(range(31, 131))


@frameworks
def test_a_divergence_counts_with_its_weight_and_without_one_not_at_all(framework):
    _, ops, tensor = parts_of(framework)
    random = np.random.default_rng(0)
    logp, old, advantage, value, target, entropy, kl = random.normal(size=(7, 5)).astype(np.float32)
    given = {"logp": logp, "entropy": entropy, "value": value, "kl": kl}
    evaluation = Evaluation(
        entropy_kind="exact", dist=None, **{name: tensor(x) for name, x in given.items()}
    )
    batch = {
        name: tensor(x) for name, x in (("logp", old), ("advantage", advantage), ("target", target))
    }
    config = PPOConfig(entropy_coeff=0.25, vf_loss_coeff=0.5, clip_param=0.2)
    normalised = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    ratio = np.exp(logp - old)
    surrogate = np.minimum(ratio * normalised, np.clip(ratio, 0.8, 1.2) * normalised).mean()
    plain = -surrogate + 0.5 * 0.5 * ((value - target) ** 2).mean() - 0.25 * entropy.mean()
    for weight, expected in ((None, plain), (2.0, plain + 2 * kl.mean())):
        assert float(
            losses(evaluation, batch, config, ops, weight and Rates(0.0, weight)).total
        ) == pytest.approx(expected, rel=1e-5)


@frameworks
def test_advantages_that_hardly_differ_are_not_blown_up(framework):
    _, ops, tensor = parts_of(framework)
    advantage = np.float32([3e-9, -1e-9, -2e-9, 0])
    ratio = np.float32([1.1, 0.9, 1.05, 1.0])
    zeros = np.zeros(4, np.float32)
    evaluation = Evaluation(tensor(np.log(ratio)), tensor(zeros), "exact", tensor(zeros), None)
    batch = {"logp": tensor(zeros), "advantage": tensor(advantage), "target": tensor(zeros)}
    exact = advantage.astype(np.float64)
    expected = -(ratio * (exact - exact.mean()) / (exact.std(ddof=1) + 1e-8)).mean()
    found = losses(evaluation, batch, PPOConfig(clip_param=0.2), ops).policy_loss
    assert float(found) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("kl", "factor"),
    [
        (0.016, 2.0),
        (0.0151, 2.0),
        (0.0149, 1.0),
        (0.01, 1.0),
        (0.0068, 1.0),
        (0.0066, 0.5),
        (0.0, 0.5),
    ],
)
def test_the_weight_of_the_divergence_changes_beyond_one_and_a_half_times_its_target(kl, factor):
    policy = SimpleNamespace(model=SimpleNamespace(trainable_variables=list))
    learner = Learner(policy, PPOConfig(kl_coeff=0.3, kl_target=0.01), None, None)
    means = [9.0] * len(FIGURES)
    means[FIGURES.index("kl")] = kl
    assert learner._adapted(means) == {"kl_coeff": 0.3}
    assert learner.kl_coeff == pytest.approx(0.3 * factor)
    without = Learner(policy, PPOConfig(kl_coeff=0.0), None, None)
    assert without._adapted(means) == {}
    assert without.kl_coeff == 0


@frameworks
def test_figures_are_means_over_steps(framework):
    optimizer, _, tensor = parts_of(framework)
    figures = np.random.default_rng(0).normal(size=(3, len(FIGURES))).astype(np.float32)
    np.testing.assert_allclose(
        optimizer.means(None, [tensor(f) for f in figures]), figures.mean(axis=0), rtol=1e-6
    )


def test_ratio_at_the_limit_is_not_clipped():
    _, ops, tensor = parts_of("torch")
    log_ratio = torch.log(torch.tensor([2.0, 2.5, 1.0, 0.5]))
    assert (log_ratio.exp() - 1)[0] == 1.0
    given = {"policy_loss": tensor(1.0), "vf_loss": tensor(2.0), "entropy": tensor(3.0)}
    figures = PPO_OBJECTIVE.measured(
        SimpleNamespace(log_ratio=log_ratio, clip_param=1.0, **given), ops
    )
    kl = np.mean(np.array([2.0, 2.5, 1.0, 0.5]) - 1 - log_ratio.numpy())
    np.testing.assert_allclose(figures, [1, 2, 3, kl, 0.25], rtol=1e-6)


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("eager_tracing", [True, False])
def test_losses_in_a_list_are_added_up_element_by_element(framework, eager_tracing):
    optimizer, _, _ = parts_of(framework)
    random = np.random.default_rng(0)
    batch = {
        "obs": random.normal(size=(8, 3)).astype(np.float32),
        "raw_action": random.integers(0, 2, (8, 1)),
        **{
            name: random.normal(size=8).astype(np.float32)
            for name in ("logp", "advantage", "target", "reward")
        },
    }

    def weights_after(custom_loss):
        policy = rlcatalog.build(OBS, TWO, {"fcnet_hiddens": [4]}, framework)
        rng = np.random.default_rng(1)
        policy.model.set_weights(
            {n: rng.normal(size=w.shape) for n, w in policy.model.get_weights().items()}
        )
        policy.model.custom_loss = lambda loss, inputs: custom_loss(
            policy.model.trainable_variables(), loss
        )
        optimizer(policy, PPOConfig(lr=0.01, grad_clip=None, eager_tracing=eager_tracing)).step(
            batch, Rates(0.01)
        )
        return policy.model.get_weights()

    if framework == "torch":

        def listed(variables, loss):
            return [loss, torch.cat([v.square().reshape(-1) for v in variables])]

        def added(variables, loss):
            return loss + sum(v.square().sum() for v in variables)
    else:

        def listed(variables, loss):
            return [loss, tf.concat([tf.reshape(v * v, [-1]) for v in variables], axis=0)]

        def added(variables, loss):
            return loss + tf.add_n([tf.reduce_sum(v * v) for v in variables])

    one, other = weights_after(listed), weights_after(added)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-6, atol=1e-7)


def test_threads_are_set_in_the_framework(monkeypatch):
    asked = []
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", asked.append)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    for framework, count in (("torch", 3), ("tf", 2)):
        set_threads(framework, count)
    assert asked == [3, 2]


def test_framework_without_code_here_is_refused_by_name():
    FrameworkSpec("jax", {"backend": "acme:B", "ops": "acme:O"}, "", module="numpy").enter()
    with pytest.raises(
        NotServedError, match="no code for framework='jax': no installed package declares"
    ):
        optimizer_of("jax")


def test_periods_that_are_complete_are_said_once():
    every = Every(10)
    assert [done for done in (0, 9, 10, 10, 19, 20, 45, 49, 50) if every.due(done)] == [
        10,
        20,
        45,
        50,
    ]
    never = Every(0)
    assert not any(map(never.due, (0, 1, 10**9)))
    with pytest.raises(ConfigError, match="every -1 steps: expected 1 or more, or 0 for never"):
        Every(-1)


def test_a_target_that_overflows_is_refused_though_advantage_and_value_are_finite():
    large, zeros = np.float32([[1.0, 1.0], [1.0, 3e38]]), np.zeros((2, 2), np.float32)
    refuse_infinite(large, zeros, zeros)
    with pytest.raises(NonFiniteError, match="environment 1 of 2, step 1 of the rollout") as raised:
        refuse_infinite(large, zeros, large)
    assert raised.value.row == 1


@pytest.mark.parametrize(("rows", "row", "env"), [(None, 2, 2), (np.array([1, 4]), 1, 4)])
def test_error_about_a_row_names_the_rows_environment(rows, row, env):
    lengths = np.array([3, 1, 4, 1, 5])
    message = f"environment {env} of 5, after {lengths[env]} steps of its episode: bad"
    with pytest.raises(NonFiniteError, match=message) as raised, EnvErrors(lengths, rows):
        raise NonFiniteError("bad", row)
    assert raised.value.row == env


@pytest.mark.parametrize("error", [NonFiniteError("of no row", None), KeyError("another")])
def test_error_about_no_row_stays_as_it_is(error):
    with pytest.raises(type(error)) as raised, EnvErrors(np.zeros(2, int)):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("names", "returned", "hint"),
    [
        (STEP, (0, 0.0, True, {}), True),
        (STEP, [0, 0.0, True, {}], False),
        (STEP, (0, 0.0, True), False),
        (RESET, (0, 0.0, True, {}), False),
    ],
)
def test_older_interface_is_named_where_it_is_one(names, returned, hint):
    fault = ReturnChecker(TWO).fault(returned, names)
    assert fault.startswith(f"returned {len(returned)} values")
    assert ("older interface" in fault) == hint


class Number(float):
    """A number whose type is none of the usual ones."""


@pytest.mark.parametrize(
    ("reward", "taken"),
    [
        (1.5, True),
        (np.float64(1.5), True),
        (np.array(1.5), True),
        (Number(1.5), True),
        (7, True),
        (True, True),
        (10**400, False),
        ("1.5", False),
        (b"1", False),
        (np.ones(1), False),
        ([1.5], False),
        (None, False),
    ],
)
def test_reward_is_one_number(reward, taken):
    fault = ReturnChecker(TWO).fault((0, reward, False, False, {}), STEP)
    assert fault is None if taken else fault.endswith("expected a number")


@pytest.mark.parametrize(
    ("flag", "taken"),
    [
        (np.array(True), True),
        (1, True),
        (np.uint8(0), True),
        (np.array([True]), False),
        (2, False),
        (1.0, False),
        ("True", False),
        (None, False),
    ],
)
def test_flag_is_one_boolean(flag, taken):
    fault = ReturnChecker(TWO).fault((0, 0.0, flag, False, {}), STEP)
    assert fault is None if taken else fault.endswith("expected True or False")


def test_observation_that_is_none_is_named_by_its_environment():
    def preprocess(observed, update=False):
        if any(obs is None for obs in observed):
            raise ObservationError("none")

    policy = SimpleNamespace(
        preprocess=preprocess, resolution=SimpleNamespace(request=SimpleNamespace(obs=BOX))
    )
    with pytest.raises(
        ObservationError, match="environment 1 of 3, after 4 steps of its episode: none"
    ):
        EnvErrors(np.array([2, 4, 8])).encode(policy, [0, None, 1])
