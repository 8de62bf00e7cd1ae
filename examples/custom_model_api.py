"""Additional model methods (`model_interface=`): a dueling head, and the Q-value of a
continuous action.

A model can have more methods than the ones that PPO needs. The classes with these
methods are in `model_apis/torch.py` and `model_apis/tf.py`. This example only calls
them; `dqn.py` and `sac.py` train them. Run it with `python examples/custom_model_api.py
--framework tf`.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcatalog import ModelCatalog

OBSERVATION = Box(-1.0, 1.0, (4,), np.float32)
MODEL = {"fcnet_hiddens": [64, 64]}


def interfaces(framework: str) -> tuple[type, type, Any]:
    """Return the two interfaces, and the function that converts an array
    into a tensor.
    """
    if framework == "torch":
        import torch
        from model_apis.torch import TorchContActionQModel, TorchDuelingQModel

        return TorchDuelingQModel, TorchContActionQModel, torch.from_numpy
    from model_apis.tf import ContActionQModel, DuelingQModel

    from rlcatalog_tf import tf

    return DuelingQModel, ContActionQModel, tf.constant


def main() -> None:
    """Build both models, and print their outputs for a batch of three observations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", default="torch", choices=["torch", "tf"])
    framework = parser.parse_args().framework
    dueling_api, single_q_api, tensor = interfaces(framework)
    obs = tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))

    model = ModelCatalog.get_model_v2(
        OBSERVATION,
        Discrete(5),
        num_outputs=None,
        model_config=MODEL,
        framework=framework,
        name="my_dueling_model",
        model_interface=dueling_api,
    )
    out, _ = model({"obs": obs})
    print(
        f"features {tuple(out.shape)}, Q-values {tuple(model.get_q_values(out).shape)}"
    )

    actions = Box(-1.0, 1.0, (2,), np.float32)
    model = ModelCatalog.get_model_v2(
        OBSERVATION,
        actions,
        num_outputs=None,
        model_config=MODEL,
        framework=framework,
        name="my_cont_action_q_model",
        model_interface=single_q_api,
    )
    out, _ = model({"obs": obs})
    q_value = model.get_single_q_value(out, tensor(np.zeros((3, 2), np.float32)))
    print(
        f"features {tuple(out.shape)}, Q-values of three actions {tuple(q_value.shape)}"
    )


if __name__ == "__main__":
    main()
