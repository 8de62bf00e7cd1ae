"""Environments of the tasks that need one part of rlcatalog, and their ranges of returns."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.learning.part_environments import (
    Candidates,
    Duet,
    JoinedWorkshop,
    NumbersForTools,
    Recall,
    RequestOnly,
    StepsForVelocities,
)
from benchmarks.learning.part_tasks import PARTS
from rlcatalog_ppo.zoo_environments import Weeds, Workshop


def play(env, act, episodes=100):
    """Return the mean return of a policy that is a function of the observation."""
    returns = []
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        total = 0.0
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(act(obs))
            total += reward
            over = terminated or truncated
        returns.append(total)
    return np.mean(returns)


# --- the range of returns -------------------------------------------------------------------------


def drive_and_use_the_tool(obs):
    """Drive straight to the weed, and use its tool when it is within reach."""
    is_near = np.linalg.norm(obs["offset"]) < Weeds.REACH
    tool = 1 + obs["weed"] if is_near else 0
    return tool, np.clip(obs["offset"] / Weeds.SPEED, -1, 1)


def remember_the_symbol():
    symbols = []

    def act(obs):
        if obs < Recall.SYMBOLS:
            symbols.append(obs)
        return symbols[-1]

    return act


def choose_in_turn():
    """Both performers choose song 0 in the first round, and song 1 in the second."""
    rounds = []

    def act(obs):
        rounds.append(obs)
        song = (len(rounds) - 1) % 2
        return song, song

    return act


def choose_the_order(obs):
    machine, tool = obs["order"]
    return {"machine": machine, "tool": tool}


def choose_the_nearest(obs):
    return int(np.argmax(obs["avail_actions"] @ obs["request"]))


#: Task → the mean return of a policy that knows the task, and such a policy. Two rounds of the same
#: song from one distribution pay less than the two that `choose_in_turn` gets.
BEST = {
    "Workshop": (50.0, choose_the_order),
    "Weeds": (9.7, drive_and_use_the_tool),
    "Duet": (2.0, choose_in_turn()),
    "Recall": (1.0, remember_the_symbol()),
    "Candidates": (8.9, choose_the_nearest),
}


@pytest.mark.parametrize("name", BEST)
def test_policy_that_knows_a_task_reaches_its_best_return(name):
    best, act = BEST[name]
    assert play(PARTS[name].make(), act) == pytest.approx(best, rel=0.05)
    assert PARTS[name].high <= best


@pytest.mark.parametrize("name", BEST)
def test_random_actions_reach_the_lowest_return(name):
    task = PARTS[name]
    env = task.make()
    env.action_space.seed(0)

    def act(obs):
        mask = obs["action_mask"] if name == "Workshop" else None
        return env.action_space.sample(mask)

    # The mean differs by some percent of the range; an episode of Duet is only two steps long.
    mean = play(env, act, episodes=1000 if name == "Duet" else 100)
    assert mean == pytest.approx(task.low, abs=0.05 * (task.high - task.low))


# --- views for other libraries --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.parametrize("name", PARTS)
def test_views_of_a_task_are_valid_environments(name):
    task = PARTS[name]
    for engine, nets in task.nets.items():
        for net in nets:
            env = task.maker(engine, net)()
            if name != "Workshop":  # random actions are not always free
                check_env(env, skip_render_check=True)
            obs, _ = env.reset(seed=0)
            assert env.observation_space.contains(obs)


def test_joined_mask_lists_machines_then_tools():
    env = JoinedWorkshop(Workshop())
    env.reset(seed=0)
    masks = env.unwrapped.masks
    assert env.action_masks().tolist() == [*masks["machine"], *masks["tool"]]


def test_largest_number_is_the_tool():
    numbers = np.array([0.5, -0.5, 0.0, 0.1, 0.9, 0.2], np.float32)
    tool, velocity = NumbersForTools(Weeds()).action(numbers)
    assert tool == 2
    assert velocity.tolist() == [0.5, -0.5]


def test_velocities_are_five_steps_from_minus_one_to_one():
    tool, velocity = StepsForVelocities(Weeds()).action(np.array([3, 0, 4]))
    assert tool == 3
    assert velocity.tolist() == [-1.0, 1.0]


def test_second_round_of_a_duet_needs_a_new_song():
    env = Duet()
    env.reset(seed=0)
    rewards = [env.step(songs)[1] for songs in [(2, 2), (2, 2)]]
    assert rewards == [1.0, 0.0]


def test_recall_asks_31_steps_after_the_symbol():
    env = Recall()
    symbol, _ = env.reset(seed=0)
    shown = []
    over = False
    while not over:
        obs, reward, over, _, _ = env.step(symbol)
        shown.append(obs)
    assert shown.index(Recall.QUESTION) == 30  # counted from the step after the symbol
    assert reward == 1.0


def test_candidates_are_the_same_in_all_episodes():
    env = Candidates()
    first, _ = env.reset(seed=0)
    second, _ = env.reset(seed=1)
    np.testing.assert_array_equal(first["avail_actions"], second["avail_actions"])


def test_request_is_all_that_a_flat_softmax_sees():
    env = Candidates()
    full, _ = env.reset(seed=4)
    seen, _ = RequestOnly(Candidates()).reset(seed=4)
    np.testing.assert_array_equal(seen, full["request"])
