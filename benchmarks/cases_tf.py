"""TensorFlow: acting, the distributions, building."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import tensorflow as tf

import rlcatalog
from benchmarks import floors
from benchmarks.harness import Case, Result, report
from rlcatalog_tf import Categorical, DiagGaussian

HIDDENS = [256, 256]
SPACES = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)


def acting() -> Iterator[Case]:
    """`policy.act` against one hand-traced function."""
    floor = floors.TFActFloor(4, 2, HIDDENS)
    policy = rlcatalog.build(*SPACES, {"fcnet_hiddens": HIDDENS}, "tf")
    for batch in (1, 32):
        obs = np.random.default_rng(0).uniform(-1, 1, (batch, 4)).astype(np.float32)
        budget = 1.25 if batch == 1 else None
        yield Case(
            "act, fcnet, TensorFlow",
            lambda obs=obs: policy.act(obs),
            lambda obs=obs: floor.act(obs),
            budget,
            str(batch),
        )


def distributions() -> Iterator[Case]:
    """Construct, sample, logp, entropy and kl, traced."""

    def traced(cls: type, width: int) -> object:
        @tf.function(
            input_signature=[tf.TensorSpec([None, width], tf.float32)] * 2, autograph=False
        )
        def run(inputs: object, other: object) -> tuple[object, ...]:
            dist = cls(inputs)
            sample = dist.sample()
            return sample, dist.logp(sample), dist.entropy(), dist.kl(cls(other))

        return run

    pairs = (
        ("Categorical(18)", traced(Categorical, 18), floors.tf_categorical(18), 18),
        ("DiagGaussian(8)", traced(DiagGaussian, 16), floors.tf_diag_gaussian(8), 16),
    )
    for batch in (1, 1024):
        for name, ours, floor, width in pairs:
            a, b = tf.random.normal([batch, width]), tf.random.normal([batch, width])
            yield Case(
                f"{name}, TensorFlow",
                lambda f=ours, a=a, b=b: f(a, b),
                lambda f=floor, a=a, b=b: f(a, b),
                1.3,
                str(batch),
            )


def building() -> Iterator[Case]:
    """Building the model from a lookup, against the bare layers with the same initialisers."""
    policy = rlcatalog.build(*SPACES, {"fcnet_hiddens": HIDDENS}, "tf")
    yield Case(
        "build, fcnet, TensorFlow", policy.make_model, lambda: floors.build_tf(4, 2, HIDDENS), 1.5
    )


def run() -> list[Result]:
    """Print TensorFlow's cases."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return [*report(acting()), *report(distributions()), *report(building())]
