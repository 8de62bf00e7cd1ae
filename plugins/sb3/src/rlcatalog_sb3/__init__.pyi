from .checks import outputs as outputs
from .conversion import to_policy as to_policy
from .features import CatalogExtractor as CatalogExtractor
from .flat_spaces import FlattenSpaces as FlattenSpaces, for_sb3 as for_sb3
from .maskable import CatalogMaskablePolicy as CatalogMaskablePolicy
from .policies import CatalogPolicy as CatalogPolicy
from .recurrent import CatalogRecurrentPolicy as CatalogRecurrentPolicy, RecurrentPPO as RecurrentPPO
