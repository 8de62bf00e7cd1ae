"""Write the saves in `saved_defaults`, which `test_saved_defaults.py` loads.

    PYTHONPATH=tests/support python tests/saving/make_defaults.py FOLDER

The script ran once, at commit ba7aa046, with PyTorch 2.13 and TensorFlow 2.21. Do not write the
saves anew: later versions have other defaults, and the tests show that a save keeps the defaults
that it was written with. If you run the script today, the saves have today's defaults.

For each case of `default_cases` and each framework, FOLDER gets a folder with

- `checkpoint`: a checkpoint of PPO after one rollout. Its folder `policy` is a saved policy, as
  `Policy.save` writes it.
- `policy.onnx`: the same policy, exported.
- `policy.pt2` or `policy-savedmodel`: the same policy, exported in its framework's own format. Only
  some cases have it, because these files are large.
- `acts.json`: what the policy does with some observations, and the metrics of PPO's next rollout.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from default_cases import CASES, DefaultCase

import rlcatalog
from rlcatalog_ppo import PPO

#: The rollouts end within an episode, and the weights change only a little.
TRAINING = {
    "seed": 0,
    "num_envs": 1,
    "rollout_length": 16,
    "minibatch_size": 16,
    "num_epochs": 2,
    "lr": 1e-5,
}
#: Cases that are also exported in the format of their framework.
IN_OWN_FORMAT = ("image", "stack", "camera", "thermostat", "lstm")
ROWS = 2
STEPS = 4
EXPECTED = ("action", "raw_action", "logp", "value", "dist_inputs")


def write_saves(name: str, framework: str, folder: Path) -> None:
    """Train one rollout, save and export the policy, and write what it does."""
    case = CASES[name]
    algo = PPO(case.make_env, {**TRAINING, "framework": framework, "model": case.model})
    case.draw_weights(algo.policy.model, seed=1)
    algo.train()
    algo.save_checkpoint(folder / "checkpoint")
    # At once, because loading a policy draws from the generator that algo draws actions from.
    metrics = algo.train()
    algo.stop()

    policy = rlcatalog.load(folder / "checkpoint/policy")
    policy.export(folder / "policy.onnx")
    if name in IN_OWN_FORMAT:
        export_in_own_format(policy, folder)
    acts = {"steps": act(policy, case), "metrics": metrics}
    (folder / "acts.json").write_text(json.dumps(acts) + "\n", encoding="utf-8")


def export_in_own_format(policy: Any, folder: Path) -> None:
    """Export a policy in the format of its framework."""
    if policy.framework == "torch":
        policy.export(folder / "policy.pt2")
    else:
        policy.export(folder / "policy-savedmodel", format="savedmodel")


def act(policy: Any, case: DefaultCase) -> list[dict[str, Any]]:
    """Return what a policy does, without exploring, in the first steps of two episodes."""
    rewards = np.linspace(-1, 1, STEPS * ROWS).reshape(STEPS, ROWS).tolist()
    steps = []
    state, prev_reward = None, None
    for seed in range(STEPS):
        obs = case.draw_observations(seed, ROWS)
        step = policy.act(obs, state, prev_reward=prev_reward, explore=False)
        expected = {name: getattr(step, name).tolist() for name in EXPECTED}
        steps.append({"obs_seed": seed, "prev_reward": prev_reward, **expected})
        state, prev_reward = step.state, rewards[seed]
    return steps


def main(folder: Path) -> None:
    """Write the saves of all cases."""
    # The stack traces in a .pt2 file would name the files of the machine that writes it.
    torch.fx.config.do_not_emit_stack_traces = True
    # PyTorch comes first: if TensorFlow is imported before it, exporting may end the process.
    for framework in ("torch", "tf"):
        for name in CASES:
            write_saves(name, framework, folder / f"{name}-{framework}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
