"""A single-file PPO in the style of CleanRL, with a net and a distribution from the
catalog.

The agent uses `policy.as_module()`, an `nn.Module` that takes observations and returns
an action distribution and values. The module takes CartPole's observations as they are,
because they are vectors. Encode other kinds of observations with `policy.preprocess`
first.

Run the script with `python examples/cleanrl_ppo.py --env CartPole-v1 --seed 1`.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import rlcatalog

NUM_ENVS = 8
LENGTH = 128
EPOCHS = 10
MINIBATCH = 256
LR = 1e-3
GAMMA = 0.99
LAMBDA = 0.95
CLIP = 0.2
VALUE_WEIGHT = 0.5
LARGEST_GRADIENT = 0.5


class Agent(nn.Module):
    """Actor and critic."""

    def __init__(self, envs: gym.vector.VectorEnv) -> None:
        super().__init__()
        config = {"fcnet_hiddens": [64, 64], "vf_share_layers": False}
        self.net = rlcatalog.build(
            env=envs, config=config, framework="torch"
        ).as_module()

    def get_value(self, obs):
        """Return value estimates."""
        return self.net(obs)[1]

    def get_action_and_value(self, obs, action=None):
        """Return actions, sampled or given, with their log densities, entropies and
        value estimates.
        """
        dist, value = self.net(obs)
        action = dist.sample() if action is None else action
        return action, dist.logp(action), dist.entropy(), value


def main() -> None:
    """Train, and print the mean return of recent episodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--iterations", type=int, default=60, help=f"of {NUM_ENVS * LENGTH} steps"
    )
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    autoreset = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    envs = gym.make_vec(
        arguments.env, NUM_ENVS, vectorization_mode="sync", vector_kwargs=autoreset
    )
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    agent = Agent(envs).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LR, eps=1e-5)

    observations = torch.zeros(
        LENGTH, NUM_ENVS, *envs.single_observation_space.shape, device=device
    )
    actions = torch.zeros(
        LENGTH,
        NUM_ENVS,
        *envs.single_action_space.shape,
        device=device,
        dtype=torch.int64,
    )
    logps, rewards, dones, values = torch.zeros(4, LENGTH, NUM_ENVS, device=device)
    returns: list[float] = []
    obs = torch.as_tensor(envs.reset(seed=arguments.seed)[0], device=device)
    for iteration in range(1, arguments.iterations + 1):
        optimizer.param_groups[0]["lr"] = LR * (
            1 - (iteration - 1) / arguments.iterations
        )
        for t in range(LENGTH):
            observations[t] = obs
            with torch.no_grad():
                actions[t], logps[t], _, value = agent.get_action_and_value(obs)
            values[t] = value.flatten()
            following, reward, terminated, truncated, infos = envs.step(
                actions[t].cpu().numpy()
            )
            rewards[t] = torch.as_tensor(reward, device=device)
            dones[t] = torch.as_tensor(terminated | truncated, device=device)
            obs = torch.as_tensor(following, device=device)
            if "episode" in infos:
                returns += infos["episode"]["r"][infos["_episode"]].tolist()

        with torch.no_grad():  # generalised advantages, from the last step backwards
            following_value = agent.get_value(obs).flatten()
            advantage = torch.zeros(NUM_ENVS, device=device)
            advantages = torch.zeros_like(rewards)
            for t in reversed(range(LENGTH)):
                goes_on = 1 - dones[t]
                error = rewards[t] + GAMMA * goes_on * following_value - values[t]
                advantages[t] = advantage = error + GAMMA * LAMBDA * goes_on * advantage
                following_value = values[t]
            targets = advantages + values

        rows = [
            x.flatten(0, 1) for x in (observations, actions, logps, advantages, targets)
        ]
        for _ in range(EPOCHS):
            for index in torch.randperm(NUM_ENVS * LENGTH, device=device).split(
                MINIBATCH
            ):
                seen, taken, old_logp, gain, target = (x[index] for x in rows)
                _, logp, _, value = agent.get_action_and_value(seen, taken)
                ratio = (logp - old_logp).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy_loss = -torch.minimum(
                    ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain
                ).mean()
                loss = (
                    policy_loss
                    + VALUE_WEIGHT * 0.5 * (value.flatten() - target).square().mean()
                )
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), LARGEST_GRADIENT)
                optimizer.step()
        print(
            f"{iteration * NUM_ENVS * LENGTH:7d} steps, mean return"
            f" {np.mean(returns[-20:] or [np.nan]):.1f}"
        )
    envs.close()


if __name__ == "__main__":
    main()
