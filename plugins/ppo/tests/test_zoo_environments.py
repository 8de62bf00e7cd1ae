"""Environments of the zoo: a workshop with masks, and a robot among weeds."""

from __future__ import annotations

import numpy as np
import pytest

from rlcatalog_ppo.zoo_environments import Weeds, Workshop


def test_workshop_refuses_what_is_in_use():
    env = Workshop()
    obs, _ = env.reset(seed=0)
    used = int(np.flatnonzero(obs["action_mask"]["tool"] == 0)[0])
    with pytest.raises(ValueError, match="in use"):
        env.step({"machine": obs["order"][0], "tool": used})


def test_workshop_frees_four_of_each_and_the_right_one():
    env = Workshop()
    for seed in range(50):
        obs, _ = env.reset(seed=seed)
        for part, right in zip(("machine", "tool"), obs["order"], strict=True):
            assert obs["action_mask"][part].sum() == 4
            assert obs["action_mask"][part][right] == 1


def test_robot_does_not_move_while_it_uses_a_tool():
    env = Weeds()
    env.reset(seed=0)
    env.step((1, np.ones(2, np.float32)))
    assert env.robot.tolist() == [0.0, 0.0]
    env.step((0, np.ones(2, np.float32)))
    assert env.robot == pytest.approx([0.15, 0.15])
