"""Settings for tests with skrl."""

import logging
import sys
from types import ModuleType

# skrl imports TensorBoard, which imports TensorFlow unless it finds this module. No test needs it,
# and it takes seconds.
sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))


def pytest_sessionfinish():
    """Take skrl's log away, which writes at the process's end to what pytest has closed."""
    logging.getLogger("skrl").handlers.clear()
