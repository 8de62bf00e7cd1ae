"""Parts with distributions of other packages, saving, and config errors."""

from __future__ import annotations

import numpy as np
import pytest
from autoregressive_policies import (
    OBS_SPACE,
    build_policy,
    compute_params,
    random_observations,
    to_numpy,
)
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog.errors import ConfigError, SavedPolicyError

pytestmark = pytest.mark.twins


@pytest.mark.parametrize("explore", [True, False])
def test_bounded_parts_draw_within_their_bounds(framework, explore):
    box = Box(0.5, 20.0, (2,), np.float32)
    policy = build_policy(
        Tuple([Discrete(3), box, box]),
        framework,
        scale=1.5,
        custom_action_dist={"action[1]": "beta", "action[2]": "squashed_gaussian"},
        action_bounds="affine",  # which changes no bounded values
    )

    step = policy.act(random_observations(rows=200), explore=explore)

    _, beta, squashed = step.action
    assert all(box.contains(row) for row in beta)
    assert all(box.contains(row) for row in squashed)
    assert np.isfinite(step.logp).all()


def test_later_parts_see_a_box_relative_to_its_bounds(framework):
    narrow = build_policy(Tuple([Box(-2, 3, (1,)), Discrete(3)]), framework, action_bounds="clip")
    wide = build_policy(Tuple([Box(-20, 30, (1,)), Discrete(3)]), framework, action_bounds="clip")
    wide.model.set_weights(narrow.model.get_weights())
    obs = random_observations(rows=1)

    # 1.5 lies in [-2, 3] where 15 lies in [-20, 30]; the choice is 2 in both.
    narrow_params = compute_params(narrow, obs, np.float32([[1.5, 2]]))
    wide_params = compute_params(wide, obs, np.float32([[15, 2]]))

    np.testing.assert_allclose(wide_params, narrow_params, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("first_part", "name"),
    [(MultiDiscrete([3, 3]), "slate_multi_categorical"), (Discrete(3), "gumbel_softmax")],
    ids=["slates", "gumbel"],
)
def test_part_may_have_any_distribution_by_path(framework, first_part, name):
    space = Tuple([first_part, Discrete(4)])
    policy = build_policy(space, framework, custom_action_dist={"action[0]": name})
    obs = random_observations(rows=50)
    step = policy.act(obs)

    evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    assert all(first_part.contains(row) for row in step.action[0])
    np.testing.assert_allclose(to_numpy(evaluation.logp), step.logp, rtol=1e-3, atol=1e-3)


def test_second_part_sees_a_relaxed_one_hot(framework):
    space = Tuple([Discrete(3), Discrete(4)])
    policy = build_policy(space, framework, custom_action_dist={"action[0]": "gumbel_softmax"})
    obs = random_observations(rows=1)

    # Three entries of the relaxed one-hot, and the second choice.
    params = compute_params(policy, obs, np.float32([[0.2, 0.3, 0.5, 0]]))
    other_params = compute_params(policy, obs, np.float32([[0.8, 0.1, 0.1, 0]]))

    # The first three parameters are the first choice's own.
    np.testing.assert_array_equal(other_params[:, :3], params[:, :3])
    assert np.abs(other_params - params)[:, 3:].max() > 0.05


# --- saving ---------------------------------------------------------------------------------------


def test_loaded_policy_draws_in_the_same_order(framework, tmp_path):
    policy = build_policy(MultiDiscrete([3, 2]), framework, autoregressive_order=["action[1]"])
    obs = random_observations(rows=9)

    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)

    expected = policy.act(obs, explore=False)
    actual = loaded.act(obs, explore=False)
    assert loaded.config["autoregressive_order"] == ["action[1]"]
    np.testing.assert_array_equal(actual.raw_action, expected.raw_action)
    np.testing.assert_array_equal(actual.dist_inputs, expected.dist_inputs)


def test_saving_a_mask_function_is_an_error(tmp_path):
    policy = build_policy(MultiDiscrete([3, 2]), autoregressive_mask=lambda path, earlier: None)

    with pytest.raises(SavedPolicyError, match="autoregressive_mask"):
        policy.save(tmp_path)


# --- config ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("autoregressive_hiddens", [], "autoregressive_hiddens"),
        ("autoregressive_hiddens", [0], "autoregressive_hiddens"),
        ("autoregressive_activation", "tanhh", "autoregressive_activation.*tanh"),
        ("autoregressive_exact", -1, "autoregressive_exact"),
        ("autoregressive_mask", "never", r"expected a function \(path, earlier\)"),
    ],
)
def test_wrong_config_value_is_an_error(key, value, message):
    config = {"use_autoregressive": True, key: value}

    with pytest.raises(ConfigError, match=message):
        rlcatalog.explain(OBS_SPACE, MultiDiscrete([3, 2]), config)
