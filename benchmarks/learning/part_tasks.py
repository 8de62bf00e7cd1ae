"""Tasks that need one part of rlcatalog, beside what other libraries offer for them."""

from __future__ import annotations

from benchmarks.learning.environments import Registered
from benchmarks.learning.part_environments import (
    Candidates,
    Duet,
    JoinedWorkshop,
    NumbersForTools,
    PairsOfSongs,
    Recall,
    RequestOnly,
    StepsForVelocities,
)
from benchmarks.learning.task import Task
from rlcatalog_ppo.zoo_environments import Weeds, Workshop

OWN, OURS = ("sb3", "own"), ("ours", "catalog")
FIVE = {"sb3": 5}
_ZOO_MODULES = ("rlcatalog_ppo.zoo_environments",)

PARTS = {
    "Workshop": Task(
        Registered("Workshop-v0", _ZOO_MODULES),
        50 / 16,  # one of four free machines, and one of four free tools
        50,
        {"sb3": 60_000},
        {
            "lr": 1e-3,
            "gamma": 0.0,
            "own": {"net_arch": [64, 64]},
            "model": {"fcnet_hiddens": [64, 64]},
        },
        FIVE,
        algorithm="MaskablePPO",
        nets={"sb3": ("own",), "ours": ("catalog",)},
        compared=((OURS, OWN),),
        views={"sb3": lambda: JoinedWorkshop(Workshop())},
        about="Masks in a Dict of two actions. MaskablePPO takes neither the Dict nor its masks: it"
        " sees the task through a wrapper of 20 lines, written by hand. With the wrapper, it learns"
        " as much.",
    ),
    "Weeds": Task(
        Registered("Weeds-v0", _ZOO_MODULES),
        0.1,
        9.5,
        {"sb3": 150_000},
        {
            "lr": 1e-3,
            "gamma": 0.97,
            "own": {"net_arch": [64, 64]},
            "numbers": {"net_arch": [64, 64]},
            "model": {"fcnet_hiddens": [64, 64]},
        },
        FIVE,
        nets={"sb3": ("own", "numbers"), "ours": ("catalog",)},
        compared=((OURS, OWN), (OURS, ("sb3", "numbers"))),
        views={
            "sb3/own": lambda: StepsForVelocities(Weeds()),
            "sb3/numbers": lambda: NumbersForTools(Weeds()),
        },
        about="A tool and a velocity in one action. Stable-Baselines3 takes no such action. Its"
        " first net chooses one of five velocities in each direction. Its second net has four"
        " numbers for the tools, and the largest number chooses. Five velocities are enough for"
        " this task: they return a little more. With numbers for the tools, one of five seeds"
        " reached only 3.3.",
    ),
    "Duet": Task(
        Duet,
        0.5,
        1.75,
        {"sb3": 60_000},
        {
            "lr": 3e-3,
            "gamma": 1.0,
            "gae": 1.0,
            "own": {"net_arch": [16]},
            "independent": {"fcnet_hiddens": [16]},
            "model": {"fcnet_hiddens": [16], "use_autoregressive": True},
        },
        FIVE,
        nets={"sb3": ("own",), "ours": ("independent", "catalog")},
        compared=((OURS, OWN), (OURS, ("ours", "independent"))),
        views={"sb3": lambda: PairsOfSongs(Duet())},
        about="Two choices that depend on each other, with `use_autoregressive`, beside independent"
        " ones, whose mean return cannot exceed 1.09. The dependent choices reach the optimum of"
        " 1.75.",
    ),
    "Recall": Task(
        Recall,
        0.25,
        1,
        {"sb3": 80_000},
        {
            "lr": 3e-4,
            "gamma": 0.99,
            "length": 128,
            "entropy": 0.01,
            "own": {"net_arch": [64], "lstm_hidden_size": 64},
            "lstm": {"fcnet_hiddens": [64], "use_lstm": True, "lstm_cell_size": 64},
            "model": {
                "fcnet_hiddens": [64],
                "use_attention": True,
                "attention_dim": 32,
                "attention_memory_inference": 40,
                "attention_memory_training": 40,
            },
        },
        FIVE,
        algorithm="RecurrentPPO",
        nets={"sb3": ("own",), "ours": ("lstm", "catalog")},
        compared=((OURS, OWN), (OURS, ("ours", "lstm"))),
        about="A symbol is to be named 31 steps after it was shown. Our nets are trained on"
        " sequences of 20 steps: the attention net remembers 40 steps, and the LSTM learns nothing"
        " over more steps than a sequence has. sb3-contrib's LSTM is trained on whole episodes. In"
        " 80,000 steps, both LSTMs guess, which returns 0.25.",
    ),
    "Candidates": Task(
        Candidates,
        0,
        8.5,
        {"sb3": 60_000},
        {
            "lr": 1e-3,
            "gamma": 0.0,
            "own": {"net_arch": [64, 64]},
            "model": {"fcnet_hiddens": [64, 64]},
        },
        FIVE,
        nets={"sb3": ("own",), "ours": ("catalog",)},
        compared=((OURS, OWN),),
        views={"sb3": lambda: RequestOnly(Candidates())},
        about="A choice among 1,000 candidates by their features, beside a softmax over their"
        " numbers, which learns about each candidate separately.",
    ),
}
