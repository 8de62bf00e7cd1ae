"""Tasks with settings that others published and tuned, and what was published of them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from benchmarks.learning.environments import (
    MaskInObservation,
    Registered,
    masked,
    minigrid_dict,
    minigrid_numbers,
)
from benchmarks.learning.task import Published, Task

#: RL Baselines3 Zoo at one commit (version 2.9.0a2): its tuned settings, and what agents trained
#: with them reached.
ZOO = "https://github.com/DLR-RM/rl-baselines3-zoo/blob/22e3ff2450fd92033f7f032915e1f64894a09584/"
PPO_YML, LSTM_YML, SAC_YML, TD3_YML, DQN_YML = (
    f"[{name}.yml of RL Baselines3 Zoo 2.9.0a2]({ZOO}hyperparams/{name}.yml)"
    for name in ("ppo", "ppo_lstm", "sac", "td3", "dqn")
)
MARKS, GYMNAX = f"{ZOO}benchmark.md", "https://github.com/RobertTLange/gymnax"
#: PPO of both engines, without RLlib.
BOTH = {"sb3": ("own", "catalog"), "ours": ("catalog",)}
ONLY_SB3 = {"sb3": ("own", "catalog")}
#: Defaults of Stable-Baselines3's PPO, which the zoo leaves out.
DEFAULTS = {
    "lr": 3e-4,
    "gamma": 0.99,
    "gae": 0.95,
    "length": 2048,
    "minibatch": 64,
    "epochs": 10,
    "envs": 1,
    "clip": 0.2,
    "entropy": 0.0,
    "value": 0.5,
    "grad": 0.5,
    "decay": [],
    "scaled": [],
}
FIVE, TEN = {"sb3": 5}, {"sb3": 10}


def _ppo(net: dict[str, Any], model: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {**DEFAULTS, **settings, "own": net, "model": model}


def _mujoco(**settings: Any) -> dict[str, Any]:
    """Return settings of the zoo's MuJoCo tasks, which share nets and normalisation."""
    own = {
        "net_arch": [256, 256],
        "activation_fn": "ReLU",
        "ortho_init": False,
        "log_std_init": -2.0,
    }
    model = {"fcnet_hiddens": [256, 256], "fcnet_activation": "relu"}
    return _ppo(
        own, model, length=512, scaled=["observations", "rewards"], log_std=-2.0, **settings
    )


def _recurrent(memory: int, **model: Any) -> dict[str, Any]:
    """Return the zoo's settings of CartPoleNoVel; our nets are as large as sb3-contrib's, to 1%.

    Args:
        memory: How many past steps our attention sees.
        model: Keys of the model config of both our nets.
    """
    own = {"net_arch": [64], "activation_fn": "ReLU", "ortho_init": False, "lstm_hidden_size": 64}
    trunk = {"fcnet_hiddens": [64], "fcnet_activation": "relu", "vf_share_layers": False}
    return {
        **_ppo(
            own,
            {**trunk, "use_lstm": True, **model},
            lr=1e-3,
            gamma=0.98,
            gae=0.8,
            length=32,
            minibatch=256,
            epochs=20,
            envs=8,
            decay=["lr", "clip"],
            scaled=["rewards"],
        ),
        "attention": {
            **trunk,
            "use_attention": True,
            "attention_dim": 32,
            "attention_memory_inference": memory,
            "attention_memory_training": memory,
            **{key: value for key, value in model.items() if key == "init"},
        },
    }


#: The layers and first weights of sb3-contrib's net without `ortho_init`.
_LSTM = {"lstm_cell_size": 64, "init": "fan_in_uniform"}
_MLP = {"net_arch": [64, 64]}
_FCNET = {"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh"}
_LANDER = _ppo(_MLP, _FCNET, envs=16, length=1024, gae=0.98, gamma=0.999, epochs=4, entropy=0.01)
_LANDER_SOURCE = (
    f"{PPO_YML} (LunarLander-v3, also used for the continuous task), half of its 1,000,000 steps"
)
#: The net of the MinAtar paper (Young and Tian 2019): 16 kernels of 3 x 3, then a dense layer of
#: 128.
_MINATAR = _ppo(
    {"net_arch": [], "features_extractor_class": "MinAtarNet"},
    {
        "conv_filters": [[16, [3, 3], 1]],
        "conv_padding": "valid",
        "conv_flatten": True,
        "post_fcnet_hiddens": [128],
        "post_fcnet_activation": "relu",
    },
    envs=8,
    length=128,
    epochs=4,
    minibatch=256,
    lr=2.5e-4,
    clip=0.1,
    entropy=0.01,
    decay=["lr", "clip"],
)
_PUREJAXRL = "https://github.com/luchris429/purejaxrl/blob/146b4856d593bcb4114b9c9fdb45798034696551/examples/"
_MINATAR_SOURCE = (
    f"{PPO_YML} (atari), without its preprocessing and frame stack, 500,000 of its 10,000,000"
    " steps. Both nets are from the [MinAtar paper](https://arxiv.org/abs/1903.03176). The"
    f" settings that [PureJaxRL]({_PUREJAXRL}brax_minatar.ipynb) published for PPO on MinAtar are"
    " for 64 environments and 10,000,000 steps"
)
_POPGYM = "https://github.com/proroklab/popgym/blob/0ad6b28fae7601b64bdca9a852aac4aa647aa815/popgym/baselines/ppo.py"
_RECURRENT_SOURCE = (
    f"{LSTM_YML} (CartPoleNoVel-v1). Rewards are normalised; the observation, one of a few values,"
    f" is not. The [POPGym settings]({_POPGYM}) collect 65,536 steps per update, which is too many"
    " for 200,000 steps"
)
_SAC_NET = {
    "own": {"net_arch": [256, 256]},
    "extractor": {"fcnet_hiddens": [256], "fcnet_activation": "relu"},
    "layers": [256],
}

PUBLISHED = {
    "Hopper-v5": Task(
        Registered("Hopper-v5"),
        20,
        3600,
        {"sb3": 1_000_000},
        _mujoco(
            minibatch=32,
            gamma=0.999,
            lr=9.80828e-05,
            entropy=0.00229519,
            epochs=5,
            gae=0.99,
            grad=0.7,
            value=0.835671,
        ),
        FIVE,
        nets=BOTH,
        cost=2200,
        kept_defaults=True,
        source=f"{PPO_YML} (Hopper-v4)",
        published=(
            Published(
                "Stable-Baselines3's PPO, 1,000,000 steps in Hopper-v3, one seed", 2410.4, MARKS
            ),
        ),
    ),
    "MinAtar/Breakout-v1": Task(
        Registered("MinAtar/Breakout-v1", ("minatar.gym",)),
        0.4,
        20,
        {"sb3": 500_000},
        _MINATAR,
        FIVE,
        nets=BOTH,
        needs=("minatar",),
        cost=200,
        kept_defaults=True,
        source=_MINATAR_SOURCE,
        published=(Published("gymnax-blines' PPO, 10,000,000 steps in a JAX port", 28.0, GYMNAX),),
    ),
    "LunarLander-v3": Task(
        Registered("LunarLander-v3"),
        -200,
        270,
        {"sb3": 500_000},
        _LANDER,
        FIVE,
        nets=BOTH,
        needs=("Box2D",),
        cost=200,
        kept_defaults=True,
        source=_LANDER_SOURCE,
        published=(
            Published(
                "Stable-Baselines3's PPO, 1,000,000 steps in LunarLander-v2, one seed", 242.1, MARKS
            ),
        ),
    ),
    "RepeatPreviousEasy": Task(
        Registered("popgym-RepeatPreviousEasy-v0", ("popgym",)),
        -0.5,
        1,
        {"sb3": 200_000},
        _recurrent(32, **_LSTM),
        FIVE,
        algorithm="RecurrentPPO",
        nets={"sb3": ("own", "catalog"), "ours": ("catalog", "attention")},
        needs=("popgym",),
        cost=450,
        source=_RECURRENT_SOURCE,
    ),
    "InvalidActionEnvDiscrete": Task(
        masked,
        5,
        100,
        {"sb3": 40_960},
        _ppo(_MLP, _FCNET, gamma=0.4),
        TEN,
        algorithm="MaskablePPO",
        nets=BOTH,
        views={"ours": lambda: MaskInObservation(masked())},
        cost=130,
        source="[sb3-contrib's"
        " documentation](https://sb3-contrib.readthedocs.io/en/master/modules/ppo_mask.html)"
        " (80 actions, 60 of them forbidden at each step), for 40,960 instead of 5,000 steps",
        published=(
            Published(
                "threshold in MaskablePPO's documentation, 5,000 steps",
                90.0,
                "https://sb3-contrib.readthedocs.io/en/master/modules/ppo_mask.html",
            ),
        ),
    ),
    "MiniGrid-Empty-Random-5x5-v0": Task(
        minigrid_dict,
        0.3,
        0.97,
        {"sb3": 100_000},
        _ppo(
            _MLP,
            {"post_fcnet_hiddens": [64, 64], "post_fcnet_activation": "tanh"},
            envs=8,
            length=128,
            lr=2.5e-4,
            scaled=["rewards"],
        ),
        TEN,
        nets=BOTH,
        views={"sb3/own": minigrid_numbers},
        cost=140,
        kept_defaults=True,
        source=f"{PPO_YML} (MiniGrid-Empty-Random-5x5-v0), with a Dict of image and direction"
        " instead of a flat vector; rewards are normalised, observations are not",
        published=(
            Published(
                "Stable-Baselines3's PPO, 100,000 steps with flat observations, one seed",
                0.968,
                MARKS,
            ),
        ),
    ),
    "Pendulum-v1, SAC": Task(
        Registered("Pendulum-v1"),
        -1250,
        -150,
        {"sb3": 20_000},
        {"learning_rate": 1e-3, **_SAC_NET},
        FIVE,
        algorithm="SAC",
        nets=ONLY_SB3,
        cost=450,
        kept_defaults=True,
        source=f"{SAC_YML} (Pendulum-v1)",
        published=(Published("Stable-Baselines3's SAC, 20,000 steps, one seed", -157.0, MARKS),),
    ),
    "CartPole-v1, DQN": Task(
        Registered("CartPole-v1"),
        22,
        500,
        {"sb3": 50_000},
        {
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1000,
            "gamma": 0.99,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
            "own": {"net_arch": [256, 256]},
            "extractor": {"fcnet_hiddens": [256, 256], "fcnet_activation": "relu"},
            "layers": [],
        },
        TEN,
        algorithm="DQN",
        nets=ONLY_SB3,
        cost=140,
        kept_defaults=True,
        source=f"{DQN_YML} (CartPole-v1)",
        published=(Published("Stable-Baselines3's DQN, 50,000 steps, one seed", 500.0, MARKS),),
    ),
    "MinAtar/SpaceInvaders-v1": Task(
        Registered("MinAtar/SpaceInvaders-v1", ("minatar.gym",)),
        4.8,
        60,
        {"sb3": 500_000},
        _MINATAR,
        FIVE,
        nets=BOTH,
        needs=("minatar",),
        cost=200,
        source=_MINATAR_SOURCE,
        published=(Published("gymnax-blines' PPO, 10,000,000 steps in a JAX port", 131.0, GYMNAX),),
    ),
    "LunarLanderContinuous-v3": Task(
        Registered("LunarLanderContinuous-v3"),
        -200,
        270,
        {"sb3": 500_000},
        _LANDER,
        FIVE,
        nets=BOTH,
        needs=("Box2D",),
        cost=200,
        source=_LANDER_SOURCE,
        published=(
            Published(
                "Stable-Baselines3's PPO, 1,000,000 steps in LunarLanderContinuous-v2, one seed",
                270.9,
                MARKS,
            ),
        ),
    ),
    "CountRecallEasy": Task(
        Registered("popgym-CountRecallEasy-v0", ("popgym",)),
        -0.93,
        1,
        {"sb3": 200_000},
        _recurrent(50, **_LSTM),
        FIVE,
        algorithm="RecurrentPPO",
        nets={"sb3": ("own", "catalog"), "ours": ("catalog", "attention")},
        # sb3-contrib's LSTM takes no MultiDiscrete, which Stable-Baselines3 would turn into the
        # same one-hots.
        views={
            "sb3/own": lambda: gym.wrappers.FlattenObservation(
                Registered("popgym-CountRecallEasy-v0", ("popgym",))()
            )
        },
        needs=("popgym",),
        cost=450,
        source=_RECURRENT_SOURCE,
    ),
    "Pendulum-v1, TD3": Task(
        Registered("Pendulum-v1"),
        -1250,
        -150,
        {"sb3": 20_000},
        {
            "learning_rate": 1e-3,
            "gamma": 0.98,
            "buffer_size": 200_000,
            "learning_starts": 10_000,
            "gradient_steps": 1,
            "train_freq": 1,
            "noise": 0.1,
            "own": {"net_arch": [400, 300]},
            "extractor": {"fcnet_hiddens": [400], "fcnet_activation": "relu"},
            "layers": [300],
        },
        FIVE,
        algorithm="TD3",
        nets=ONLY_SB3,
        cost=150,
        source=f"{TD3_YML} (Pendulum-v1)",
        published=(Published("Stable-Baselines3's TD3, 20,000 steps, one seed", -151.9, MARKS),),
    ),
}
