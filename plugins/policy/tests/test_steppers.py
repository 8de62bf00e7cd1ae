"""Steppers, which act in several environments at once and restart the memory where an episode ends.

The outputs of the model `ReportsInputs` show which observation, memory and reward each row used.
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

ONE_FEATURE = spaces.Box(-1e4, 1e4, (1,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)
MASKED = spaces.Dict({"action_mask": spaces.MultiBinary(2), "x": ONE_FEATURE})


class ReportsInputs(TorchModelV2):
    """Returns what it sees: the steps since the episode began, the observation, the last reward.

    The two inputs of the distribution are the steps and the observation. The digits of the value
    show all three (see `assert_seen`).
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.view_requirements["reward"] = ViewRequirement("rewards", shift=-1)

    def get_initial_state(self):
        return [torch.zeros(1)]

    def forward(self, input_dict, state, seq_lens):
        steps = state[0][:, 0]
        obs = input_dict["obs_flat"][:, -1]
        self.value = (100 * steps + obs + 10_000 * input_dict["reward"]) * self.scale
        return torch.stack([steps, obs], 1) * self.scale, [state[0] + 1]

    def value_function(self):
        return self.value


class WithoutMemoryOrValue(TorchModelV2):
    """Returns 0 and the observation as its outputs."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_dict, state, seq_lens):
        obs = input_dict["obs_flat"][:, -1]
        return torch.stack([0 * obs, obs], 1) * self.scale, state


def build_policy(model, *, space=ONE_FEATURE):
    return rlcatalog.build(space, TWO_ACTIONS, {"custom_model": model}, "torch")


@pytest.fixture(scope="module")
def policy():
    """A policy whose outputs show what it sees, such as the steps of each episode."""
    return build_policy(ReportsInputs)


@pytest.fixture(scope="module")
def memoryless_policy():
    return build_policy(WithoutMemoryOrValue)


def obs_of(*numbers):
    """Return observations, one number for each row."""
    return np.float32(numbers)[:, None]


def assert_seen(step, *, steps_before, acts_on, value_of, last_rewards=(0, 0)):
    """Check what the model saw in each row.

    Args:
        step: The result of a step.
        steps_before: The number of steps that each episode has taken before.
        acts_on: The observations that the actions are for.
        value_of: The observations that the values are of.
        last_rewards: The last rewards, 0 at the beginning of an episode.
    """
    assert step.dist_inputs[:, 0].tolist() == steps_before
    assert step.dist_inputs[:, 1].tolist() == acts_on
    expected_values = [
        10_000 * reward + 100 * count + obs
        for reward, count, obs in zip(last_rewards, steps_before, value_of, strict=True)
    ]
    assert step.value.tolist() == expected_values


# --- ends of episodes -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_step_counts_steps_and_passes_rewards_on(policy, mode):
    stepper = policy.stepper(2, mode)

    step = stepper.step(obs_of(1, 2))
    assert_seen(step, steps_before=[0, 0], acts_on=[1, 2], value_of=[1, 2])

    step = stepper.step(obs_of(3, 4), prev_reward=[5, 6])
    assert_seen(step, steps_before=[1, 1], acts_on=[3, 4], value_of=[3, 4], last_rewards=[5, 6])


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_same_step_mode_restarts_at_the_given_observation(policy, mode):
    stepper = policy.stepper(2, mode)
    stepper.step(obs_of(3, 4))

    # The first episode is over, and 5 is the first observation of the next one.
    step = stepper.step(obs_of(5, 6), done=[True, False], prev_reward=[8, 9])
    assert_seen(step, steps_before=[0, 1], acts_on=[5, 6], value_of=[5, 6], last_rewards=[0, 9])

    step = stepper.step(obs_of(7, 8), done=[False, False], prev_reward=[1, 2])
    assert_seen(step, steps_before=[1, 2], acts_on=[7, 8], value_of=[7, 8], last_rewards=[1, 2])


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_done_may_be_an_array_of_0_and_1(policy, mode):
    stepper = policy.stepper(2, mode)
    stepper.step(obs_of(3, 4))

    step = stepper.step(obs_of(5, 6), done=np.array([1, 0]), prev_reward=[0, 0])
    assert_seen(step, steps_before=[0, 1], acts_on=[5, 6], value_of=[5, 6])

    step = stepper.step(obs_of(7, 8), done=np.array([0, 0]), prev_reward=[0, 0])
    assert_seen(step, steps_before=[1, 2], acts_on=[7, 8], value_of=[7, 8])


def test_next_step_mode_restarts_one_step_after_the_end(policy):
    stepper = policy.stepper(2, autoreset="next_step")
    stepper.step(obs_of(1, 2))

    # The first episode ends with the observation 3. The environment ignores the next action of this
    # row, so that it acts on 1 again, but its value is that of 3.
    step = stepper.step(obs_of(3, 4), done=[True, False], prev_reward=[5, 6])
    assert_seen(step, steps_before=[1, 1], acts_on=[1, 4], value_of=[3, 4], last_rewards=[5, 6])

    # The environment has reset: 5 is the first observation of the next episode.
    step = stepper.step(obs_of(5, 6), done=[False, False], prev_reward=[7, 8])
    assert_seen(step, steps_before=[0, 2], acts_on=[5, 6], value_of=[5, 6], last_rewards=[0, 8])


def test_next_step_mode_restarts_all_rows(policy):
    stepper = policy.stepper(2, "next_step")
    stepper.step(obs_of(5, 6))

    # Both rows act on their last observations again; 7 and 8 have the values.
    step = stepper.step(obs_of(7, 8), done=[True, True], prev_reward=[1, 1])
    assert_seen(step, steps_before=[1, 1], acts_on=[5, 6], value_of=[7, 8], last_rewards=[1, 1])

    step = stepper.step(obs_of(9, 10), prev_reward=[1, 1])
    assert_seen(step, steps_before=[0, 0], acts_on=[9, 10], value_of=[9, 10])


def test_next_step_mode_with_two_ends_in_a_row_keeps_observation(policy):
    stepper = policy.stepper(1, autoreset="next_step")
    stepper.step(obs_of(1))

    step = stepper.step(obs_of(2), done=[True], prev_reward=[0])
    assert_seen(step, steps_before=[1], acts_on=[1], value_of=[2], last_rewards=[0])

    # The next episode ends with its first observation, 3.
    step = stepper.step(obs_of(3), done=[True], prev_reward=[0])
    assert_seen(step, steps_before=[0], acts_on=[1], value_of=[3], last_rewards=[0])

    step = stepper.step(obs_of(4), prev_reward=[0])
    assert_seen(step, steps_before=[0], acts_on=[4], value_of=[4], last_rewards=[0])


def test_next_step_mode_acts_on_a_first_observation_that_is_done(policy):
    stepper = policy.stepper(2, "next_step")

    step = stepper.step(obs_of(1, 2), done=[True, False])
    assert_seen(step, steps_before=[0, 0], acts_on=[1, 2], value_of=[1, 2])

    step = stepper.step(obs_of(3, 4), prev_reward=[0, 0])
    assert_seen(step, steps_before=[0, 1], acts_on=[3, 4], value_of=[3, 4])


# --- resetting and states -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "steps"),
    [
        pytest.param([1], [2, 0], id="indices"),
        pytest.param(np.array([True, False]), [0, 2], id="booleans"),
    ],
)
def test_reset_restarts_the_given_rows(policy, rows, steps):
    stepper = policy.stepper(2)
    for _ in range(2):
        stepper.step(obs_of(1, 2), prev_reward=[0, 0])

    stepper.reset(rows)

    step = stepper.step(obs_of(3, 4), prev_reward=[0, 0])
    assert_seen(step, steps_before=steps, acts_on=[3, 4], value_of=[3, 4])


def test_reset_without_rows_restarts_all(policy):
    stepper = policy.stepper(2)
    stepper.step(obs_of(1, 2), prev_reward=[0, 0])

    stepper.reset()

    step = stepper.step(obs_of(3, 4))
    assert_seen(step, steps_before=[0, 0], acts_on=[3, 4], value_of=[3, 4])


@pytest.fixture(scope="module")
def state_after_three_steps(policy):
    stepper = policy.stepper(2, "next_step")
    for _ in range(3):
        stepper.step(obs_of(1, 2), prev_reward=[0, 0])
    return stepper.state


def test_state_of_a_stepper_is_a_state_of_act(policy, state_after_three_steps):
    step = policy.act(obs_of(5, 6), state_after_three_steps, prev_reward=[0, 0])

    assert_seen(step, steps_before=[3, 3], acts_on=[5, 6], value_of=[5, 6])


def test_state_can_be_set_on_a_new_stepper(policy, state_after_three_steps):
    stepper = policy.stepper(2, "next_step")

    stepper.state = state_after_three_steps

    step = stepper.step(obs_of(5, 6), prev_reward=[0, 0])
    assert_seen(step, steps_before=[3, 3], acts_on=[5, 6], value_of=[5, 6])


@pytest.mark.parametrize("reset_rows", [None, [0, 1], [0]], ids=["all", "both", "ended-row"])
def test_state_set_after_reset_is_not_restarted_again(policy, state_after_three_steps, reset_rows):
    stepper = policy.stepper(2, autoreset="next_step")
    stepper.step(obs_of(1, 2), prev_reward=[0, 0])
    # Because its episode ends here, the next step would restart the first row.
    stepper.step(obs_of(1, 2), done=[True, False], prev_reward=[0, 0])

    stepper.reset(reset_rows)
    stepper.state = state_after_three_steps

    # Both rows go on from the state that was set, which has three steps.
    step = stepper.step(obs_of(5, 6), prev_reward=[0, 0])
    assert_seen(step, steps_before=[3, 3], acts_on=[5, 6], value_of=[5, 6])


def test_state_set_after_an_end_is_restarted_in_that_row(policy, state_after_three_steps):
    stepper = policy.stepper(2, "next_step")
    stepper.step(obs_of(1, 2), prev_reward=[0, 0])
    stepper.step(obs_of(1, 2), done=[True, False], prev_reward=[0, 0])

    stepper.state = state_after_three_steps

    step = stepper.step(obs_of(5, 6), prev_reward=[0, 0])
    assert_seen(step, steps_before=[0, 3], acts_on=[5, 6], value_of=[5, 6])


# --- models without a memory ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "acts_on"),
    [
        pytest.param("next_step", [1, 4], id="next_step"),  # the row that ended acts on 1 again
        pytest.param("same_step", [3, 4], id="same_step"),
    ],
)
def test_stepper_of_a_memoryless_model_acts(memoryless_policy, mode, acts_on):
    stepper = memoryless_policy.stepper(2, mode)
    stepper.step(obs_of(1, 2))

    step = stepper.step(obs_of(3, 4), done=[True, False])

    # The model returns 0 and the observation that it acts on.
    first_obs, second_obs = acts_on
    assert step.dist_inputs.tolist() == [[0, first_obs], [0, second_obs]]
    assert step.value is None


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_stepper_of_a_memoryless_model_has_no_state(memoryless_policy, mode):
    stepper = memoryless_policy.stepper(2, mode)
    assert stepper.state is None

    stepper.step(obs_of(1, 2))
    step = stepper.step(obs_of(3, 4), done=[True, False])

    assert step.state is None
    assert stepper.state is None


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_stepper_of_a_memoryless_model_can_be_reset(memoryless_policy, mode):
    stepper = memoryless_policy.stepper(2, mode)
    stepper.step(obs_of(1, 2))
    stepper.step(obs_of(3, 4), done=[True, False])

    stepper.reset()
    stepper.reset([0])

    step = stepper.step(obs_of(5, 6))
    assert step.dist_inputs.tolist() == [[0, 5], [0, 6]]  # 0 and the observation


def test_step_needs_no_reward_if_the_model_reads_none():
    policy = rlcatalog.build(ONE_FEATURE, TWO_ACTIONS, {"fcnet_hiddens": [2]}, "torch")
    stepper = policy.stepper(2, "same_step")
    stepper.step(obs_of(1, 2))

    step = stepper.step(obs_of(3, 4), done=[True, False])  # without prev_reward

    np.testing.assert_allclose(step.value, policy.act(obs_of(3, 4)).value, rtol=1e-6)


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_step_explores_unless_told_not_to(memoryless_policy, mode):
    # The logits are 0 and 0.5, so that sampling takes both actions, and the second is the best.
    obs = np.full((300, 1), 0.5, np.float32)
    stepper = memoryless_policy.stepper(300, mode)

    for _ in range(2):
        assert set(stepper.step(obs).raw_action[:, 0]) == {0, 1}
        assert set(stepper.step(obs, explore=False).raw_action[:, 0]) == {1}


# --- masks ----------------------------------------------------------------------------------------


def masked_obs(*, mask):
    return {"action_mask": np.array(mask, np.int8), "x": obs_of(1, 2)}


def test_observed_mask_of_an_ended_episode_may_forbid_everything():
    stepper = build_policy(WithoutMemoryOrValue, space=MASKED).stepper(2, "next_step")
    stepper.step(masked_obs(mask=[[1, 0], [0, 1]]))

    step = stepper.step(masked_obs(mask=[[0, 0], [0, 1]]), done=[True, False], explore=False)
    assert step.raw_action[1, 0] == 1  # the only action that the mask of the second row allows

    # The next episode of the first row allows action 0 only, the second row action 1.
    step = stepper.step(masked_obs(mask=[[1, 0], [0, 1]]), explore=False)
    assert step.raw_action[:, 0].tolist() == [0, 1]


def test_observed_mask_of_a_running_episode_allows_an_action():
    stepper = build_policy(WithoutMemoryOrValue, space=MASKED).stepper(2, "next_step")
    stepper.step(masked_obs(mask=[[1, 0], [0, 1]]))

    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        stepper.step(masked_obs(mask=[[0, 0], [0, 1]]))


def test_passed_mask_of_an_ended_episode_may_forbid_everything(memoryless_policy):
    stepper = memoryless_policy.stepper(2, "next_step")
    stepper.step(obs_of(1, 2), mask=np.array([[1, 0], [0, 1]]))

    mask = np.array([[0, 0], [1, 0]])
    step = stepper.step(obs_of(1, 2), mask=mask, done=[True, False], explore=False)

    assert step.raw_action[1, 0] == 0  # the only action that the mask of the second row allows


def test_passed_mask_of_a_running_episode_allows_an_action(memoryless_policy):
    stepper = memoryless_policy.stepper(2, "next_step")
    stepper.step(obs_of(1, 2), mask=np.array([[1, 0], [0, 1]]))

    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        stepper.step(obs_of(1, 2), mask=np.array([[0, 0], [1, 0]]))


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, -1, True, 2.0, None, "two"], ids=repr)
def test_stepper_rejects_an_invalid_number_of_environments(policy, n):
    with pytest.raises(ConfigError, match="stepper: expected a number of env"):
        policy.stepper(n)


@pytest.mark.parametrize("n", [1, np.int64(3)], ids=["python", "numpy"])
def test_stepper_stores_its_number_as_python_int(policy, n):
    stepper = policy.stepper(n)

    assert stepper.n == n
    assert type(stepper.n) is int


def test_autoreset_mode_is_same_step_by_default(policy):
    assert policy.stepper(1).autoreset == "same_step"


@pytest.mark.parametrize(
    "mode", ["next_step", "NextStep", "NEXT_STEP", gym.vector.AutoresetMode.NEXT_STEP]
)
def test_autoreset_mode_is_read_in_each_spelling(policy, mode):
    assert policy.stepper(1, mode).autoreset == "next_step"


@pytest.mark.parametrize("mode", ["later", "", 3])
def test_unknown_autoreset_mode_error_lists_the_modes(policy, mode):
    with pytest.raises(ConfigError, match=f"autoreset: .* found {mode!r}") as caught:
        policy.stepper(1, mode)

    assert "same_step, next_step, disabled" in str(caught.value)


MODES = gym.vector.AutoresetMode
NEXT_STEP_METADATA = {"autoreset_mode": MODES.NEXT_STEP}
INNER_ENVS = SimpleNamespace(num_envs=2, autoreset_mode=MODES.DISABLED, metadata=NEXT_STEP_METADATA)


@pytest.mark.parametrize(
    ("envs", "mode"),
    [
        pytest.param(INNER_ENVS, "disabled", id="attribute-overrides-metadata"),
        pytest.param(
            SimpleNamespace(num_envs=2, unwrapped=INNER_ENVS, metadata=NEXT_STEP_METADATA),
            "disabled",
            id="attribute-of-the-wrapped-environment",
        ),
        pytest.param(
            SimpleNamespace(num_envs=2, metadata={"autoreset_mode": "SameStep"}),
            "same_step",
            id="metadata",
        ),
    ],
)
def test_stepper_takes_mode_and_number_of_a_vector_environment(policy, envs, mode):
    assert autoreset_of(envs) == mode
    assert policy.stepper(envs).autoreset == mode
    assert policy.stepper(envs).n == 2
    assert policy.stepper(envs, "next_step").autoreset == "next_step"


@pytest.mark.parametrize(
    "envs",
    [
        pytest.param(SimpleNamespace(num_envs=2), id="no-metadata"),
        pytest.param(SimpleNamespace(num_envs=2, metadata=None), id="metadata-none"),
    ],
)
def test_vector_environment_without_a_mode_is_an_error(policy, envs):
    with pytest.raises(ConfigError, match="does not declare when it resets"):
        autoreset_of(envs)
    with pytest.raises(ConfigError, match="pass autoreset=, one of ") as caught:
        policy.stepper(envs)
    assert "same_step, next_step, disabled" in str(caught.value)


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize(
    ("done", "description"),
    [
        pytest.param([True], r"shape \(1,\)", id="too-few"),
        pytest.param([[True, False]], r"shape \(1, 2\)", id="too-many-axes"),
        pytest.param(True, "True", id="a-single-value"),
    ],
)
def test_done_of_wrong_shape_is_rejected(policy, mode, done, description):
    with pytest.raises(ModelContractError, match=f"2 booleans, .*, found {description}"):
        policy.stepper(2, mode).step(obs_of(1, 2), done=done)


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_observations_of_wrong_number_are_rejected(policy, mode):
    with pytest.raises(ModelContractError, match="2"):
        policy.stepper(2, mode).step(obs_of(1, 2, 3))


# --- messages -------------------------------------------------------------------------------------


class Walk(gym.Env):
    observation_space = ONE_FEATURE
    action_space = TWO_ACTIONS


@pytest.mark.parametrize(
    ("env", "description", "argument"),
    [
        pytest.param(Walk(), "one environment (Walk)", "env=Walk.", id="class"),
        pytest.param(
            SimpleNamespace(unwrapped=Walk(), spec=SimpleNamespace(id="Walk-v0")),
            "one environment (Walk)",
            "env='Walk-v0'.",
            id="registered",
        ),
        pytest.param(
            SimpleNamespace(
                unwrapped=Walk(),
                num_envs=3,
                single_action_space=TWO_ACTIONS,
                spec=SimpleNamespace(id="Walk-v0"),
            ),
            "a vector environment of 3 (Walk)",
            "env=MyEnv.",
            id="vector",
        ),
    ],
)
def test_describe_env_says_what_to_pass_instead(env, description, argument):
    found_description, advice = describe_env(env)

    assert found_description == description
    assert advice.startswith("pass the id, the class or a function that makes a single ")
    assert advice.endswith(argument)
