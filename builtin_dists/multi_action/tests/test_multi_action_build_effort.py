"""The effort of building a policy, which grows linearly with the number of actions."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog


def count_calls(run):
    """Return how many Python and C functions a function calls; generators count at each item."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def build_policy(action_space):
    obs_space = spaces.Box(-1, 1, (3,), np.float32)
    return rlcatalog.build(obs_space, action_space, {"fcnet_hiddens": [4]}, "torch")


def tuple_of_choices(n):
    return spaces.Tuple([spaces.Discrete(2)] * n)


def dict_of_boxes(n):
    return spaces.Dict({f"{i}": spaces.Box(-1, 1, (2,)) for i in range(n)})


def tuple_of_tuples(n):
    return spaces.Tuple([spaces.Tuple([spaces.Discrete(2)] * 2)] * n)


def choices_and_boxes(n):
    return spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (1,))] * (n // 2))


@pytest.mark.parametrize(
    "make_space", [tuple_of_choices, dict_of_boxes, tuple_of_tuples, choices_and_boxes]
)
def test_effort_of_building_grows_linearly_with_actions(make_space):
    few_actions = make_space(100)
    many_actions = make_space(400)
    build_policy(make_space(4))  # the first build imports modules

    few_calls = count_calls(lambda: build_policy(few_actions))
    many_calls = count_calls(lambda: build_policy(many_actions))

    # Four times the actions take four times the calls; n² would take sixteen times.
    assert many_calls < 4.2 * few_calls
