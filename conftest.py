"""Settings for all tests."""

import os

# Small networks are fastest on one thread; several, on a busy machine, wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
