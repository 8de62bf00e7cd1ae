"""Autoregressive actions in PyTorch: drawing six parts, and scoring stored ones in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from gymnasium import spaces

import rlcatalog
from benchmarks import floors_autoregressive as floors
from benchmarks.harness import Case, Result, report

ACTION = spaces.MultiDiscrete([floors.VALUES] * floors.PARTS)
CONFIG = {"use_autoregressive": True, "autoregressive_hiddens": [floors.UNITS]}


def policy(framework: str) -> Any:
    """Return a policy whose parts depend on one another from the start."""
    made = rlcatalog.build(spaces.Box(-1, 1, (4,)), ACTION, CONFIG, framework)
    weights = made.model.get_weights()
    made.model.set_weights({**weights, "conditionals.params": 50 * weights["conditionals.params"]})
    return made


def cases() -> Iterator[Case]:
    """Drawing and scoring, at batch 1 and 1,024."""
    made = policy("torch")
    model, dist_class = made.model, made.dist_class
    weights = (model.conditionals.actions.detach(), model.conditionals.params.detach())
    first, last = model.conditionals.first, model.conditionals.last
    draw, scored = floors.torch_sample(*weights), floors.torch_pass(*weights, first, last)
    bare = floors.torch_pass(*weights, first, last, score=False)

    def ours(inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        dist = dist_class(inputs, model)
        sample = dist.sample()
        return sample, dist.params_given(sample), dist.logp(sample)

    for batch in (1, 1024):
        inputs = torch.randn(batch, dist_class.options["layout"].size)
        sample, params, logp = draw(inputs)
        torch.testing.assert_close(
            dist_class(inputs, model).logp(sample), logp, rtol=1e-4, atol=1e-4
        )
        torch.testing.assert_close(
            dist_class(inputs, model).params_given(sample), params, rtol=1e-4, atol=1e-4
        )
        torch.testing.assert_close(scored(inputs, sample), logp, rtol=1e-4, atol=1e-4)
        yield Case(
            "draw 6 of 5, params and logp",
            lambda a=inputs: ours(a),
            lambda a=inputs: draw(a),
            1.3,
            str(batch),
        )
        mine = lambda a=inputs, b=sample: dist_class(a, model).logp(b)  # noqa: E731
        budget = 1.3 if batch > 1 else None
        yield Case(
            "logp of stored 6 of 5",
            mine,
            lambda a=inputs, b=sample: scored(a, b),
            budget,
            str(batch),
        )
        yield Case(
            "logp, to the pass alone", mine, lambda a=inputs, b=sample: bare(a, b), None, str(batch)
        )


def run() -> list[Result]:
    """Print PyTorch's autoregressive actions."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.no_grad():
        return report(cases())
