"""What training alone sees of a rollout, and what acting sees of the past, against loops over
steps.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import SpaceInfo, ViewRequirement
from rlcatalog.actions import action_codec
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog_policy.history import Views

STEPS, ENVS = 6, 3
RANDOM = np.random.default_rng(0)
OBS = RANDOM.normal(size=(STEPS, ENVS, 2)).astype(np.float32)
REWARDS = RANDOM.normal(size=(STEPS, ENVS)).astype(np.float32)
ACTIONS = RANDOM.integers(0, 4, (STEPS, ENVS, 1))
ENDED = np.zeros((STEPS, ENVS), bool)
ENDED[1, 0] = ENDED[2, 0] = ENDED[4, 1] = ENDED[5, 2] = True
COLUMNS = {"obs": OBS, "rewards": REWARDS, "actions": ACTIONS}


def views(**requirements):
    codec = action_codec(SpaceInfo.read(spaces.Discrete(4), "action"))
    return Views(requirements, (2,), np.float32, codec, True, "Model")


def ahead(column, shift):
    return ViewRequirement(column, shift=shift, used_for_compute_actions=False)


@pytest.mark.parametrize("column", list(COLUMNS))
@pytest.mark.parametrize("shift", [1, 2, [1, 3], "1:3", STEPS - 1, STEPS, STEPS + 3, "0:8:4"])
def test_look_ahead_ends_with_the_episode_and_the_rollout(column, shift):
    found = views(seen=ahead(column, shift)).look_ahead(COLUMNS, ENDED)["seen"]
    shifts = {"1:3": [1, 2, 3], "0:8:4": [0, 4, 8]}.get(
        str(shift), shift if isinstance(shift, list) else [shift]
    )
    values = COLUMNS[column][..., 0] if column == "actions" else COLUMNS[column]
    for t in range(STEPS):
        for env in range(ENVS):
            expected = []
            for step in shifts:
                alive = t + step < STEPS and not ENDED[t : t + step, env].any()
                expected.append(values[t + step, env] if alive else np.zeros_like(values[0, 0]))
            expected = expected[0] if isinstance(shift, int) else np.stack(expected)
            np.testing.assert_array_equal(found[t, env], expected)
    assert found.dtype == values.dtype


def test_column_the_rollout_lacks_is_named():
    with pytest.raises(
        NotServedError, match=r"the view 'seen' into 'rewards', .*The rollout has actions, obs"
    ):
        views(seen=ahead("rewards", 1)).look_ahead({"obs": OBS, "actions": ACTIONS}, ENDED)


def _past(values, t, env, age):
    """The last three values of an episode of that age, zeros before it began."""
    zeros = [np.zeros_like(values[0, 0])] * 3
    return (zeros + [values[step, env] for step in range(t - age, t)])[-3:]


def test_past_is_what_happened_in_the_same_episode():
    asked = {"obs": [-3, -1, 0], "actions": "-2:-1", "rewards": -1, "t": [-1, 0]}
    served = views(
        **{f"past_{name}": ViewRequirement(name, shift=shift) for name, shift in asked.items()}
    )
    history, ages = served.start(ENVS), np.zeros(ENVS, int)
    for t in range(STEPS):
        history = served.rewarded(history, None if t == 0 else REWARDS[t - 1])
        seen = served.see(history, OBS[t])
        for env in range(ENVS):
            obs, rewards, actions = (_past(COLUMNS[name], t, env, ages[env]) for name in COLUMNS)
            np.testing.assert_array_equal(seen["past_obs"][env], [obs[-3], obs[-1], OBS[t, env]])
            np.testing.assert_array_equal(
                seen["past_actions"][env], [actions[-2][0], actions[-1][0]]
            )
            np.testing.assert_array_equal(seen["past_rewards"][env], rewards[-1])
            assert seen["past_t"][env].tolist() == [max(ages[env] - 1, 0), ages[env]]
        history = served.after(history, OBS[t], ACTIONS[t])
        ages += 1
        if ENDED[t].any():
            history = served.restart(history, ENDED[t])
            ages[ENDED[t]] = 0


def test_rewards_are_needed_once_an_episode_has_begun():
    served = views(reward=ViewRequirement("rewards", shift=-1))
    history = served.start(2)
    assert served.rewarded(history, None) is history
    history = served.restart(served.after(history, OBS[0, :2], ACTIONS[0, :2]), [1])
    with pytest.raises(
        ModelContractError, match="Model requests past rewards: pass the last step's rewards"
    ):
        served.rewarded(history, None)
    seen = served.see(served.rewarded(history, [2.5, 7.0]), OBS[1, :2])
    assert seen["reward"].tolist() == [2.5, 0]  # the second row's episode has just begun
