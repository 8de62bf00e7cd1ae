"""Checks for the conformance kit: what Ray RLlib's runners and learners require, and outputs to
compare.

The kit imports this module for every part. Ray and PyTorch take seconds to import, so only the
functions that need them import them.
"""

from __future__ import annotations

import itertools
import warnings
from typing import TYPE_CHECKING, Any

import rlcatalog_testing as kit
from rlcatalog import Catalog
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array, frameworks
from rlcatalog_rllib.spaces import MASK, OBS

if TYPE_CHECKING:
    from ray.rllib.core.rl_module.rl_module import RLModule

#: Ray Tune registers environments by name, and never releases a name.
_UNUSED_NAMES = (f"rlcatalog-example-{number}" for number in itertools.count())
_ENV_COUNT = 2
_STEPS_PER_ENV = 12


@kit.check(
    "trunk",
    "memory",
    "head",
    "action_dist",
    every_framework=False,
    hint="use every weight in the outputs or the value, and store it where the model finds it",
)
def rllib_moves_every_weight(subject: kit.Subject) -> None:
    """A single update of RLlib's PPO changes every weight.

    The runner and the learner are in this process; Ray is not started.
    """
    if "torch" not in subject.part.frameworks:
        raise kit.NotApplicable("RLlib's new API stack runs only PyTorch")
    example = kit.update_example(subject)
    from ray.rllib.core.learner.training_data import TrainingData

    # If RLlib is the first to import TensorFlow, it turns eager execution off for the process. This
    # turns it on again, before other checks and the caller's code use TensorFlow.
    if "tf" in frameworks():
        frameworks()["tf"].prepare()
    with warnings.catch_warnings(action="ignore"):  # warnings from Ray itself
        with kit.refusing(NotServedError):
            config, runner = _runner(example, subject.catalog)
            learner = config.build_learner(env=runner.env, spaces=runner.get_spaces())
        model = learner.module["default_policy"].model
        weights_before = kit.trained_weights(model)
        learner.update(
            training_data=TrainingData(episodes=runner.sample()),
            timesteps={"num_env_steps_sampled_lifetime": 0},
        )
        kit.every_weight_moved(weights_before, kit.trained_weights(model))


def _runner(example: kit.Example, catalog: Catalog) -> tuple[Any, Any]:
    """Return a small PPO config for an example, and an environment runner that runs in this
    process.
    """
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
    from ray.tune.registry import register_env

    from rlcatalog_rllib.configuration import configure

    name = next(_UNUSED_NAMES)
    register_env(name, lambda _: kit.ExampleEnv(example))
    config: Any = PPOConfig().debugging(log_level="ERROR")  # type: ignore[no-untyped-call]
    config.env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=_ENV_COUNT,
        rollout_fragment_length=_STEPS_PER_ENV,
    )
    batch_size = _ENV_COUNT * _STEPS_PER_ENV
    config.training(
        # One rollout is one batch, so that there is a single update.
        train_batch_size_per_learner=batch_size,
        minibatch_size=batch_size,
        num_epochs=1,
        # With a large learning rate and the entropy in the loss, no weight stays the same by
        # chance.
        lr=1e-2,
        entropy_coeff=0.01,
        use_kl_loss=False,
    )
    config = configure(config, name, model=dict(example.config), catalog=catalog)
    return config, SingleAgentEnvRunner(config=config)


def outputs(module: RLModule) -> kit.OutputFunction:
    """Return an engine that wraps a `CatalogRLModule` without memory, for
    `rlcatalog_testing.check_same_outputs`.

    Actions come from `forward_inference`. Ray's distribution computes densities and entropies from
    the output of `forward_train`, as in Ray's learners. Values come from `compute_values`.

    Args:
        module: The module.

    Raises:
        NotServedError: The module is of a different kind, or reads past steps.
    """
    import torch

    from rlcatalog_rllib.actor_critic import CatalogRLModule

    if not isinstance(module, CatalogRLModule) or module.policy.memory or module.policy.views:
        raise NotServedError(
            f"outputs: expected a CatalogRLModule without memory, found {type(module).__name__}."
        )
    policy = module.policy

    def compute_outputs(observations: Any, raw_actions: Array) -> kit.PolicyOutputs:
        encoded = torch.from_numpy(policy.preprocess(observations))
        mask = policy.action_mask(observations)
        obs: Any = encoded
        if mask is not None:
            obs = {OBS: encoded, MASK: torch.from_numpy(mask.astype("int8"))}
        is_single_choice = policy.action_codec.scalar
        actions = torch.from_numpy(raw_actions[:, 0] if is_single_choice else raw_actions)
        batch = {"obs": obs, "actions": actions}
        with torch.no_grad():
            params = module.forward_train(batch)["action_dist_inputs"]
            dist_class: Any = module.get_train_action_dist_cls()
            dist = dist_class.from_logits(params)
            inference_actions = module.forward_inference({"obs": obs})["actions"].numpy()
            return kit.PolicyOutputs(
                policy.action_codec.adapt(inference_actions.reshape(raw_actions.shape)),
                dist.logp(actions).numpy(),
                dist.entropy().numpy(),
                module.compute_values(batch).numpy(),
            )

    return compute_outputs
