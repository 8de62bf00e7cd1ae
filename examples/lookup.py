"""The parts that rlcatalog chooses for an environment, its reasons, and a few steps
with the policy.

Run it with `python examples/lookup.py --env Pendulum-v1 --framework tf`.
"""

from __future__ import annotations

import argparse

import gymnasium as gym

import rlcatalog


def main() -> None:
    """Build a policy for an environment and take ten steps in four copies of the
    environment.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    arguments = parser.parse_args()
    envs = gym.make_vec(arguments.env, num_envs=4, vectorization_mode="sync")
    policy = rlcatalog.build(
        env=envs, config={"fcnet_hiddens": [64, 64]}, framework=arguments.framework
    )
    found = policy.explain().as_dict()
    for slot in ("preprocessor", "model", "action_dist"):
        print(
            f"{slot}: {found[slot]['chosen']} of {found[slot]['distribution']},"
            f" because {found[slot]['reason']}"
        )
    stepper = policy.stepper(envs)
    obs, _ = envs.reset(seed=0)
    done = None
    for _ in range(10):
        step = stepper.step(obs, done=done)
        obs, _, terminated, truncated, _ = envs.step(step.action)
        done = terminated | truncated
    print(f"values after ten steps: {step.value}")
    envs.close()


if __name__ == "__main__":
    main()
