"""triton before TensorFlow: PyTorch's optimisers import the one, and the process may end where the other was first.

`rlcatalog_tf.load_order` says why.
"""

from __future__ import annotations

from rlcatalog.frameworks import load_apart


def before_torch_optimizers() -> None:
    """Warn where TensorFlow was imported before triton; to be called before PyTorch's optimisers are touched.

    triton is then loaded apart from TensorFlow: see `load_apart`.
    """
    load_apart("triton", after="tensorflow")
