"""Declaration: PyTorch."""

from __future__ import annotations

from rlcatalog import FrameworkSpec, hookimpl


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            "torch",
            {
                "backend": "rlcatalog_torch.backend:TorchBackend",
                "ops": "rlcatalog_torch.ops:OPS",
                "host": "rlcatalog_torch.model:TorchHost",
                "separate_value": "rlcatalog_torch.model:TorchSeparateValue",
                "add_time_dimension": "rlcatalog_torch.sequences:add_time_dimension",
                "learner": "rlcatalog_torch.learner:TorchLearner",
                "kit": "rlcatalog_torch.kit:TorchKit",
            },
            "PyTorch",
            module="torch",
        ),
    ]
