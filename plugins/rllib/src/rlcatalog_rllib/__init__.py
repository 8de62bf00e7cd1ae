"""Catalog parts for Ray RLlib's new API stack.

`rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", model={"fcnet_hiddens": [64, 64]})`
"""

import lazy_loader

from rlcatalog.frameworks import load_first

# Ray RLlib imports TensorFlow if installed, both in the driver and in Ray's workers.
load_first("triton", before="tensorflow")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["prepare_worker"]


def prepare_worker() -> None:
    """Do nothing; importing this package in a Ray worker has already loaded triton before
    TensorFlow.

    A remote learner or a Ray Tune trial first imports RLlib, which imports TensorFlow. Ray runs the
    setup hook even earlier.

    Example:
        >>> ray.init(runtime_env={"worker_process_setup_hook": "rlcatalog_rllib.prepare_worker"})
    """
