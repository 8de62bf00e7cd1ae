"""Settings for tests with rsl_rl."""

import sys
from types import ModuleType

# rsl_rl imports TensorBoard, which imports TensorFlow unless it finds this module. No test needs
# it, and it takes seconds.
sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))
