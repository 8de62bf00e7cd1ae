"""For the tests of others: a catalog of just the plugins one names, and whether engines agree on what a policy says."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.catalog import Catalog
from rlcatalog.policy import Policy
from rlcatalog.structures import parts_of

Array = np.ndarray[Any, Any]


class _Metadata(dict[str, str]):
    """The part of a distribution's metadata that discovery reads."""

    requires: Sequence[str] = ()

    def get_all(self, name: str) -> list[str] | None:
        return list(self.requires) if name == "Requires-Dist" else None


class _Distribution:
    def __init__(self, name: str, version: str, requires: Sequence[str]) -> None:
        self.name = name
        self.metadata = _Metadata(Name=name, Version=version)
        self.metadata.requires = requires


class PluginEntryPoint:
    """Stands for the entry point of an installed plugin.

    Args:
        plugin: The plugin's module, its import path, or any object with hook methods.
        distribution: Name of the distribution it pretends to come from.
        name: Entry-point name; the distribution's when missing.
        version: The distribution's version.
        requires: Its `Requires-Dist` lines.
    """

    def __init__(
        self,
        plugin: ModuleType | str | object,
        distribution: str,
        *,
        name: str | None = None,
        version: str = "1.0",
        requires: Sequence[str] = (),
    ) -> None:
        self._plugin = plugin
        self.name = name or distribution
        self.value = plugin if isinstance(plugin, str) else getattr(plugin, "__name__", type(plugin).__name__)
        self.dist = _Distribution(distribution, version, requires)

    def load(self) -> Any:
        """Import the plugin."""
        return importlib.import_module(self._plugin) if isinstance(self._plugin, str) else self._plugin


def isolated_catalog(
    *plugins: PluginEntryPoint | str, environ: Mapping[str, str] | None = None, prefer: Sequence[str] = ()
) -> Catalog:
    """Return a catalog with exactly these plugins.

    Args:
        *plugins: Entry points, or names of installed distributions.
        environ: Environment variables; none when missing.
        prefer: Distributions that win a tie.
    """
    from rlcatalog.discovery import normalize, scan

    installed = {normalize(entry_point.dist.name): entry_point for entry_point in scan()}
    found = [installed[normalize(plugin)] if isinstance(plugin, str) else plugin for plugin in plugins]
    return Catalog(found, environ=environ or {}, prefer=prefer)


class Outputs(NamedTuple):
    """What an engine says of a batch of observations, NumPy.

    Attributes:
        action: The most likely actions, as the environment takes them.
        logp: Log density `[B]` of given raw actions.
        entropy: Entropy `[B]`.
        value: Value estimates `[B]`.
    """

    action: Any
    logp: Array
    entropy: Array
    value: Array


#: `outputs(observations, raw_actions)`: what an engine says, by its own code, of the environment's observations.
Engine = Callable[[Any, Array], Outputs]


def outputs_of(policy: Policy) -> Engine:
    """Return a policy without memory as an engine."""

    def run(observations: Any, raw_actions: Array) -> Outputs:
        mask = policy.action_mask(observations)
        batch = {"obs": policy.preprocess(observations), "raw_action": raw_actions}
        found = policy.evaluate(batch if mask is None else {**batch, "mask": mask})
        action = policy.act(observations, explore=False).action
        return Outputs(action, *map(_array, (found.logp, found.entropy, found.value)))

    return run


def check_same_outputs(
    reference: Policy,
    engines: Mapping[str, tuple[Policy, Engine]],
    observations: Any,
    *,
    tolerance: float = 1e-5,
) -> None:
    """Check that engines say the same of the same observations, once they have the same weights.

    Args:
        reference: A policy; its weights are copied into the engines' policies, and its actions are scored.
        engines: Name → the policy that the engine acts with, and the engine.
        observations: A vector environment's batch of observations.
        tolerance: How far numbers may be apart, absolutely and relatively.

    Raises:
        AssertionError: An engine says something else; the message names it and what differs.
    """
    raw_actions = reference.act(observations).raw_action
    expected = outputs_of(reference)(observations, raw_actions)
    for name, (policy, run) in engines.items():
        policy.model.set_weights(reference.model.get_weights())
        for what, mine, theirs in zip(Outputs._fields, expected, run(observations, raw_actions), strict=True):
            for here, there in zip(parts_of(mine) or [mine], parts_of(theirs) or [theirs], strict=True):
                np.testing.assert_allclose(
                    np.asarray(there, np.float64), np.asarray(here, np.float64), rtol=tolerance, atol=tolerance,
                    err_msg=f"{name}: its {what} differs from the reference's",
                )  # fmt: skip


def _array(tensor: Any) -> Array:
    return np.asarray(tensor.detach().cpu() if hasattr(tensor, "detach") else tensor)
