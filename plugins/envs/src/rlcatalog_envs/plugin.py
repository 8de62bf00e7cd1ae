"""Plugin declarations: the adapters of environments with another interface than Gymnasium."""

from __future__ import annotations

from rlcatalog import EnvAdapterSpec, hookimpl


@hookimpl
def rlcatalog_env_adapters() -> list[EnvAdapterSpec]:
    return [
        EnvAdapterSpec(
            "envpool",
            {
                "numpy": "rlcatalog_envs.envpool:adapt",
                "make_vec": "rlcatalog_envs.envpool:make_vec",
            },
            "environments of EnvPool, which step many at once in C++",
            modules=("envpool",),
            prefix="envpool",
            examples="rlcatalog_envs.examples:pools",
        ),
        EnvAdapterSpec(
            "dm_env",
            {"numpy": "rlcatalog_envs.dm_env:adapt", "make": "rlcatalog_envs.dm_env:make"},
            "environments of dm_control, bsuite and others with the interface dm_env",
            modules=("dm_env",),
            prefix="shimmy",
            examples="rlcatalog_envs.examples:dm_environments",
        ),
        EnvAdapterSpec(
            "pettingzoo",
            {"numpy": "rlcatalog_envs.pettingzoo:adapt"},
            "parallel games of PettingZoo, whose agents share one policy",
            modules=("pettingzoo",),
            examples="rlcatalog_envs.examples:games",
        ),
        EnvAdapterSpec(
            "tensors",
            {"numpy": "rlcatalog_envs.torch:adapt"},
            "vector environments that return PyTorch tensors, such as simulators on a GPU",
            attributes=("num_envs", "device"),
            examples="rlcatalog_envs.examples:tensor_environments",
        ),
    ]
