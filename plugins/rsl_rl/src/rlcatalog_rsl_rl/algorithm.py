"""PPO of rsl_rl with an actor and a critic of the catalog."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from rsl_rl.algorithms import PPO
from rsl_rl.env import VecEnv
from rsl_rl.utils import resolve_obs_groups
from tensordict import TensorDict

from rlcatalog.errors import NotServedError
from rlcatalog_rsl_rl.actor import CatalogActor
from rlcatalog_rsl_rl.critic import CatalogCritic
from rlcatalog_rsl_rl.env import CatalogEnv


class CatalogPPO(PPO):
    """rsl_rl's PPO with a `CatalogActor` and a `CatalogCritic`, which share a policy.

    A runner's config names it: `"algorithm": {"class_name": "rlcatalog_rsl_rl:CatalogPPO"}`. All
    other settings are those of rsl_rl's PPO.
    """

    actor: CatalogActor
    critic: CatalogCritic

    @staticmethod
    def construct_algorithm(
        obs: TensorDict, env: VecEnv, cfg: dict[str, Any], device: str
    ) -> CatalogPPO:
        """Make the algorithm for a runner.

        Args:
            obs: A batch of the environment's observations.
            env: The environment; a `CatalogEnv` also has spaces.
            cfg: The runner's config.
            device: The device of the networks.

        Raises:
            NotServedError: A setting is not carried.
        """
        _check_settings(cfg)
        sides = ["actor", "critic"]
        cfg["obs_groups"] = resolve_obs_groups(obs, cfg["obs_groups"], sides)
        actor = _make_actor(obs, env, cfg).to(device)
        critic_settings = copy.deepcopy(cfg["critic"])
        critic_settings.pop("class_name", None)

        # rsl_rl makes both sides without knowing of one another; these return the ones made here.
        def return_actor(*_arguments: Any) -> CatalogActor:
            return actor

        def make_critic(
            obs: TensorDict, obs_groups: dict[str, list[str]], obs_set: str, output_dim: int
        ) -> CatalogCritic:
            return CatalogCritic(
                obs, obs_groups, obs_set, output_dim, actor=actor, **critic_settings
            )

        algorithm: CatalogPPO = PPO.construct_algorithm(
            obs,
            env,
            {**cfg, "actor": {"class_name": return_actor}, "critic": {"class_name": make_critic}},
            device,
        )
        return algorithm

    def update(self) -> dict[str, float]:
        """Update the weights from a rollout, then check the numbers of its steps.

        Raises:
            NonFiniteError, ObservationError, ActionMaskError: A step of the rollout had wrong
                numbers; the message names it.
        """
        with self.actor.updating():
            losses: dict[str, float] = super().update()
        self.actor.policy.check()
        return losses


def _make_actor(obs: TensorDict, env: VecEnv, cfg: Mapping[str, Any]) -> CatalogActor:
    """Make the actor that a runner's config describes, and tell the environment its policy."""
    settings = copy.deepcopy(cfg["actor"])
    settings.pop("class_name", None)
    if not isinstance(env, CatalogEnv):
        return CatalogActor(obs, cfg["obs_groups"], "actor", env.num_actions, **settings)
    output_dim = env.env.num_actions if env.action_space is None else None
    actor = CatalogActor(
        obs,
        cfg["obs_groups"],
        "actor",
        output_dim,
        observation_space=env.observation_space,
        action_space=env.action_space,
        **settings,
    )
    env.policy = actor.policy
    return actor


def _check_settings(cfg: Mapping[str, Any]) -> None:
    """Raise an error for settings of rsl_rl that catalog models do not serve."""
    algorithm = cfg["algorithm"]
    if algorithm.get("symmetry_cfg"):
        raise NotServedError(
            "algorithm['symmetry_cfg']: mirrored observations and actions are not carried for"
            " catalog models. Remove the setting."
        )
    if algorithm.get("share_cnn_encoders"):
        raise NotServedError(
            "algorithm['share_cnn_encoders']: set vf_share_layers=True in the actor's model_config"
            " instead."
        )
    if cfg.get("torch_compile_mode"):
        raise NotServedError(
            "torch_compile_mode: catalog models are not compiled under rsl_rl. Remove the setting."
        )
    for side, name in (("actor", "CatalogActor"), ("critic", "CatalogCritic")):
        class_name = cfg[side].get("class_name", name)
        is_ours = class_name in (CatalogActor, CatalogCritic) or str(class_name).endswith(name)
        if not is_ours:
            raise NotServedError(
                f"{side}['class_name']: CatalogPPO trains a {name}, found {class_name!r}. Set it to"
                f" 'rlcatalog_rsl_rl:{name}'."
            )
