"""Autoregressive actions in TensorFlow: drawing six parts, and scoring stored ones in one pass,
both traced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import floors_autoregressive as floors
from benchmarks.cases_autoregressive import policy
from benchmarks.harness import Case, Result, report


def cases() -> Iterator[Case]:
    """Drawing and scoring, at batch 1 and 1,024."""
    made = policy("tf")
    model, dist_class = made.model, made.dist_class
    layout = dist_class.options["layout"]
    weights = (model.conditionals.actions, model.conditionals.params)
    first, _, last = layout.masks
    draw, scored = (
        floors.tf_sample(*weights),
        floors.tf_pass(*weights, first.T.copy(), last.T.copy()),
    )
    inputs_spec = tf.TensorSpec([None, layout.size], tf.float32)

    @tf.function(input_signature=[inputs_spec], autograph=False)
    def ours(inputs: Any) -> tuple[Any, ...]:
        dist = dist_class(inputs, model)
        sample = dist.sample()
        return sample, dist.params_given(sample), dist.logp(sample)

    @tf.function(
        input_signature=[inputs_spec, tf.TensorSpec([None, floors.PARTS], tf.int64)],
        autograph=False,
    )
    def logp(inputs: Any, actions: Any) -> Any:
        return dist_class(inputs, model).logp(actions)

    for batch in (1, 1024):
        inputs = tf.random.normal([batch, layout.size])
        sample, params, expected = draw(inputs)
        np.testing.assert_allclose(logp(inputs, sample), expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            dist_class(inputs, model).params_given(sample), params, rtol=1e-4, atol=1e-4
        )
        np.testing.assert_allclose(scored(inputs, sample), expected, rtol=1e-4, atol=1e-4)
        yield Case(
            "draw 6 of 5, params and logp",
            lambda a=inputs: ours(a),
            lambda a=inputs: draw(a),
            1.3,
            str(batch),
        )
        mine = lambda a=inputs, b=sample: logp(a, b)  # noqa: E731
        budget = 1.3 if batch > 1 else None
        yield Case(
            "logp of stored 6 of 5",
            mine,
            lambda a=inputs, b=sample: scored(a, b),
            budget,
            str(batch),
        )


def run() -> list[Result]:
    """Print TensorFlow's autoregressive actions."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(0)
    return report(cases())
