"""Settings for tests with skrl."""

import sys
from types import ModuleType

# skrl imports TensorBoard, which imports TensorFlow unless it finds this module. No test needs
# it, and it takes seconds.
sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))
