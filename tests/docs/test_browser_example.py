"""The page in `examples/browser`: its CartPole is Gymnasium's, and it plays as `Actor` does from
the same file.
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
#: Steps in which the pole does not make much of a last digit: a difference of sines grows tenfold
#: in half a second.
SAME = 200


@pytest.fixture(scope="module")
def env():
    """Gymnasium's CartPole."""
    made = gym.make("CartPole-v1")
    made.reset(seed=0)
    yield made
    made.close()


def put(env, state):
    """Begin at a state; return its observation."""
    env.reset(seed=0)
    env.unwrapped.state = np.array(state)
    return np.array(state, np.float32)


# --- the environment ------------------------------------------------------------------------------

STEPS = """
import * as cartpole from "./cartpole.js";
import { readFileSync } from "node:fs";
const given = JSON.parse(readFileSync(0, "utf8"));
const random = cartpole.generator(7);
console.log(JSON.stringify({
  next: given.map(([state, action]) => cartpole.step(state, action)),
  failed: given.map(([state]) => cartpole.failed(state)),
  numbers: Array.from({ length: 4000 }, random),
  begun: Array.from({ length: 100 }, () => cartpole.begin(random)),
  steps: cartpole.STEPS, actions: cartpole.ACTIONS,
}));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_its_cartpole_is_gymnasiums(env):
    rng = np.random.default_rng(0)
    states = rng.uniform([-2.6, -3, -0.25, -3], [2.6, 3, 0.25, 3], (500, 4))
    actions = rng.integers(2, size=500)
    given = [[state.tolist(), int(action)] for state, action in zip(states, actions, strict=True)]
    done = subprocess.run(
        ["node", "--input-type=module", "-e", STEPS],
        cwd=PAGE,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    core = env.unwrapped
    for (state, action), then in zip(given, found["next"], strict=True):
        put(env, state)
        core.step(action)
        np.testing.assert_allclose(then, core.state, rtol=1e-13, atol=1e-15)
    limits = [core.x_threshold, core.theta_threshold_radians]
    expected = (np.abs(states[:, [0, 2]]) > limits).any(1)
    np.testing.assert_array_equal(found["failed"], expected)
    assert 100 < expected.sum() < 400
    assert (found["steps"], found["actions"]) == (env.spec.max_episode_steps, env.action_space.n)

    numbers = np.array(found["numbers"], np.float32)
    assert 0 < numbers.min() < 0.01
    assert 0.99 < numbers.max() < 1
    assert len(np.unique(numbers)) > 3990
    assert abs(numbers.mean() - 0.5) < 0.02
    begun = np.array(found["begun"])
    assert begun.shape == (100, 4)
    assert -0.05 < begun.min() < -0.04
    assert 0.04 < begun.max() < 0.05


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory, one_thread):
    """A policy that was trained for a little while, as a file."""
    pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")
    pytest.importorskip(
        "onnxscript", reason="needs rlcatalog-export[torch], which is not installed here"
    )
    ppo = pytest.importorskip(
        "rlcatalog_ppo", reason="needs rlcatalog-ppo, which is not installed here"
    )
    algo = ppo.PPO(
        "CartPole-v1", {"model": {"fcnet_hiddens": [32]}, "framework": "torch", "seed": 0}
    )
    try:
        while algo.steps < 4000:
            algo.train()
        path = tmp_path_factory.mktemp("exported") / "policy.onnx"
        algo.policy.export(path)
        return path
    finally:
        algo.stop()


@pytest.fixture(scope="module")
def shown(exported, tmp_path_factory):
    """What the page showed, and what it loaded."""
    folder = tmp_path_factory.mktemp("page")
    for name in ("index.html", "cartpole.js", "node_modules"):
        (folder / name).symlink_to(PAGE / name)
    shutil.copy(exported, folder / "policy.onnx")
    queries = [
        (f"state={','.join(map(str, start))}&fast&episodes=1", int(i == 0))
        for i, start in enumerate(STARTS)
    ]
    queries += [
        ("seed=5&drawn&fast&episodes=6", 0),
        ("seed=5&drawn&fast&episodes=1", 0),
        ("state=1,2,x,4", 0),
    ]
    return browser.opened(folder, queries, tmp_path_factory.mktemp("browser"))


in_a_browser = [
    pytest.mark.skipif(browser.browser() is None, reason="Chromium is not installed"),
    pytest.mark.skipif(
        not (PAGE / "node_modules/onnxruntime-web").is_dir(),
        reason="`npm ci` was not run in examples/browser",
    ),
]


def played(env, actor, start):
    """Return the most likely actions from a start on, until the episode ends."""
    obs, actions, ended = put(env, start), [], False
    while not ended:
        actions.append(int(actor.act([obs], explore=False).action[0]))
        obs, _, terminated, truncated, _ = env.step(actions[-1])
        ended = terminated or truncated
    return actions


@pytest.mark.usefixtures("default")
class TestPage:
    """The page in a browser."""

    pytestmark = in_a_browser

    def test_it_plays_as_the_actor_does(self, env, exported, shown):
        actor, returns = rlcatalog.Actor(exported), set()
        for start, found in zip(STARTS, shown[0], strict=False):
            expected, episode = played(env, actor, start), found["episodes"][0]
            assert episode["start"] == start
            assert episode["actions"][:SAME] == expected[:SAME]
            assert found["texts"][0] == ["has played", str(len(episode["actions"]))]
            if len(expected) < SAME:
                assert len(episode["actions"]) == len(expected)
                returns.add(len(expected))
        assert len(returns) > 1, "nothing would tell one start from another"
        assert max(returns) > 20, "an untrained policy would do"

    def test_drawn_actions_are_as_probable_as_the_policy_says(self, env, exported, shown):
        actor, steps, likely, drawn, spread = rlcatalog.Actor(exported), 0, 0, 0.0, 0.0
        for episode in shown[0][3]["episodes"]:
            obs = put(env, episode["start"])
            assert episode["drawn"]
            assert np.abs(episode["start"]).max() < 0.05
            for i, action in enumerate(episode["actions"]):
                logits = actor.act([obs], explore=False).dist_inputs[0]
                right = 1 / (1 + np.exp(logits[0] - logits[1]))
                likely += action == (right > 0.5)
                drawn, spread = drawn + action - right, spread + right * (1 - right)
                obs, _, terminated, truncated, _ = env.step(action)
                assert (terminated or truncated) == (i == len(episode["actions"]) - 1)
            np.testing.assert_allclose(env.unwrapped.state, episode["end"], rtol=1e-4)
            steps += len(episode["actions"])
        assert steps / 2 < likely < steps
        assert abs(drawn) < 4 * np.sqrt(spread)

    def test_a_seed_repeats_and_the_button_changes_how_it_plays(self, shown):
        assert shown[0][4]["episodes"] == shown[0][3]["episodes"][:1]
        first, second = shown[0][0]["episodes"]
        assert (first["drawn"], second["drawn"]) == (False, True)
        assert first["start"] == second["start"]
        assert first["actions"] != second["actions"]
        assert shown[0][0]["texts"][1] == ["has played", str(len(second["actions"]))]

    def test_it_says_what_is_wrong(self, shown):
        assert shown[0][5]["texts"][0][0].startswith("failed: state= wants four numbers")

    def test_it_loads_nothing_else(self, shown):
        ours = {"/probe.html", "/index.html", "/cartpole.js", "/policy.onnx"}
        theirs = shown[1] - ours
        assert ours <= shown[1]
        assert {Path(path).parent.as_posix() for path in theirs} == {
            "/node_modules/onnxruntime-web/dist"
        }
        for name in ("index.html", "cartpole.js"):
            assert "//" not in (PAGE / name).read_text(encoding="utf-8").replace("// ", "")


def test_what_is_installed_is_pinned():
    asked = json.loads((PAGE / "package.json").read_text(encoding="utf-8"))["dependencies"]
    locked = json.loads((PAGE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert set(asked) == {"onnxruntime-web"}
    assert locked["node_modules/onnxruntime-web"]["version"] == asked["onnxruntime-web"]
    assert all(package.get("integrity") for path, package in locked.items() if path)
