from .actor import CatalogActor as CatalogActor
from .algorithm import CatalogPPO as CatalogPPO
from .conversion import to_policy as to_policy
from .critic import CatalogCritic as CatalogCritic
from .env import CatalogEnv as CatalogEnv
