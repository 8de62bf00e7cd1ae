"""The command `rlcatalog port`: rewrites code written for RLlib."""

import tomllib
from pathlib import Path
from typing import Any

#: The rules' knowledge of names, from `tables.toml`.
TABLES: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("tables.toml").read_text(encoding="utf-8")
)
