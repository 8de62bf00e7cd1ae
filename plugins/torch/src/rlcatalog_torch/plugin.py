"""Plugin declaration: PyTorch."""

from __future__ import annotations

from rlcatalog import FrameworkSpec, hookimpl


@hookimpl
def rlcatalog_frameworks() -> list[FrameworkSpec]:
    return [
        FrameworkSpec(
            name="torch",
            targets={
                "backend": "rlcatalog_torch.backend:TorchBackend",
                "ops": "rlcatalog_torch.ops:OPS",
                "host": "rlcatalog_torch.model:TorchHost",
                "separate_value": "rlcatalog_torch.model:TorchSeparateValue",
                "separate_critic": "rlcatalog_torch.model:TorchSeparateCritic",
                "layers_after_memory": "rlcatalog_torch.model:TorchLayersAfterMemory",
                "add_time_dimension": "rlcatalog_torch.sequences:add_time_dimension",
                "distribution": "rlcatalog_torch.distribution_adapter:adapted_dist",
                "learner": "rlcatalog_torch.learner:TorchLearner",
                "bookkeeping": "rlcatalog_torch.bookkeeping:TorchBookkeeping",
                "kit": "rlcatalog_torch.check_support:TorchKit",
                "policy_module": "rlcatalog_torch.policy_module:PolicyModule",
            },
            summary="PyTorch",
            module="torch",
        )
    ]
