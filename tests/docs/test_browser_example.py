"""The page in `examples/browser`: it has Gymnasium's CartPole, and acts like `Actor` with the same
file.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import browser
import gymnasium as gym
import numpy as np
import pytest

import rlcatalog

PAGE = Path(__file__).resolve().parents[2] / "examples/browser"
STARTS = [[0.01, 0.02, -0.03, 0.04], [0.6, -0.5, 0.1, 0.2], [-1.4, 0.3, -0.08, -0.4]]
#: For so many steps both act alike. Later, the difference between two libraries' sines may change
#: an action, because it grows tenfold in half a second.
COMPARABLE_STEPS = 200


@pytest.fixture(scope="module")
def env():
    """Gymnasium's CartPole."""
    cartpole = gym.make("CartPole-v1")
    cartpole.reset(seed=0)
    yield cartpole
    cartpole.close()


def set_state(env, state):
    """Begin an episode at a state, and return its observation."""
    env.reset(seed=0)
    env.unwrapped.state = np.array(state)
    return np.array(state, np.float32)


# --- the environment ------------------------------------------------------------------------------


#: Reads pairs of states and actions, and prints what the page's environment makes of them.
SCRIPT = """
import * as cartpole from "./cartpole.js";
import { readFileSync } from "node:fs";
const pairs = JSON.parse(readFileSync(0, "utf8"));
const random = cartpole.generator(7);
console.log(JSON.stringify({
  next_states: pairs.map(([state, action]) => cartpole.step(state, action)),
  failed: pairs.map(([state]) => cartpole.failed(state)),
  random_numbers: Array.from({ length: 4000 }, random),
  first_states: Array.from({ length: 100 }, () => cartpole.begin(random)),
  max_steps: cartpole.STEPS,
  number_of_actions: cartpole.ACTIONS,
}));
"""


@pytest.fixture(scope="module")
def states():
    # Some of them beyond the limits of 2.4 and 0.21, where an episode ends.
    rng = np.random.default_rng(0)
    return rng.uniform([-2.6, -3, -0.25, -3], [2.6, 3, 0.25, 3], (500, 4))


@pytest.fixture(scope="module")
def actions():
    return np.random.default_rng(1).integers(2, size=500)


@pytest.fixture(scope="module")
def output(states, actions):
    pairs = [list(pair) for pair in zip(states.tolist(), actions.tolist(), strict=True)]
    done = subprocess.run(
        ["node", "--input-type=module", "-e", SCRIPT],
        cwd=PAGE,
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
class TestCartPole:
    """The page's environment beside Gymnasium's."""

    def test_steps_are_those_of_gymnasium(self, env, states, actions, output):
        cartpole = env.unwrapped
        for state, action, next_state in zip(states, actions, output["next_states"], strict=True):
            set_state(env, state)
            cartpole.step(action)
            np.testing.assert_allclose(next_state, cartpole.state, rtol=1e-13, atol=1e-15)

    def test_limits_are_those_of_gymnasium(self, env, states, output):
        cartpole = env.unwrapped
        limits = [cartpole.x_threshold, cartpole.theta_threshold_radians]
        is_beyond = (np.abs(states[:, [0, 2]]) > limits).any(axis=1)
        assert 100 < is_beyond.sum() < 400
        np.testing.assert_array_equal(output["failed"], is_beyond)

    def test_constants_are_those_of_gymnasium(self, env, output):
        assert output["max_steps"] == env.spec.max_episode_steps
        assert output["number_of_actions"] == env.action_space.n

    def test_random_numbers_are_uniform(self, output):
        numbers = np.array(output["random_numbers"], np.float32)
        assert 0 < numbers.min() < 0.01
        assert 0.99 < numbers.max() < 1
        assert abs(numbers.mean() - 0.5) < 0.02
        assert len(np.unique(numbers)) > 3990

    def test_first_states_are_uniform_near_zero(self, output):
        first_states = np.array(output["first_states"])
        assert first_states.shape == (100, 4)
        # Gymnasium's are between -0.05 and 0.05.
        assert -0.05 < first_states.min() < -0.04
        assert 0.04 < first_states.max() < 0.05


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported_file(tmp_path_factory, one_thread):
    """The exported file of a policy that was trained for a moment."""
    pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")
    pytest.importorskip(
        "onnxscript", reason="needs rlcatalog-export[torch], which is not installed here"
    )
    ppo = pytest.importorskip(
        "rlcatalog_ppo", reason="needs rlcatalog-ppo, which is not installed here"
    )
    config = {"model": {"fcnet_hiddens": [32]}, "framework": "torch", "seed": 0}
    algo = ppo.PPO("CartPole-v1", config)
    try:
        while algo.steps < 4000:
            algo.train()
        path = tmp_path_factory.mktemp("exported") / "policy.onnx"
        algo.policy.export(path)
        return path
    finally:
        algo.stop()


#: Visits of the page: its query, and how often the button is clicked that samples actions.
GIVEN_STARTS = [f"state={','.join(map(str, start))}&fast&episodes=1" for start in STARTS]
VISITS = [
    (GIVEN_STARTS[0], 1),
    (GIVEN_STARTS[1], 0),
    (GIVEN_STARTS[2], 0),
    ("seed=5&drawn&fast&episodes=6", 0),
    ("seed=5&drawn&fast&episodes=1", 0),
    ("state=1,2,x,4", 0),
]


@pytest.fixture(scope="module")
def visits_and_files(exported_file, tmp_path_factory):
    """What the page showed at each visit, and the paths of the files that it loaded."""
    folder = tmp_path_factory.mktemp("page")
    for name in ("index.html", "cartpole.js", "policy.js", "node_modules"):
        (folder / name).symlink_to(PAGE / name)
    shutil.copy(exported_file, folder / "policy.onnx")
    return browser.opened(folder, VISITS, tmp_path_factory.mktemp("browser"))


def play(env, actor, start):
    """Return the most likely actions from a start to the end of its episode."""
    obs = set_state(env, start)
    actions = []
    is_over = False
    while not is_over:
        action = int(actor.act([obs], explore=False).action[0])
        actions.append(action)
        obs, _, terminated, truncated, _ = env.step(action)
        is_over = terminated or truncated
    return actions


@pytest.mark.skipif(browser.browser() is None, reason="Chromium is not installed")
@pytest.mark.skipif(
    not (PAGE / "node_modules/onnxruntime-web").is_dir(),
    reason="`npm ci` was not run in examples/browser",
)
@pytest.mark.usefixtures("default")
class TestPage:
    """The page in a browser."""

    @pytest.fixture
    def visits(self, visits_and_files):
        return visits_and_files[0]

    @pytest.fixture
    def loaded_files(self, visits_and_files):
        return visits_and_files[1]

    @pytest.fixture
    def actor(self, exported_file):
        return rlcatalog.Actor(exported_file)

    @pytest.mark.parametrize("visit", range(3))
    def test_page_acts_like_the_actor(self, visit, env, actor, visits):
        episode = visits[visit]["episodes"][0]
        expected = play(env, actor, STARTS[visit])
        assert episode["start"] == STARTS[visit]
        assert episode["actions"][:COMPARABLE_STEPS] == expected[:COMPARABLE_STEPS]
        if len(expected) < COMPARABLE_STEPS:
            assert len(episode["actions"]) == len(expected)

    def test_starts_give_episodes_of_different_lengths(self, env, actor):
        lengths = {len(play(env, actor, start)) for start in STARTS}
        comparable = {length for length in lengths if length < COMPARABLE_STEPS}
        assert len(comparable) > 1
        assert max(comparable) > 20  # longer than those of an untrained policy

    @pytest.mark.parametrize("visit", range(3))
    def test_page_shows_the_length_of_an_episode(self, visit, visits):
        episode = visits[visit]["episodes"][0]
        assert visits[visit]["texts"][0] == ["has played", str(len(episode["actions"]))]

    def test_sampled_actions_follow_the_probabilities(self, env, actor, visits):
        actions = []
        probabilities_of_1 = []
        # At this visit, the page draws its actions at random, with a given seed.
        for episode in visits[3]["episodes"]:
            assert episode["drawn"]
            obs = set_state(env, episode["start"])
            for action in episode["actions"]:
                logits = actor.act([obs], explore=False).dist_inputs[0]
                # The softmax of two logits.
                probabilities_of_1.append(1 / (1 + np.exp(logits[0] - logits[1])))
                actions.append(action)
                obs, *_ = env.step(action)

        probabilities = np.array(probabilities_of_1)
        # The number of actions 1 is within four standard deviations of its mean.
        variance = (probabilities * (1 - probabilities)).sum()
        assert abs(sum(actions) - probabilities.sum()) < 4 * np.sqrt(variance)
        # Some actions, but less than half, are the less likely ones.
        is_less_likely = np.array(actions) != (probabilities > 0.5)
        assert 0 < is_less_likely.mean() < 0.5

    def test_sampled_episodes_end_where_those_of_gymnasium_end(self, env, visits):
        for episode in visits[3]["episodes"]:
            set_state(env, episode["start"])
            ends = []
            for action in episode["actions"]:
                _, _, terminated, truncated, _ = env.step(action)
                ends.append(terminated or truncated)
            assert ends == [False] * (len(ends) - 1) + [True]
            np.testing.assert_allclose(env.unwrapped.state, episode["end"], rtol=1e-4)

    def test_sampled_episodes_start_near_zero(self, visits):
        for episode in visits[3]["episodes"]:
            assert np.abs(episode["start"]).max() < 0.05

    def test_same_seed_gives_the_same_episode(self, visits):
        # Visits 3 and 4 have the seed 5; the second plays only one episode.
        assert visits[4]["episodes"] == visits[3]["episodes"][:1]

    def test_button_samples_actions_from_the_same_start(self, visits):
        before, after = visits[0]["episodes"]
        assert (before["drawn"], after["drawn"]) == (False, True)
        assert before["start"] == after["start"]
        assert before["actions"] != after["actions"]
        assert visits[0]["texts"][1] == ["has played", str(len(after["actions"]))]

    def test_wrong_state_in_the_query_is_an_error(self, visits):
        text = visits[5]["texts"][0][0]
        assert text.startswith("failed: state= wants four numbers")

    def test_page_loads_its_files_and_onnxruntime_alone(self, loaded_files):
        own_files = {"/probe.html", "/index.html", "/cartpole.js", "/policy.js", "/policy.onnx"}
        assert own_files <= loaded_files
        folders = {Path(path).parent.as_posix() for path in loaded_files - own_files}
        assert folders == {"/node_modules/onnxruntime-web/dist"}

    @pytest.mark.parametrize("name", ["index.html", "cartpole.js", "policy.js"])
    def test_files_name_no_other_host(self, name):
        text = (PAGE / name).read_text(encoding="utf-8")
        assert "//" not in text.replace("// ", "")  # beside comments


def test_packages_of_the_page_are_pinned():
    package = json.loads((PAGE / "package.json").read_text(encoding="utf-8"))
    assert set(package["dependencies"]) == {"onnxruntime-web"}

    lock = json.loads((PAGE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    version = package["dependencies"]["onnxruntime-web"]
    assert lock["node_modules/onnxruntime-web"]["version"] == version
    for path, entry in lock.items():
        is_the_page_itself = not path
        assert is_the_page_itself or entry["integrity"]
