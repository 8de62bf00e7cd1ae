"""Ray RLlib's new API stack over rlcatalog's contract.

`rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", model={"fcnet_hiddens": [64, 64]})`
"""

import lazy_loader

from rlcatalog.frameworks import load_first

# Ray RLlib imports TensorFlow where it is installed, in the driver's process as in Ray's workers.
load_first("triton", before="tensorflow")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["prepare_worker"]


def prepare_worker() -> None:
    """Order the imports of a Ray worker: triton before TensorFlow. Importing this package has done so.

    The first that a remote learner or a trial of Ray Tune imports is RLlib, and with it TensorFlow. Ray's setup hook
    comes before.

    Example:
        >>> ray.init(runtime_env={"worker_process_setup_hook": "rlcatalog_rllib.prepare_worker"})
    """
