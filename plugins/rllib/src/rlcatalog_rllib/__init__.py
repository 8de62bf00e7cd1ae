"""Ray RLlib's new API stack over rlcatalog's contract.

`rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", model={"fcnet_hiddens": [64, 64]})`
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlcatalog.frameworks import load_first

if TYPE_CHECKING:
    from rlcatalog_rllib.actor_critic import CatalogRLModule
    from rlcatalog_rllib.checks import outputs
    from rlcatalog_rllib.configuration import configure, spec
    from rlcatalog_rllib.connectors import AdaptActions, EncodeObservations, env_to_module, module_to_env
    from rlcatalog_rllib.conversion import export, to_policy
    from rlcatalog_rllib.envs import CatalogEnv
    from rlcatalog_rllib.q_learning import CatalogQModule
    from rlcatalog_rllib.soft_actor_critic import CatalogSACModule

# Ray RLlib imports TensorFlow where it is installed, in the driver's process as in Ray's workers.
load_first("triton", before="tensorflow")

_LAZY = {
    "AdaptActions": "connectors",
    "CatalogEnv": "envs",
    "CatalogQModule": "q_learning",
    "CatalogRLModule": "actor_critic",
    "CatalogSACModule": "soft_actor_critic",
    "EncodeObservations": "connectors",
    "configure": "configuration",
    "env_to_module": "connectors",
    "export": "conversion",
    "module_to_env": "connectors",
    "outputs": "checks",
    "spec": "configuration",
    "to_policy": "conversion",
}

__all__ = [
    "AdaptActions",
    "CatalogEnv",
    "CatalogQModule",
    "CatalogRLModule",
    "CatalogSACModule",
    "EncodeObservations",
    "configure",
    "env_to_module",
    "export",
    "module_to_env",
    "outputs",
    "prepare_worker",
    "spec",
    "to_policy",
]


def prepare_worker() -> None:
    """Order the imports of a Ray worker: triton before TensorFlow. Importing this package has done so.

    The first that a remote learner or a trial of Ray Tune imports is RLlib, and with it TensorFlow. Ray's setup hook
    comes before.

    Example:
        >>> ray.init(runtime_env={"worker_process_setup_hook": "rlcatalog_rllib.prepare_worker"})
    """


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
