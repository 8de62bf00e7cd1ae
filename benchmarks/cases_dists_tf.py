"""Action distributions in TensorFlow, traced: what `cases_dists` measures in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

import rlcatalog
from benchmarks import floors, floors_dists
from benchmarks.cases_dists import HIGH, LOW, MASKED, RAGGED, SPACES, some_mask
from benchmarks.harness import Case, Result, report

Run = Callable[..., Any]


def traced_floors() -> dict[str, Run]:
    """Return the same by hand, by name."""
    return {
        "Categorical(18)": floors.tf_categorical(18),
        "MultiCategorical(10 of 5)": floors_dists.tf_multi_categorical(),
        f"MultiCategorical{RAGGED}": floors_dists.tf_ragged(RAGGED),
        "SquashedGaussian(8)": floors_dists.tf_squashed_gaussian(LOW, HIGH),
        "Bernoulli(12)": floors_dists.tf_bernoulli(),
        "Beta(4)": floors_dists.tf_beta(LOW[:4], HIGH[:4]),
        "nested composite": floors_dists.tf_nested(),
    }


def ours(dist_class: Any, size: int, mask_width: int | None = None) -> Run:
    """Return what is measured of a distribution, traced: of inputs, other inputs and, with a width,
    a mask.
    """
    signature = [tf.TensorSpec([None, size], tf.float32)] * 2
    if mask_width is not None:
        signature.append(tf.TensorSpec([None, mask_width], tf.bool))
    exact = dist_class.entropy_kind == "exact"

    @tf.function(input_signature=signature, autograph=False)
    def run(inputs: Any, other: Any, *mask: Any) -> Any:
        dist = dist_class(dist_class.masked(inputs, *mask) if mask else inputs)
        sample = dist.sample()
        if not exact:
            return sample, dist.logp(sample), dist.kl(dist_class(other))
        return sample, dist.logp(sample), dist.entropy(), dist.kl(dist_class(other))

    return run


def check(dist_class: Any, mine: Run, floor: Run, inputs: Any, other: Any) -> None:
    """Raise unless a floor and a distribution agree on the samples of both, which have the same
    form.
    """
    sample, *theirs = floor(inputs, other)
    own, logp, *found = mine(inputs, other)
    dist = dist_class(inputs)
    pairs = [
        (dist.logp(sample), theirs[0]),
        (dist.logp(own), logp),
        *zip(found, theirs[1:], strict=True),
    ]
    for value, expected in pairs:
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)
    forms = [tf.nest.map_structure(lambda x: (x.shape, x.dtype), value) for value in (sample, own)]
    assert str(forms[0]) == str(forms[1]), forms


def cases() -> Iterator[Case]:
    """Every distribution against its floor; with a mask, against the floor without one."""
    catalog = rlcatalog.default_catalog()
    by_hand = traced_floors()
    made = {name: catalog.action_dist(*pair, framework="tf") for name, pair in SPACES.items()}
    runs = {name: ours(*pair) for name, pair in made.items()}
    masked = {name: ours(*made[name], len(columns)) for name, (_, columns, _) in MASKED.items()}
    for batch in (1, 1024):
        for name, (dist_class, size) in made.items():
            inputs, other = tf.random.normal([batch, size]), tf.random.normal([batch, size])
            check(dist_class, runs[name], by_hand[name], inputs, other)
            theirs = lambda f=by_hand[name], a=inputs, b=other: f(a, b)  # noqa: E731
            mine = lambda f=runs[name], a=inputs, b=other: f(a, b)  # noqa: E731
            yield Case(f"{name}, TensorFlow", mine, theirs, 1.3, str(batch))
            if name in MASKED:
                mask, allowed = map(tf.constant, some_mask(name, batch))
                baked = dist_class.masked(inputs, mask)
                np.testing.assert_array_equal(baked, tf.where(allowed, inputs, tf.float32.min))
                stored = dist_class.masked(other, mask)  # of stored inputs, so baked in already
                mine = lambda f=masked[name], a=inputs, b=stored, m=mask: f(a, b, m)  # noqa: E731
                yield Case(
                    f"{name}, masked, TensorFlow, to the floor unmasked",
                    mine,
                    theirs,
                    1.6,
                    str(batch),
                )


def run() -> list[Result]:
    """Print TensorFlow's distributions."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(0)
    return report(cases())
