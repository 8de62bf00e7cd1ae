"""Vector environments that return PyTorch tensors."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import rlcatalog
from rlcatalog.catalog import make_env
from rlcatalog.errors import CatalogWarning, NotServedError

torch = pytest.importorskip("torch")


class Counter:
    """Counts its steps; environment `i` terminates after `i + 1` steps, and is reset at once.

    It writes its observations into one buffer, as simulators do.
    """

    device = torch.device("cpu")
    num_envs = 2
    single_observation_space = spaces.Dict(
        {"step": spaces.Box(-9, 9, (1,), np.float32), "odd": spaces.MultiBinary(1)}
    )
    single_action_space = spaces.Discrete(3)

    def __init__(self, final_key=None, masks=False):
        self.steps = torch.zeros(self.num_envs, 1)
        self.final_key = final_key
        self.masks = masks
        self.actions = []
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.steps.zero_()
        return self._obs(), {}

    def step(self, actions):
        self.actions.append(actions)
        self.steps += 1
        infos = {}
        if self.final_key is not None:
            infos[self.final_key] = {key: value.clone() for key, value in self._obs().items()}
        if self.masks:
            infos["action_mask"] = torch.tensor([[True, False, True], [True, True, False]])
        terminated = self.steps[:, 0] == torch.arange(self.num_envs) + 1
        self.steps[terminated] = 0
        truncated = torch.zeros(self.num_envs, dtype=torch.bool)
        return self._obs(), torch.ones(self.num_envs), terminated, truncated, infos

    def _obs(self):
        return {"step": self.steps, "odd": self.steps % 2 == 1}


@pytest.fixture
def make_envs():
    """Return a function that adapts a counter and resets it."""

    def make(counter):
        envs = make_env(counter)
        with pytest.warns(CatalogWarning, match="each step copies them to the host"):
            envs.reset(seed=0)
        return envs

    return make


def test_build_and_explain_take_one_environments_spaces():
    policy = rlcatalog.build(env=Counter(), config={"fcnet_hiddens": [4]}, framework="torch")

    assert policy.observation_space == Counter.single_observation_space
    assert rlcatalog.explain(env=Counter()).env == "Counter"


def test_step_returns_arrays_of_the_spaces_dtypes(make_envs):
    envs = make_envs(Counter())

    obs, reward, terminated, truncated, _ = envs.step(np.array([0, 2]))

    assert obs["step"].dtype == np.float32
    assert obs["odd"].dtype == np.int8  # a MultiBinary's, from booleans
    assert type(reward) is np.ndarray
    np.testing.assert_array_equal(terminated, [True, False])
    np.testing.assert_array_equal(truncated, [False, False])


def test_actions_arrive_as_tensors_on_the_device(make_envs):
    counter = Counter()
    envs = make_envs(counter)

    envs.step(np.array([0, 2]))

    [actions] = counter.actions
    assert torch.equal(actions, torch.tensor([0, 2]))
    assert actions.device == counter.device


def test_buffers_of_the_simulator_are_copied(make_envs):
    envs = make_envs(Counter())
    obs, *_ = envs.step(np.array([0, 0]))

    envs.step(np.array([0, 0]))

    np.testing.assert_array_equal(obs["step"], [[0], [1]])


@pytest.mark.parametrize("key", ["final_obs", "final_observation"])
def test_last_observation_is_that_of_the_environment(make_envs, key):
    envs = make_envs(Counter(final_key=key))

    _, _, _, _, infos = envs.step(np.array([0, 0]))

    np.testing.assert_array_equal(infos["final_obs"][0]["step"], [1])
    assert infos["final_obs"][1] is None
    np.testing.assert_array_equal(infos["_final_obs"], [True, False])


def test_missing_last_observation_is_the_one_before_the_step(make_envs):
    envs = make_envs(Counter())
    envs.step(np.array([0, 0]))

    _, _, terminated, _, infos = envs.step(np.array([0, 0]))

    np.testing.assert_array_equal(terminated, [True, True])
    # Environment 0 had just begun, and environment 1 had taken a step.
    np.testing.assert_array_equal(infos["final_obs"][0]["step"], [0])
    np.testing.assert_array_equal(infos["final_obs"][1]["step"], [1])


def test_masks_in_infos_become_arrays(make_envs):
    envs = make_envs(Counter(masks=True))

    _, _, _, _, infos = envs.step(np.array([0, 0]))

    np.testing.assert_array_equal(infos["action_mask"], [[1, 0, 1], [1, 1, 0]])


def test_masks_of_a_method_become_arrays():
    counter = Counter()
    counter.action_masks = lambda: torch.ones(2, 3, dtype=torch.bool)

    assert type(make_env(counter).action_masks()) is np.ndarray


def test_mode_of_the_environment_is_kept():
    counter = Counter()
    counter.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    assert make_env(counter).metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    assert make_env(Counter()).metadata["autoreset_mode"] == AutoresetMode.SAME_STEP


def test_copies_are_mentioned_once(make_envs):
    envs = make_envs(Counter())

    envs.reset()  # pytest makes a warning an error
    envs.step(np.array([0, 0]))


def test_environment_inside_wrappers_is_adapted(make_envs):
    counter = Counter()

    class InGymnasium(gym.Env):
        device = counter.device
        num_envs = counter.num_envs
        single_observation_space = counter.single_observation_space
        single_action_space = counter.single_action_space
        reset = counter.reset
        step = counter.step

    # `gymnasium.make` wraps an environment of Isaac Lab like this.
    envs = make_envs(gym.Wrapper(InGymnasium()))

    obs, *_ = envs.step(np.array([0, 0]))

    assert obs["step"].shape == (2, 1)


def test_environment_without_spaces_names_the_bridges():
    env = SimpleNamespace(num_envs=4, device="cpu", num_actions=2)  # as rsl_rl has it

    with pytest.raises(NotServedError, match="rlcatalog-rsl-rl"):
        make_env(env)
