from .actor_critic import CatalogRLModule as CatalogRLModule
from .checks import outputs as outputs
from .configuration import configure as configure, spec as spec
from .connectors import (
    AdaptActions as AdaptActions,
    EncodeObservations as EncodeObservations,
    env_to_module as env_to_module,
    module_to_env as module_to_env,
)
from .conversion import to_policy as to_policy
from .envs import CatalogEnv as CatalogEnv
from .q_learning import CatalogQModule as CatalogQModule
from .soft_actor_critic import CatalogSACModule as CatalogSACModule

def prepare_worker() -> None: ...
