"""Learner that improves a policy on a rollout; `torch.py` and `tf.py` each define an optimiser
step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rlcatalog import Policy, frameworks
from rlcatalog.errors import ConfigError, ModelContractError, NonFiniteError, NotServedError
from rlcatalog.spaces import map_tensors
from rlcatalog_ppo.config import OnPolicyConfig
from rlcatalog_ppo.loss import PPO_OBJECTIVE, Objective, Rates

Array = np.ndarray[Any, Any]

#: Metrics of one PPO optimiser step, in the order in which steps return them.
FIGURES = PPO_OBJECTIVE.figures


class Optimizer(frameworks.Learner, Protocol):
    """Protocol for a framework's optimiser steps, in addition to its `Learner`.

    Attributes:
        objective: The objective to minimise.
    """

    objective: Objective

    def step(
        self, batch: Mapping[str, Any], rates: Rates, *, check: bool = True, measure: bool = True
    ) -> tuple[Any, dict[str, Any]]:
        """Improve the weights on a minibatch; return the objective's and the model's metrics.

        Args:
            batch: The minibatch.
            rates: Learning rate, and other coefficients that change between updates.
            check: Whether to check the minibatch first; not needed if its rows were checked before.
            measure: Whether to return metrics. If False, None and an empty dict may be returned.

        Raises:
            NonFiniteError: The loss or its gradient is not finite; the weights do not change.
        """


def set_threads(framework: str | None, count: int) -> None:
    """Set a framework's number of threads per operation; call this before the first operation."""
    name = (
        frameworks.default_framework()
        if framework is None
        else frameworks.framework_name(framework)
    )
    learner_of(name).set_threads(count)


def learner_of(framework: str) -> type[frameworks.Learner]:
    """Return the class of a framework's learner.

    Raises:
        NotServedError: The framework has no learner.
    """
    learner: type[frameworks.Learner] = frameworks.frameworks()[framework].load(
        "learner", "rlcatalog-ppo"
    )
    return learner


def optimizer_of(framework: str) -> Any:
    """Return a framework's class for optimiser steps, which is an `Optimizer`.

    Raises:
        NotServedError: The framework has no class for optimiser steps.
    """
    return frameworks.frameworks()[framework].load("ppo", "rlcatalog-ppo")


def check_policy(
    policy: Policy, spaces: tuple[Any, Any], algorithm: str, needs_values: bool
) -> None:
    """Raise an error unless an algorithm can train the policy in an environment.

    Args:
        policy: The policy.
        spaces: The environment's observation and action spaces.
        algorithm: The algorithm's name.
        needs_values: Whether the algorithm learns from value estimates.

    Raises:
        ConfigError: The policy was built for different spaces.
        NotServedError: The model has no value branch, or the actions have no density.
    """
    for name, space in zip(("observation_space", "action_space"), spaces, strict=True):
        if getattr(policy, name) != space:
            raise ConfigError(
                f"policy: its {name} is {getattr(policy, name)}, but the environment has {space}."
            )
    if needs_values and not policy.has_value:
        raise NotServedError(
            f"{algorithm} needs a value estimate; {policy.model_name} has no value_function()."
        )
    for part in policy.resolution.dists.walk():
        dist_class = part.component.load(policy.framework)
        if not getattr(dist_class, "has_density", True):
            raise NotServedError(
                f"{part.info.path}: {algorithm} learns from the density of actions, but"
                f" {dist_class.__name__} has none (has_density is False), so this part of the"
                " policy would never change. Expected a distribution with a density; remove"
                " custom_action_dist from the model config, or set a different one there."
            )


class Learner:
    """Learner that improves a policy's weights.

    By default, it takes one step on each complete rollout. If the config has `num_epochs` and
    `minibatch_size`, it makes several passes over the rollout in minibatches.

    Args:
        policy: The policy.
        config: The algorithm's config.
        rng: Random generator that shuffles the minibatches.
        optimizer: Takes the optimiser steps.

    Attributes:
        kl_coeff: Weight of the divergence from the collecting policy.
    """

    def __init__(
        self, policy: Policy, config: OnPolicyConfig, rng: np.random.Generator, optimizer: Optimizer
    ) -> None:
        self.policy, self.rng, self.optimizer = policy, rng, optimizer
        self.config: Any = config
        self.kl_coeff: float = getattr(config, "kl_coeff", 0.0)
        self._trained = _count_trained(policy)

    def update(
        self, batch: Mapping[str, Any], lr: float, clip_param: float | None = None
    ) -> dict[str, Any]:
        """Improve the weights on a batch.

        Args:
            batch: A batch from `Rollout.batch`, which includes `dist_inputs` if a divergence is
                needed.
            lr: Learning rate.
            clip_param: Largest deviation of the probability ratio from 1. If None, the config's.

        Returns:
            Means of the objective's metrics over the last pass, the learning rate, and the model's
            metrics under `model`.

        Raises:
            ConfigError: Weights were frozen or unfrozen after the optimizer was created.
            NonFiniteError: A loss or its gradient is not finite; the weights stay as they were
                after the previous step.
        """
        if (count := _count_trained(self.policy)) != self._trained:
            name = self.config.algorithm
            raise ConfigError(
                f"{name}: its optimizer has {self._trained} weights, but now {count} are"
                f" trainable. Create a new one for the same policy: {name}(env, config,"
                " policy=algo.policy)."
            )
        figures: list[Any] = []
        metrics: dict[str, Any] = {}
        rates = Rates(lr, self.kl_coeff, clip_param)
        passes = list(self._passes(self.optimizer.placed(batch)))
        for i, minibatches_of_pass in enumerate(passes):
            is_first, is_last = i == 0, i == len(passes) - 1
            figures = []
            for minibatch in minibatches_of_pass:
                measured, metrics = self.optimizer.step(
                    minibatch, rates, check=is_first, measure=is_last
                )
                for operation in self.policy.model.update_ops():
                    if not callable(operation):
                        raise ModelContractError(
                            "update_ops() must return callables, which run once per optimiser"
                            f" step; found {operation!r}."
                        )
                    operation()
                figures.append(measured)
        means = self.optimizer.means(figures)
        model = {
            name: float(value.detach() if hasattr(value, "detach") else value)
            for name, value in metrics.items()
        }
        named = dict(zip(self.optimizer.objective.figures, means, strict=True))
        scheduled = {} if clip_param is None else {"clip_param": clip_param}
        return {**named, **self._adapted(means), "lr": lr, "model": model, **scheduled}

    def _passes(self, batch: Mapping[str, Any]) -> Iterator[Iterable[Mapping[str, Any]]]:
        """Yield each pass over a batch as minibatches."""
        if not hasattr(self.config, "minibatch_size"):
            yield [batch]
            return
        for _ in range(self.config.num_epochs):
            yield minibatches(batch, self.config.minibatch_size, self.rng, self.optimizer.rows)

    def get_state(self) -> dict[str, Any]:
        """Return the state that changes between updates, except the weights, for
        `trees.take_apart`.
        """
        return {"kl_coeff": self.kl_coeff, "optimizer": self.optimizer.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        self.kl_coeff = state["kl_coeff"]
        self.optimizer.set_state(state["optimizer"])

    def _adapted(self, means: list[float]) -> dict[str, float]:
        """Adapt the divergence's weight (Schulman et al. 2017, section 4), and return the previous
        weight.
        """
        used = self.kl_coeff
        if not used:
            return {}
        kl = means[FIGURES.index("kl")]
        if kl > 1.5 * self.config.kl_target:
            self.kl_coeff = used * 2.0
        elif kl < self.config.kl_target / 1.5:
            self.kl_coeff = used / 2.0
        return {"kl_coeff": used}


def _count_trained(policy: Policy) -> int:
    return len(getattr(policy.model, "trainable_variables", list)())


def array_rows(columns: Any, index: Array) -> Any:
    """Select rows by index from a structure of arrays."""
    return map_tensors(columns, lambda column: column[index])


def minibatches(
    batch: Mapping[str, Any],
    size: int,
    rng: np.random.Generator,
    take: Callable[[Any, Array], Any] = array_rows,
) -> Iterator[dict[str, Any]]:
    """Yield a batch in shuffled minibatches of about `size` rows, without splitting sequences.

    Minibatches with a single row are skipped, because their advantage cannot be normalised.

    Args:
        batch: The batch.
        size: Rows per part.
        rng: Generator for shuffling.
        take: Function that returns the rows at given indices from a structure of columns.
    """
    rows = {name: array for name, array in batch.items() if name not in ("seq_lens", "state")}
    if (lengths := batch.get("seq_lens")) is None:
        order = rng.permutation(len(batch["logp"]))
        for start in range(0, len(order), size):
            index = order[start : start + size]
            if len(index) > 1:
                yield take(rows, index)
        return
    order, firsts = rng.permutation(len(lengths)), np.cumsum(lengths) - lengths
    groups = (np.cumsum(lengths[order]) - 1) // size
    for group in range(int(groups[-1]) + 1):
        chosen = order[groups == group]
        if lengths[chosen].sum() < 2:
            continue
        index = np.concatenate([np.arange(firsts[s], firsts[s] + lengths[s]) for s in chosen])
        state = list(take(tuple(batch["state"]), chosen))
        yield {**take(rows, index), "seq_lens": lengths[chosen], "state": state}


def not_finite(
    algorithm: str, objective: Objective, loss: float, figures: Sequence[float]
) -> NonFiniteError:
    """Return the error for a minibatch whose loss or gradient norm is not finite.

    Args:
        algorithm: The algorithm's name.
        objective: The objective.
        loss: The loss.
        figures: The objective's metrics.
    """
    shown = ", ".join(
        f"{name} {value:.6g}" for name, value in zip(objective.figures, figures, strict=True)
    )
    return NonFiniteError(
        f"{algorithm}: a minibatch has the loss {loss:.6g} and the gradient norm"
        f" {figures[-1]:.6g}; no step was taken, and the weights are the last good ones. This"
        f" minibatch: {shown}. Scale large rewards, lower lr, or set grad_clip."
    )
