"""Train the gardener in a loop of your own: REINFORCE, with values as a baseline."""

import gymnasium as gym
import numpy as np
import torch
from garden import MAX_STEPS, Garden

import rlcatalog

config = {"fcnet_hiddens": [64, 64]}
envs = gym.vector.SyncVectorEnv([Garden] * 8)
policy = rlcatalog.build(env=envs, config=config)
weights = policy.model.parameters()
optimizer = torch.optim.Adam(weights, lr=3e-3)
for _ in range(100):
    obs, _ = envs.reset()
    rows = []
    for _ in range(MAX_STEPS):
        encoded = policy.preprocess(obs)
        mask = policy.action_mask(obs)
        step = policy.act_encoded(encoded, mask=mask)
        row = {"obs": encoded, "mask": mask}
        row["raw_action"] = step.raw_action
        obs, reward, *_ = envs.step(step.action)
        row["return"] = reward
        rows.append(row)
    later = np.zeros(8)
    for row in reversed(rows):
        later = row["return"] + 0.97 * later
        row["return"] = later
    batch = {}
    for name in rows[0]:
        column = [row[name] for row in rows]
        batch[name] = np.concatenate(column)
    target = torch.from_numpy(batch["return"]).float()
    scores = policy.evaluate(batch)
    better = target - scores.value.detach()
    loss = (scores.value - target).square().mean()
    loss = loss - (better * scores.logp).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
policy.save("gardener")
