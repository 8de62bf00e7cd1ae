"""The tables of seeds: each row of `docs/seed_streams.toml` is true, and the page shows it."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import seeds_page

import rlcatalog
from rlcatalog_ppo import A2C, PG, PPO, commands
from rlcatalog_ppo.callbacks import Evaluation
from rlcatalog_runs import Interrupts, RunOptions, RunPlan, Session
from rlcatalog_runs.display import RunDisplay
from rlcatalog_runs.evaluation import play

DATA = seeds_page.read_data()
NAMES = [stream["name"] for stream in DATA["streams"]]
MODEL = {"fcnet_hiddens": [4]}
CONFIG = {"num_envs": 2, "rollout_length": 4, "seed": 7, "model": MODEL}


class Seeded(gym.Env):
    """Episodes of one step; keeps the seeds that it receives."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)
    seeds: ClassVar[list[int]] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.seeds.append(seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, True, False, {}


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(
        gym.registry, "Seeded-v0", gym.envs.registration.EnvSpec("Seeded-v0", entry_point=Seeded)
    )
    Seeded.seeds.clear()


def compute_seeds(seed, stream, count):
    """Return the seeds of a stream's first children, as the page describes them."""
    spawned = np.random.SeedSequence(seed).spawn(len(NAMES))[NAMES.index(stream)]
    return [int(child.generate_state(1)[0]) >> 1 for child in spawned.spawn(count)]


def make_algorithm(algorithm=PPO):
    minibatch = {"minibatch_size": 8} if algorithm is PPO else {}
    return algorithm("Seeded-v0", {**CONFIG, **minibatch})


# --- what each row does: it returns the seeds, and the seed that they are derived from ------------


def train():
    first_two = []
    for algorithm in (PPO, A2C, PG):
        Seeded.seeds.clear()
        make_algorithm(algorithm)
        first_two.append(list(Seeded.seeds))
    assert first_two[0] == first_two[1] == first_two[2]
    return first_two[0], 7


def train_in_processes():
    # An environment of Gymnasium, which the processes can import.
    algo = PPO("CartPole-v1", {**CONFIG, "minibatch_size": 8, "vector": "async"})
    seeds = algo._envs.get_attr("np_random_seed")
    algo.stop()
    return list(seeds), 7


def evaluate():
    algo = make_algorithm()
    Seeded.seeds.clear()
    algo.evaluate(2)
    return Seeded.seeds, 7


def evaluate_with_a_seed():
    algo = make_algorithm()
    Seeded.seeds.clear()
    algo.evaluate(2, seed=5)
    return Seeded.seeds, 5


def call_back():
    algo = make_algorithm()
    algo.add_callbacks([Evaluation(every=1, episodes=2)])
    Seeded.seeds.clear()
    algo.train()
    assert Seeded.seeds[:2] == Seeded.seeds[2:]  # likely actions, then sampled ones
    return Seeded.seeds[:2], 7


def play_episodes():
    policy = rlcatalog.build(env=Seeded(), config=MODEL)
    play(policy, Seeded, 2, seed=5)
    return Seeded.seeds, 5


def run_command(tmp_path):
    rlcatalog.build(env=Seeded(), config=MODEL).save(tmp_path / "policy")
    commands.evaluate(tmp_path / "policy", 2, "Seeded-v0", quiet=True)
    return Seeded.seeds, 10_000


def seed_sb3():
    engine = pytest.importorskip("rlcatalog_sb3.engine")
    pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
    plan = RunPlan("CartPole-v1", engine.SB3Options(engine="sb3", model=MODEL), "PPO", 7)
    return [engine.SB3Engine(plan).algorithm.seed], 7


def seed_rllib():
    engine = pytest.importorskip("rlcatalog_rllib.engine")
    pytest.importorskip("ray.rllib", reason="Ray is not installed")
    options = engine.RLlibOptions(engine="rllib", model=MODEL)
    seeds = []
    for steps in (0, 1):  # a new run, and one that resumes at step 1
        plan = RunPlan("CartPole-v1", options, "PPO", 7, steps=steps)
        seeds.append(engine.RLlibEngine(plan)._config.seed)
    return seeds, 7


def evaluate_in_a_session(tmp_path):
    plan = RunPlan("Seeded-v0", RunOptions(engine="sb3", eval_episodes=2), "PPO", 7)
    session = Session(plan, tmp_path, Interrupts(), [], RunDisplay())
    session._evaluate(rlcatalog.build(env=Seeded(), config=MODEL))
    assert Seeded.seeds[:2] == Seeded.seeds[2:]  # likely actions, then sampled ones
    return Seeded.seeds[:2], 7


CASES = {
    "training": train,
    "training in processes": train_in_processes,
    "evaluation": evaluate,
    "evaluation with a seed": evaluate_with_a_seed,
    "callback": call_back,
    "play": play_episodes,
    "command": run_command,
    "sb3": seed_sb3,
    "rllib": seed_rllib,
    "evaluation of another engine": evaluate_in_a_session,
}


@pytest.mark.parametrize("use", DATA["uses"], ids=[use["case"] for use in DATA["uses"]])
def test_use_draws_from_its_stream(use, tmp_path):
    case = CASES[use["case"]]
    needs_folder = case in (run_command, evaluate_in_a_session)
    seeds, seed = case(tmp_path) if needs_folder else case()
    assert seeds == compute_seeds(seed, use["stream"], count=len(seeds))


def test_cases_are_all_on_the_page():
    assert sorted(CASES) == sorted(use["case"] for use in DATA["uses"])
