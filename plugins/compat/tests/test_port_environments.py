"""`rlcatalog port`: environments with gym's older interface, and what it reports about them."""

import textwrap
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import rlcatalog
from rlcatalog_compat.codemod.porter import port

HEAD = """\
import gym
from gym import spaces
from gym.utils import seeding
import numpy as np

"""
#: A walk along a line, as environments were written for gym: reset() returns the observation, and
#: step() four values. Drawing is RandomState's in its generator's names.
WALK = """
class Walk(gym.Env):
    metadata = {"render.modes": ["human"], "video.frames_per_second": 4}
    observation_space = spaces.Box(-9, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, config=None):
        self.seed()
        self.first = self.reset()

    def seed(self, seed=None):
        self.np_random, seed = seeding.np_random(seed)
        return [seed]

    def reset(self):
        \"\"\"Begin near the middle.\"\"\"
        self.num_steps = 0
        self.place = self.np_random.randint(-3, 4)
        return self._obs()

    def step(self, action):
        self.num_steps += 1
        self.place += 2 * action - 1
        done = abs(self.place) >= 5 or self.num_steps >= 20
        return (
            self._obs(),
            1.0 if done else 0.0,
            done,
            {},
        )

    def _obs(self):
        return np.array([self.place], np.float32)
"""


# What Gymnasium's checker advises against, but accepts: a method seed(), an observation space
# without bounds, and a check of a wrapper.
pytestmark = pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning")


def port_code(code):
    """Port code twice, which changes nothing the second time; return the result."""
    result = port((HEAD + textwrap.dedent(code)).encode())
    assert port(result.content).content == result.content
    return result


def run(result):
    """Run ported code, and return its names."""
    names = {}
    exec(result.content.decode(), names)
    return SimpleNamespace(**names)


def lines_of(notes, code):
    """Return the lines of notes as texts, without what stands around the code itself."""
    lines = (HEAD + textwrap.dedent(code)).splitlines()
    return [lines[note.line - 1].strip() for note in notes]


# --- environments ---------------------------------------------------------------------------------


def test_ported_environment_passes_gymnasiums_checker():
    result = port_code(WALK)

    env = run(result).Walk()

    assert result.notes == []
    assert result.environments == {"Walk": ["reset", "step"]}
    check_env(env, skip_render_check=True)
    assert env.metadata == {"render_modes": ["human"], "render_fps": 4}


def test_ported_environment_begins_alike_with_a_seed():
    env = run(port_code(WALK)).Walk()

    starts = [env.reset(seed=3)[0] for _ in range(3)]
    others = [env.reset()[0] for _ in range(20)]

    assert starts[0] == starts[1] == starts[2]
    assert len({obs.item() for obs in others}) > 1


def test_ported_environment_trains_a_policy():
    env = run(port_code(WALK)).Walk()

    policy = rlcatalog.build(env=env)

    obs, _ = env.reset(seed=0)
    assert env.step(policy.act([obs]).action[0])[4] == {}


def test_port_keeps_the_layout_of_returned_values():
    content = port_code(WALK).content.decode()

    assert "            done,\n            False,\n            {},\n" in content


def test_limit_of_steps_is_to_be_looked_at():
    result = port_code(WALK)

    [check] = result.checks
    assert lines_of([check], WALK) == ["done = abs(self.place) >= 5 or self.num_steps >= 20"]
    assert check.what == "self.num_steps >= 20"
    assert "truncated=True" in check.why


def test_end_without_a_limit_needs_no_look():
    assert port_code(WALK.replace(" or self.num_steps >= 20", "")).checks == []


def test_environment_without_seed_is_seeded_by_gymnasium():
    code = WALK.replace("        self.seed()\n", "")
    begin = code.index("    def seed(")
    code = code[:begin] + code[code.index("    def reset(") :]

    env = run(port_code(code)).Walk()

    # `randint` of gym's RandomState is `integers` of Gymnasium's generator, with the same bounds.
    expected = np.random.default_rng(3).integers(-3, 4)
    assert env.reset(seed=3)[0] == expected


def test_generator_of_the_class_keeps_its_methods():
    code = """
    class Dice(gym.Env):
        def seed(self, seed=None):
            self.np_random = np.random.RandomState(seed)

        def reset(self):
            return self.np_random.randint(6)
    """

    assert "self.np_random.randint(6), {}" in port_code(code).content.decode()


def test_sizes_of_drawn_arrays_become_a_tuple():
    code = """
    class Noise(gym.Env):
        def reset(self):
            return self.np_random.rand(2, 3)
    """

    obs, _ = run(port_code(code)).Noise().reset(seed=0)

    assert obs.shape == (2, 3)


def test_seed_that_no_class_defines_is_reported():
    code = """
    class Dice(gym.Env):
        def __init__(self):
            self.seed()
    """

    result = port_code(code)

    assert lines_of(result.notes, code) == ["self.seed()"]
    assert "no method seed()" in result.notes[0].why


# --- classes that derive from others --------------------------------------------------------------


def test_child_passes_the_seed_to_its_parent():
    child = """
    class Doubled(Walk):
        def reset(self):
            obs = super().reset()
            return 2 * obs
    """
    names = run(port_code(WALK + textwrap.dedent(child)))

    obs, info = names.Doubled().reset(seed=3)

    assert obs == 2 * names.Walk().reset(seed=3)[0]
    assert info == {}


def test_child_that_replaces_reset_does_not_run_its_parents():
    child = """
    class Middle(Walk):
        def reset(self):
            self.place = 0
            self.num_steps = 0
            return self._obs()
    """
    env = run(port_code(WALK + textwrap.dedent(child))).Middle()

    obs, _ = env.reset(seed=3)

    assert obs == 0
    assert env.np_random.integers(9) == np.random.default_rng(3).integers(9)


# --- wrappers -------------------------------------------------------------------------------------

SKIP = """
class Skip(gym.Wrapper):
    def reset(self, **kwargs):
        self.env.reset(**kwargs)
        obs, _, done, _ = self.env.step(0)
        if done: obs = self.env.reset(**kwargs)
        return obs

    def step(self, action):
        total = 0.0
        done = None
        for _ in range(2):
            obs, reward, done, info = self.env.step(action)
            total += reward
            if done:
                break
        return obs, total, done, info
"""
PASS = """
class Pass(gym.Wrapper):
    def reset(self):
        return self.env.reset()

    def step(self, action):
        obs, reward, done, info = self.env.step(action)
        return obs, reward, done, info
"""
SCALED = """
class Scaled(gym.ObservationWrapper):
    def reset(self):
        return self.observation(self.env.reset())

    def observation(self, obs):
        return obs / 2
"""


@pytest.mark.parametrize("code", [SKIP, PASS, SCALED], ids=["skip", "pass", "scaled"])
def test_ported_wrapper_passes_gymnasiums_checker(code):
    result = port_code(WALK + code)
    names = run(result)
    [name] = result.environments.keys() - {"Walk"}

    env = vars(names)[name](names.Walk())

    assert result.notes == []
    check_env(env, skip_render_check=True)


@pytest.mark.parametrize("code", [SKIP, PASS], ids=["skip", "pass"])
def test_ported_wrapper_passes_truncated_on(code):
    names = run(port_code(WALK + code))
    wrapper = vars(names)["Skip" if code is SKIP else "Pass"]
    env = wrapper(gym.wrappers.TimeLimit(names.Walk(), max_episode_steps=2))
    env.reset(seed=3)  # begins at 2, far from the ends at 5

    # Skip makes one step in reset() and the last one here, Pass one step at a time.
    *_, terminated, truncated, _ = env.step(0)
    if code is PASS:
        *_, terminated, truncated, _ = env.step(0)

    assert truncated
    assert not terminated


def test_wrapper_of_an_environment_that_it_makes_is_ported():
    code = """
    class Cart(gym.Env):
        def __init__(self, config):
            self.env = gym.make("CartPole-v1")
            self.observation_space = self.env.observation_space
            self.action_space = self.env.action_space

        def reset(self):
            state = self.env.reset()
            return state

        def step(self, action):
            state, reward, done, info = self.env.step(action)
            return state, reward, done, info
    """
    result = port_code(code)

    env = run(result).Cart({})

    assert result.notes == []
    check_env(env, skip_render_check=True)
    np.testing.assert_array_equal(env.reset(seed=3)[0], gym.make("CartPole-v1").reset(seed=3)[0])


# --- what is not certain --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "line", "why"),
    [
        pytest.param(
            """
            class Lives(gym.Wrapper):
                def step(self, action):
                    obs, reward, done, info = self.env.step(action)
                    if reward < 0:
                        done = True
                    return obs, reward, done, info
            """,
            "done = True",
            "which of the two is meant",
            id="wrapper-that-ends-episodes",
        ),
        pytest.param(
            """
            class Lives(gym.Wrapper):
                def reset(self, **kwargs):
                    if self.lives == 0:
                        obs = self.env.reset(**kwargs)
                    else:
                        obs = self.last
                    return obs
            """,
            "obs = self.env.reset(**kwargs)",
            "cannot tell what to do with them here",
            id="reset-in-a-branch",
        ),
        pytest.param(
            """
            class Other(gym.Env):
                def __init__(self, env):
                    self.env = env

                def reset(self):
                    return self.env.reset()
            """,
            "return self.env.reset()",
            "whether this is an environment of Gymnasium",
            id="environment-of-any-kind",
        ),
        pytest.param(
            """
            class Pair(gym.Env):
                def reset(self):
                    return 1, 2
            """,
            "return 1, 2",
            "cannot tell what this reset() returns",
            id="reset-with-two-values",
        ),
        pytest.param(
            """
            class Helped(gym.Env):
                def step(self, action):
                    return self._move(action)

                def _move(self, action):
                    return 0, 0.0, False, {}
            """,
            "return self._move(action)",
            "cannot tell how many values",
            id="step-of-a-helper",
        ),
        pytest.param(
            """
            class Between(gym.Env):
                def reset(self, seed=None, return_info=False):
                    return 0
            """,
            "def reset(self, seed=None, return_info=False):",
            "no argument return_info",
            id="gym-0.25",
        ),
        pytest.param(
            """
            class Start(gym.Env):
                def reset(self, state):
                    return state
            """,
            "def reset(self, state):",
            "needs another argument",
            id="argument-of-reset",
        ),
        pytest.param(
            """
            class First(gym.Env):
                def _reset(self):
                    return 0
            """,
            "def _reset(self):",
            "only gym's oldest versions",
            id="gym-0.9",
        ),
        pytest.param(
            """
            class Mine(TheirEnv):
                def step(self, action):
                    return 0, 0.0, False, {}
            """,
            "return 0, 0.0, False, {}",
            "one that the command does not know",
            id="class-of-another-file",
        ),
    ],
)
def test_method_that_is_not_certain_is_reported(code, line, why):
    result = port_code(code)

    assert lines_of(result.notes, code) == [line]
    assert why in result.notes[0].why
    body = textwrap.dedent(code)
    assert result.content.decode().endswith(body)  # the class is unchanged


def test_new_environment_is_unchanged():
    code = """
    class New(gym.Env):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return 0, {}

        def step(self, action):
            return 0, 0.0, False, False, {}
    """

    result = port_code(code)

    assert result.notes == []
    assert result.content.decode().endswith(textwrap.dedent(code))


def test_steps_of_other_classes_are_unchanged():
    code = """
    class Clock:
        def reset(self):
            return 0

        def step(self):
            return 1, 2, 3, 4
    """

    result = port_code(code)

    assert result.notes == []
    assert result.content.decode().endswith(textwrap.dedent(code))
