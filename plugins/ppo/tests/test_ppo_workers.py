"""Environments in processes of their own: the same experience, faults that are named, nothing left
behind.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import gymnasium as gym
import numpy as np
import pytest

from rlcatalog.errors import ConfigError, EnvironmentFaultError, NotServedError, WorkerError
from rlcatalog_ppo import PG, PPO
from rlcatalog_ppo.workers import Workers
from rlcatalog_runs.seeds import SeedStream, derive_seed

SMALL = {
    "num_envs": 2,
    "rollout_length": 20,
    "minibatch_size": 20,
    "num_epochs": 1,
    "seed": 3,
    "model": {"fcnet_hiddens": [8]},
}


class Errand(gym.Env):
    """A random walk that ends, is cut, writes over its observations, and can be told to fail."""

    observation_space = gym.spaces.Dict(
        {"x": gym.spaces.Box(-9, 9, (2,)), "side": gym.spaces.Discrete(3)}
    )
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.config = config or {}
        self.obs = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.obs[:] = 0, self.np_random.normal(size=2)
        return {"x": self.obs, "side": 1}, {}

    def step(self, action):
        self.t += 1
        if self.np_random_seed == self.config.get("fails") and self.t == 2:
            raise Unpicklable("the wheel came off, 100%d")
        if self.t == self.config.get("dies_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        self.obs += self.np_random.normal(size=2) * 0.3 * (2 * action - 1)
        gone = bool(np.abs(self.obs).max() > 2)
        return {"x": self.obs, "side": int(self.t % 3)}, float(self.obs[0]), gone, self.t == 9, {}


class Unpicklable(Exception):
    """Holds what cannot travel."""

    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class Changing(Errand):
    """Observations of no fixed size, which no shared memory holds."""

    observation_space = gym.spaces.Dict(
        {"x": gym.spaces.Box(-9, 9, (2,)), "side": gym.spaces.Sequence(gym.spaces.Discrete(3))}
    )

    def reset(self, **arguments):
        obs, info = super().reset(**arguments)
        return {**obs, "side": (1,)}, info

    def step(self, action):
        obs, *rest = super().step(action)
        return {**obs, "side": (1,) * (self.t % 3)}, *rest


def left():
    return [process.name for process in multiprocessing.active_children()]


@pytest.mark.parametrize(("env", "limit"), [(Errand, {}), (Changing, {"sequence_max_len": 2})])
def test_experience_equals_that_of_environments_in_turn(env, limit):
    """From one seed: observations, rewards, ends, values of last observations, what was learned,
    episodes.
    """
    found = []
    for how in ("sync", "async"):
        algo = PPO(env, {**SMALL, "vector": how, "model": {**SMALL["model"], **limit}})
        assert isinstance(algo._envs, Workers) == (how == "async")
        rollout = algo._collector.collect(20)
        algo._learner.update(algo._batch(rollout), 1e-2)
        found.append(
            (
                rollout,
                algo.train()["info"],
                algo._collector.episodes,
                algo.policy.model.get_weights(),
            )
        )
        algo.stop()
    (one, *learned), (other, *also_learned) = found
    assert one.done.any()
    assert one.bootstrap.any()
    for name in ("obs", "raw_action", "logp", "value", "reward", "done", "bootstrap", "last_value"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert learned[:2] == also_learned[:2]
    for name, weight in learned[2].items():
        np.testing.assert_array_equal(weight, also_learned[2][name], err_msg=name)
    assert left() == []


def test_run_goes_on_from_a_checkpoint(tmp_path):
    """The workers say where they stand, and go there; so does what scales rewards."""
    config = {**SMALL, "vector": "async", "reward_scale": True}
    whole = PPO(Errand, config)
    whole.train()
    whole.save_checkpoint(tmp_path / "checkpoint")
    rest = whole.train()["info"]
    whole.stop()
    gone_on = PPO.restore(tmp_path / "checkpoint", Errand)
    assert gone_on.begun_anew == {}
    assert gone_on.train()["info"] == rest
    gone_on.stop()


def test_what_a_worker_raises_is_named_with_its_environment_and_step():
    second = derive_seed(SMALL["seed"], SeedStream.ENVIRONMENTS, 1)
    algo = PPO(Errand, {**SMALL, "vector": "async", "env_config": {"fails": second}})
    message = (
        r"environment 1 of 2: step 2 of its episode raised Unpicklable: the wheel came off,"
        r" 100%d \(.*, in step\)"
    )
    with pytest.raises(EnvironmentFaultError, match=message):
        algo.train()
    algo.stop()
    assert left() == []


def test_worker_that_dies_is_named_and_the_others_end():
    algo = PPO(Errand, {**SMALL, "vector": "async", "env_config": {"dies_at": 4}})
    with pytest.raises(
        WorkerError, match=r"environment processes ended: environment \d \(killed by SIGKILL\)"
    ):
        algo.train()
    assert left() == []
    algo.stop()


class Parting(Errand):
    """Leaves a file behind when it is closed."""

    def close(self):
        self.config["folder"].joinpath(f"closed-{os.getpid()}").touch()


def test_workers_close_their_environments(tmp_path):
    algo = PPO(Parting, {**SMALL, "vector": "async", "env_config": {"folder": tmp_path}})
    workers = {process.pid for process in algo._envs.processes}
    algo.stop()
    assert {int(path.name.partition("-")[2]) for path in tmp_path.iterdir()} >= workers


def test_algorithm_that_is_refused_leaves_no_process():
    import torch  # not above: the workers import this file

    from rlcatalog_torch import TorchModelV2

    class Valueless(TorchModelV2, torch.nn.Module):
        def __init__(self, *args):
            TorchModelV2.__init__(self, *args)
            torch.nn.Module.__init__(self)
            self.logits = torch.nn.Linear(5, self.num_outputs)

        def forward(self, input_dict, state, seq_lens):
            return self.logits(input_dict["obs_flat"]), state

    with pytest.raises(NotServedError, match="needs a value estimate") as caught:
        PPO(Errand, {**SMALL, "vector": "async", "model": {"custom_model": Valueless}})
    assert left() == [], caught  # whatever still holds the algorithm


def test_what_cannot_travel_is_refused_before_a_process_is_made():
    lock = threading.Lock()

    def make():
        return Errand({"lock": lock})

    with pytest.raises(
        ConfigError, match=r"vector='async': the function .* cannot be sent .*TypeError"
    ):
        PPO(make, {**SMALL, "vector": "async"})
    with pytest.raises(ConfigError, match="'vector'"):
        PPO(Errand, {**SMALL, "vector": "threads"})


def test_id_that_a_script_registered_is_known_in_the_workers():
    keys = {
        name: value for name, value in SMALL.items() if name not in ("minibatch_size", "num_epochs")
    }
    gym.register("OnlyHere-v0", lambda **config: Errand(config))
    try:
        algo = PG("OnlyHere-v0", {**keys, "vector": "async", "rollout_length": 3})
    finally:
        gym.registry.pop("OnlyHere-v0")
    assert algo.train()["timesteps_total"] == 6
    algo.stop()


SCRIPT = """
import signal, time
import gymnasium
from rlcatalog_ppo.workers import Workers

if __name__ == "__main__":
    # What a shell has put into the background ignores SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # As PPO makes them, without importing PyTorch.
    envs = Workers([lambda: gymnasium.make("CartPole-v1")] * 2)
    envs.reset(seed=0)
    print(*(process.pid for process in envs.processes), flush=True)
    try:
        while True:
            envs.step(envs.action_space.sample())
    except KeyboardInterrupt:
        time.sleep(0.5)
        print(all(process.is_alive() for process in envs.processes), flush=True)
        time.sleep(60)
"""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks processes up under /proc")
def test_program_that_is_ended_leaves_no_worker(tmp_path):
    """Ctrl-C reaches the whole group: the workers leave it to the program, which may still finish
    what it does.
    """
    (tmp_path / "script.py").write_text(SCRIPT)
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    workers = [int(pid) for pid in program.stdout.readline().split()]
    assert len(workers) == 2
    time.sleep(0.2)
    os.killpg(program.pid, signal.SIGINT)
    assert program.stdout.readline() == "True\n"
    assert all(alive(pid) for pid in workers)
    program.kill()  # as the system does where memory runs out: nothing is closed
    program.wait()
    program.stdout.close()
    until = time.monotonic() + 20
    while any(alive(pid) for pid in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in workers)
