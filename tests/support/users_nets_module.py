"""A module of a user's, `users_nets`, that other processes cannot import, with a model for tests to
register.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

#: Its class, beside a helper that the class needs.
TEXT = """
from rlcatalog_torch import FullyConnectedNetwork

def halved(hiddens):
    return [max(1, n // 2) for n in hiddens]

class Slim(FullyConnectedNetwork):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        config = {**model_config, "fcnet_hiddens": halved(model_config["fcnet_hiddens"])}
        super().__init__(obs_space, action_space, num_outputs, config, name)
"""


@contextmanager
def users_nets(folder: Path) -> Iterator[ModuleType]:
    """Write the module into a folder and import it; at the end it is gone from this process."""
    (folder / "users_nets.py").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        sys.modules.pop("users_nets", None)
        yield import_module("users_nets")
    sys.modules.pop("users_nets", None)
