"""Checks for the conformance kit: what Stable-Baselines3's loops ask of the parts they train."""

from __future__ import annotations

from rlcatalog.errors import MissingPluginError, NotServedError
from rlcatalog.testing import (
    ExampleEnv,
    NotApplicable,
    Part,
    check,
    every_weight_moved,
    refusing,
    trained_weights,
    update_example,
)


@check(
    "trunk", "memory", "head", "action_dist", every_framework=False,
    hint="use every weight in the outputs or the value, and hold it where the model finds it",
)  # fmt: skip
def sb3_moves_every_weight(part: Part) -> None:
    """One update of Stable-Baselines3's PPO, or RecurrentPPO, moves every weight; what it cannot carry is skipped."""
    if "torch" not in part.component.frameworks:
        raise NotApplicable("Stable-Baselines3 runs PyTorch alone")
    from rlcatalog_sb3.algorithms import make
    from rlcatalog_sb3.flattening import for_sb3

    example = update_example(part)
    model = dict(example.config)
    with refusing(NotServedError, MissingPluginError):
        recurrent = part.catalog.resolve(example.obs, example.action, model, "torch").choices["memory"].component
        name = "PPO" if recurrent is None else "RecurrentPPO"
        env = for_sb3(ExampleEnv(example), model, catalog=part.catalog)
        algo = make(
            name, env, model, seed=0, device="cpu", n_steps=16, batch_size=16, n_epochs=1, learning_rate=1e-2,
            ent_coef=0.01,
        )  # fmt: skip
    before = trained_weights(algo.policy.model)
    algo.learn(16)
    every_weight_moved(before, trained_weights(algo.policy.model))
