"""Whole models in TensorFlow, traced: what `cases_models` measures in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

import rlcatalog
from benchmarks import floors_models_tf
from benchmarks.cases_models import (
    ACTIONS,
    IMAGE_BATCH,
    LENGTHS,
    MODELS,
    SEQUENCES,
    VECTORS,
    floor_steps,
    our_steps,
    padded,
    same_steps,
    some_columns,
    some_obs,
    some_state,
)
from benchmarks.floors_models import LEARNING_RATE
from benchmarks.harness import Case, Result, report
from rlcatalog_tf.learner import Adam

Array = np.ndarray[Any, Any]
Step = Callable[[], Any]

FLOORS = {
    "vision": floors_models_tf.VisionFloor,
    "vision (nature)": floors_models_tf.VisionFloor,
    "LSTM": floors_models_tf.LstmFloor,
    "attention": floors_models_tf.AttentionFloor,
}


def acting() -> Iterator[Case]:
    """`policy.act` against one hand-traced function; states go from step to step as arrays."""
    for name, (space, config, _) in MODELS.items():
        for batch in (1, 32):
            policy = rlcatalog.build(space, gym.spaces.Discrete(ACTIONS), config, "tf")
            obs = some_obs(space, batch)
            floor = floors_models_tf.ActFloor(FLOORS[name](policy.model.get_weights()))
            mine, theirs = (
                our_steps(policy, obs),
                floor_steps(floor.act, obs, policy.memory.start(batch)),
            )
            same_steps(mine, theirs)
            yield Case(f"act, {name}, TensorFlow", mine, theirs, 1.25, str(batch))


def training() -> Iterator[Case]:
    """A traced training step against a hand-traced one; of mixed lengths, against the batch padded
    to the longest.

    The floor has Keras's Adam. Our side has the Adam of rlcatalog's learner, as in PPO, or also
    Keras's.
    """
    for name, (space, config, _) in MODELS.items():
        sequences = space is VECTORS
        for kind, lengths in (
            LENGTHS.items() if sequences else [("", np.ones(IMAGE_BATCH, np.int32))]
        ):
            policy = rlcatalog.build(space, gym.spaces.Discrete(ACTIONS), config, "tf")
            state = some_state(policy, len(lengths)) if sequences else ()
            columns = {"obs": some_obs(space, lengths.sum()), **some_columns(lengths.sum())}
            net = FLOORS[name](policy.model.get_weights())
            batch = padded(columns, lengths) if sequences else columns
            evaluate = lambda batch, net=net: floors_models_tf.evaluated(net, batch)  # noqa: E731
            theirs = floors_models_tf.training_step(
                net.variables,
                evaluate,
                {**batch, "state": state},
                keras.optimizers.Adam(LEARNING_RATE),
            )
            rows = f"{SEQUENCES} sequences, {kind} lengths" if sequences else str(IMAGE_BATCH)
            given = policy, columns, lengths if sequences else None, state
            for label, adam, budget in (
                ("", Adam, 1.05),
                (", with Keras's Adam", keras.optimizers.Adam, None),
            ):
                mine = our_training(*given, adam(LEARNING_RATE))
                same_training(mine, theirs)
                yield Case(
                    f"training step, {name}, TensorFlow{label}", mine[0], theirs[0], budget, rows
                )


def our_training(
    policy: Any,
    columns: Mapping[str, Array],
    lengths: Array | None,
    state: tuple[Array, ...],
    optimizer: Any,
) -> tuple[Step, Step]:
    """Return a traced training step of a policy."""

    def evaluate(batch: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        found = policy.evaluate({**batch, "raw_action": batch["action"][:, None]})
        return found.logp, found.entropy, found.value

    batch: dict[str, Any] = {**columns, "state": state}
    if lengths is not None:
        batch["seq_lens"] = lengths
    return floors_models_tf.training_step(
        policy.model.trainable_variables(), evaluate, batch, optimizer
    )


def same_training(mine: tuple[Step, Step], theirs: tuple[Step, Step]) -> None:
    """Raise unless both sides find the same loss and gradients of the same size."""
    for ours, floor in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(ours(), floor(), rtol=1e-3, atol=1e-5)


def run(parts: Sequence[Callable[[], Iterator[Case]]] = (acting, training)) -> list[Result]:
    """Print TensorFlow's models."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(0)
    return [result for part in parts for result in report(part())]
