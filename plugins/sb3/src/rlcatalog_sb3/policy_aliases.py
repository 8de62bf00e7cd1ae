"""The policies' names in the algorithms of Stable-Baselines3 and sb3-contrib: `PPO("CatalogPolicy", env)`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

#: Package of the algorithms → (algorithms, module of ours, policy in it). Those that the policy refuses have its name
#: as well, so that its refusal is read and not that the name is unknown.
_PLACES: dict[str, list[tuple[tuple[str, ...], str, str]]] = {
    "stable_baselines3": [(("PPO", "A2C", "DQN", "SAC", "TD3"), "policies", "CatalogPolicy")],
    "sb3_contrib": [
        (("TRPO", "QRDQN", "TQC", "CrossQ"), "policies", "CatalogPolicy"),
        (("MaskablePPO",), "maskable", "CatalogMaskablePolicy"),
        (("RecurrentPPO",), "recurrent", "CatalogRecurrentPolicy"),
    ],
}


def enter_names(*, importing: bool) -> None:
    """Write the policies' names into the algorithms' `policy_aliases`.

    Args:
        importing: Whether to import the algorithms for it; else only those that were imported get the names.
    """
    for package, places in _PLACES.items():
        home = _imported(package, importing)
        for algorithms, module, policy in places if home is not None else []:
            found = getattr(importlib.import_module(f"rlcatalog_sb3.{module}"), policy)
            for algorithm in algorithms:
                if (cls := getattr(home, algorithm, None)) is not None:  # older versions have fewer
                    cls.policy_aliases[policy] = found


def _imported(package: str, importing: bool) -> Any:
    if importing and package not in sys.modules:
        try:
            return importlib.import_module(package)
        except Exception:  # sb3-contrib is an extra, and whoever uses it sees what is wrong with it
            return None
    return sys.modules.get(package)
