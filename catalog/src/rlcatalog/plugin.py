"""Declarations of the kernel itself: the frameworks it brings."""

from __future__ import annotations

from rlcatalog.plugins import FrameworkSpec, hookimpl


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            "torch",
            {
                "engine": "rlcatalog.torch.engine:TorchEngine",
                "ops": "rlcatalog.torch.ops:OPS",
                "host": "rlcatalog.torch.interface_host:TorchHost",
            },
            "PyTorch",
            module="torch",
        ),
        FrameworkSpec(
            "tf",
            {
                "before": "rlcatalog.frameworks.load_order:before_tensorflow",
                "engine": "rlcatalog.tf.engine:TFEngine",
                "ops": "rlcatalog.tf.ops:OPS",
                "host": "rlcatalog.tf.interface_host:TFHost",
            },
            "TensorFlow 2 with Keras 3",
            module="tensorflow",
            aliases=("tf2",),
        ),
    ]
