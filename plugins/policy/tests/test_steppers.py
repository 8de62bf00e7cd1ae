"""Steppers: which observation each row acts on, with which memory, and what its value
belongs to.
"""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.errors import ActionMaskError, ConfigError, ModelContractError
from rlcatalog_policy import autoreset_of, describe_env
from rlcatalog_torch import TorchModelV2

OBS, TWO = spaces.Box(-1e4, 1e4, (1,), np.float32), spaces.Discrete(2)
MASKED = spaces.Dict({"action_mask": spaces.MultiBinary(2), "x": OBS})


class Counter(TorchModelV2):
    """Its outputs are the age of the episode and the observation; its value has also the last
    reward.
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.view_requirements["reward"] = ViewRequirement("rewards", shift=-1)

    def get_initial_state(self):
        return [torch.zeros(1)]

    def forward(self, input_dict, state, seq_lens):
        age, obs = state[0][:, 0], input_dict["obs_flat"][:, -1]
        self.value = (100 * age + obs + 1e4 * input_dict["reward"]) * self.scale
        return torch.stack([age, obs], 1) * self.scale, [state[0] + 1]

    def value_function(self):
        return self.value


class Valueless(TorchModelV2):
    """The same without a memory or a value."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs_flat"][:, -1]
        return torch.stack([0 * obs, obs], 1) * self.scale, state


def policy_of(model=Counter, space=OBS):
    return rlcatalog.build(space, TWO, {"custom_model": model}, "torch")


@pytest.fixture(scope="module")
def policy():
    return policy_of()


def obs_of(*numbers):
    return np.float32(numbers)[:, None]


def seen(step):
    """Return for each row the age and the observation it acted on, and its value."""
    return [tuple(map(int, row)) for row in np.column_stack([step.dist_inputs, step.value])]


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_a_done_row_begins_with_the_observation_it_is_given(policy, mode):
    stepper = policy.stepper(2, mode)
    assert seen(stepper.step(obs_of(1, 2))) == [(0, 1, 1), (0, 2, 2)]
    assert seen(stepper.step(obs_of(3, 4), prev_reward=[5, 6])) == [(1, 3, 50103), (1, 4, 60104)]
    assert seen(stepper.step(obs_of(5, 6), done=[True, False], prev_reward=[5, 6])) == [
        (0, 5, 5),
        (2, 6, 60206),
    ]
    assert seen(stepper.step(obs_of(7, 8), done=np.array([0, 0]), prev_reward=[1, 2])) == [
        (1, 7, 10107),
        (3, 8, 20308),
    ]


def test_a_done_row_waits_for_its_next_episode_in_the_next_step_mode(policy):
    stepper = policy.stepper(2, "next_step")
    assert seen(stepper.step(obs_of(1, 2))) == [(0, 1, 1), (0, 2, 2)]
    # The first row acts on the observation before, for nothing; its value is that of the last
    # observation.
    step = stepper.step(obs_of(3, 4), done=[True, False], prev_reward=[5, 6])
    assert seen(step) == [(1, 1, 50103), (1, 4, 60104)]
    step = stepper.step(obs_of(5, 6), done=[False, False], prev_reward=[7, 8])
    assert seen(step) == [(0, 5, 5), (2, 6, 80206)]
    step = stepper.step(obs_of(7, 8), prev_reward=[1, 1], done=[True, True])
    assert seen(step) == [(1, 5, 10107), (3, 6, 10308)]
    step = stepper.step(obs_of(9, 10), prev_reward=[1, 1])
    assert seen(step) == [(0, 9, 9), (0, 10, 10)]


def test_rows_that_wait_twice_act_on_what_they_acted_on_before(policy):
    stepper = policy.stepper(1, "next_step")
    stepper.step(obs_of(1))
    assert seen(stepper.step(obs_of(2), done=[True], prev_reward=[0])) == [(1, 1, 102)]
    assert seen(stepper.step(obs_of(3), done=[True], prev_reward=[0])) == [(0, 1, 3)]
    assert seen(stepper.step(obs_of(4), prev_reward=[0])) == [(0, 4, 4)]


def test_a_first_step_that_is_done_acts_on_its_observation(policy):
    stepper = policy.stepper(2, "next_step")
    assert seen(stepper.step(obs_of(1, 2), done=[True, False])) == [(0, 1, 1), (0, 2, 2)]
    assert seen(stepper.step(obs_of(3, 4), prev_reward=[0, 0])) == [(0, 3, 3), (1, 4, 104)]


def test_a_row_can_be_restarted(policy):
    stepper = policy.stepper(2)
    for _ in range(2):
        stepper.step(obs_of(1, 2), prev_reward=[0, 0])
    stepper.reset([1])
    assert seen(stepper.step(obs_of(3, 4), prev_reward=[0, 0])) == [(2, 3, 203), (0, 4, 4)]
    stepper.reset(np.array([True, False]))
    assert seen(stepper.step(obs_of(3, 4), prev_reward=[0, 0])) == [(0, 3, 3), (1, 4, 104)]
    stepper.reset()
    assert seen(stepper.step(obs_of(3, 4))) == [(0, 3, 3), (0, 4, 4)]


def test_a_state_that_is_put_back_goes_on(policy):
    stepper = policy.stepper(2, "next_step")
    for _ in range(3):
        stepper.step(obs_of(1, 2), prev_reward=[0, 0])
    state = stepper.state
    assert seen(policy.act(obs_of(5, 6), state, prev_reward=[0, 0])) == [(3, 5, 305), (3, 6, 306)]

    def goes_on(stepper):
        stepper.state = state
        return seen(stepper.step(obs_of(5, 6), prev_reward=[0, 0])) == [(3, 5, 305), (3, 6, 306)]

    assert goes_on(policy.stepper(2, "next_step"))
    for rows in (None, [0, 1], [0]):
        stepper.step(obs_of(1, 2), done=[True, False], prev_reward=[0, 0])
        stepper.reset(rows)  # nothing that was over is restarted once more
        assert goes_on(stepper)
    stepper.step(obs_of(1, 2), done=[True, False], prev_reward=[0, 0])
    stepper.state = state
    assert seen(stepper.step(obs_of(5, 6), prev_reward=[0, 0])) == [(0, 5, 5), (3, 6, 306)]


def test_a_model_without_memory_or_value_steps_too():
    policy = policy_of(Valueless)
    for mode in ("next_step", "same_step"):
        stepper = policy.stepper(2, mode)
        assert stepper.state is None
        assert stepper.step(obs_of(1, 2)).dist_inputs.tolist() == [[0, 1], [0, 2]]
        step = stepper.step(obs_of(3, 4), done=[True, False])
        assert step.dist_inputs.tolist() == [[0, 1 if mode == "next_step" else 3], [0, 4]]
        assert step.value is None
        assert step.state is stepper.state is None
        stepper.reset()
        stepper.reset([0])


def test_no_reward_is_needed_where_no_view_reads_one():
    policy = rlcatalog.build(OBS, TWO, {"fcnet_hiddens": [2]}, "torch")
    stepper = policy.stepper(2, "next_step")
    stepper.step(obs_of(1, 2))
    step = stepper.step(obs_of(3, 4), done=[True, False])
    np.testing.assert_allclose(
        step.value, policy.values(policy.preprocess(obs_of(3, 4))), rtol=1e-6
    )
    np.testing.assert_allclose(step.dist_inputs, policy.act(obs_of(1, 4)).dist_inputs, rtol=1e-6)


def masked(mask, *numbers):
    return {"action_mask": np.array(mask, np.int8), "x": obs_of(*numbers)}


def test_a_last_observation_may_forbid_everything():
    policy = policy_of(Valueless, MASKED)
    stepper = policy.stepper(2, "next_step")
    stepper.step(masked([[1, 0], [0, 1]], 1, 2))
    step = stepper.step(masked([[0, 0], [0, 1]], 3, 4), done=[True, False], explore=False)
    assert step.raw_action[1, 0] == 1
    step = stepper.step(masked([[1, 0], [0, 1]], 3, 4), explore=False)
    assert step.raw_action[:, 0].tolist() == [0, 1]
    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        stepper.step(masked([[0, 0], [0, 1]], 3, 4))
    plain = policy_of(Valueless).stepper(2, "next_step")
    plain.step(obs_of(1, 2), mask=np.array([[1, 0], [0, 1]]))
    step = plain.step(
        obs_of(1, 2), mask=np.array([[0, 0], [1, 0]]), done=[True, False], explore=False
    )
    assert step.raw_action[1, 0] == 0
    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        plain.step(obs_of(1, 2), mask=np.array([[0, 0], [1, 0]]))


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_a_step_explores_unless_it_is_told_not_to(mode):
    # The odds are 1 to exp(0.5).
    policy, obs = policy_of(Valueless), np.full((300, 1), 0.5, np.float32)
    stepper = policy.stepper(300, mode)
    for _ in range(2):
        assert set(stepper.step(obs).raw_action[:, 0]) == {0, 1}
        assert set(stepper.step(obs, explore=False).raw_action[:, 0]) == {1}


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, -1, True, 2.0, None, "two"], ids=repr)
def test_a_stepper_needs_a_number_of_environments(policy, n):
    with pytest.raises(
        ConfigError, match=r"stepper: expected a number of environments, 1 or more, .*; found"
    ):
        policy.stepper(n)


def test_numbers_and_modes_are_read(policy):
    assert (policy.stepper(1).n, policy.stepper(np.int64(3)).n) == (1, 3)
    assert type(policy.stepper(np.int64(3)).n) is int
    assert policy.stepper(1).autoreset == "same_step"
    for name in ("next_step", "NextStep", "NEXT_STEP", gym.vector.AutoresetMode.NEXT_STEP):
        assert policy.stepper(1, name).autoreset == "next_step"
    for mode in ("later", "", 3):
        with pytest.raises(
            ConfigError,
            match=f"autoreset: expected one of same_step, next_step, disabled, found {mode!r}",
        ):
            policy.stepper(1, mode)


def test_a_vector_environment_says_its_mode(policy):
    modes = gym.vector.AutoresetMode
    own = SimpleNamespace(
        num_envs=2, autoreset_mode=modes.DISABLED, metadata={"autoreset_mode": modes.NEXT_STEP}
    )
    wrapped = SimpleNamespace(
        num_envs=2, unwrapped=own, metadata={"autoreset_mode": modes.NEXT_STEP}
    )
    of_class = SimpleNamespace(num_envs=2, metadata={"autoreset_mode": "SameStep"})
    for envs, mode in ((own, "disabled"), (wrapped, "disabled"), (of_class, "same_step")):
        assert autoreset_of(envs) == policy.stepper(envs).autoreset == mode
        assert policy.stepper(envs, "next_step").autoreset == "next_step"
        assert policy.stepper(envs).n == 2
    for silent in (SimpleNamespace(num_envs=2), SimpleNamespace(num_envs=2, metadata=None)):
        with pytest.raises(
            ConfigError, match="SimpleNamespace does not declare when it resets its environments"
        ):
            autoreset_of(silent)
        with pytest.raises(
            ConfigError, match="pass autoreset=, one of same_step, next_step, disabled"
        ):
            policy.stepper(silent)


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_done_has_one_boolean_for_each_environment(policy, mode):
    stepper = policy.stepper(2, mode)
    for done, problem in (
        ([True], r"shape \(1,\)"),
        ([[True, False]], r"shape \(1, 2\)"),
        (True, "True"),
    ):
        with pytest.raises(
            ModelContractError, match=f"done: expected 2 booleans, .*, found {problem}"
        ):
            stepper.step(obs_of(1, 2), done=done)
    with pytest.raises(ModelContractError, match="2"):
        stepper.step(obs_of(1, 2, 3))


def test_an_environment_is_described_for_messages():
    class Walk(gym.Env):
        observation_space, action_space = OBS, TWO

    single = "pass the id, the class or a function that makes a single environment: env="
    assert describe_env(Walk()) == ("one environment (Walk)", f"{single}Walk.")
    registered = SimpleNamespace(unwrapped=Walk(), spec=SimpleNamespace(id="Walk-v0"))
    assert describe_env(registered) == ("one environment (Walk)", f"{single}'Walk-v0'.")
    envs = SimpleNamespace(unwrapped=Walk(), num_envs=3, spec=SimpleNamespace(id="Walk-v0"))
    assert describe_env(envs) == ("a vector environment of 3 (Walk)", f"{single}MyEnv.")
