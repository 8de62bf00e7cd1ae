"""Train the gardener in a loop of your own: REINFORCE, with values as a baseline."""

import gymnasium as gym
import numpy as np
import torch
from garden import MAX_STEPS, Garden

import rlcatalog

config = {"fcnet_hiddens": [64, 64]}
envs = gym.vector.SyncVectorEnv([Garden] * 8)
policy = rlcatalog.build(env=envs, config=config)
optimizer = torch.optim.Adam(policy.model.parameters(), 3e-3)
for _ in range(100):
    obs, _ = envs.reset()
    rows = []
    for _ in range(MAX_STEPS):
        encoded = policy.preprocess(obs)
        mask = policy.action_mask(obs)
        step = policy.act_encoded(encoded, mask=mask)
        row = {"obs": encoded, "mask": mask}
        row["raw_action"] = step.raw_action
        obs, row["return"], _, _, _ = envs.step(step.action)
        rows.append(row)
    for row, later in zip(rows[-2::-1], rows[:0:-1], strict=True):
        row["return"] = row["return"] + 0.97 * later["return"]
    batch = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    target = torch.from_numpy(batch["return"]).float()
    scores = policy.evaluate(batch)
    better = target - scores.value.detach()
    loss = (scores.value - target).square().mean()
    loss = loss - (better * scores.logp).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
policy.save("gardener")
