from .action_critics import (
    CatalogSACPolicy as CatalogSACPolicy,
    CatalogTD3Policy as CatalogTD3Policy,
)
from .checks import outputs as outputs
from .contrib import (
    CatalogMaskablePolicy as CatalogMaskablePolicy,
    CatalogRecurrentPolicy as CatalogRecurrentPolicy,
    RecurrentPPO as RecurrentPPO,
)
from .conversion import to_policy as to_policy
from .features import CatalogExtractor as CatalogExtractor
from .flat_spaces import FlattenSpaces as FlattenSpaces, for_sb3 as for_sb3
from .policies import CatalogPolicy as CatalogPolicy
from .q_learning import DQN as DQN, CatalogQPolicy as CatalogQPolicy
from .quantile_learning import (
    QRDQN as QRDQN,
    CatalogQuantilePolicy as CatalogQuantilePolicy,
    CatalogTQCPolicy as CatalogTQCPolicy,
)
