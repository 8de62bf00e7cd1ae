"""Planted faults: plugins' parts that each break one line of a contract.

A fault makes the class of one part from a sound one. `catalog_of` returns a catalog with the
installed plugins and the faulty part, as a distribution of its own would bring it; `use` does with
it what a program does up to its first training step. Parts that train without an error and are
wrong stand in `planted_mutants.py`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import spaces
from planted_parts import CODECS, DISTS, FILTERS, HEADS, MEMORIES, MODELS, Broken

import rlcatalog
from rlcatalog import (
    ActionDistSpec,
    Catalog,
    FilterSpec,
    Match,
    ModelSpec,
    PreprocessorSpec,
    Rank,
)
from rlcatalog.plugins.discovery import scan
from rlcatalog_policy import load
from rlcatalog_testing import PluginEntryPoint, plugin_of

#: What brings the faulty parts, and the module their targets are in.
DISTRIBUTION, VERSION, NAME, MODULE = "acme-planted", "2.5", "acme_planted", "acme_planted_parts"

OBSERVED = spaces.Box(-1, 1, (2, 2), np.float32)
VECTOR = spaces.Box(-1, 1, (4,), np.float32)
SMALL = {"fcnet_hiddens": [4]}
BOTH = ("torch", "tf")


@dataclass(frozen=True)
class Fault:
    """One line of a contract, broken.

    Attributes:
        name: What is wrong.
        kind: `"model"`, `"memory"`, `"head"`, `"action_dist"`, `"preprocessor"` or `"filter"`.
        make: Makes the class, of the sound class of a framework.
        says: A regular expression that the error's text matches.
        action: The action space.
        config: Keys of the model config, beside those that name the part.
        frameworks: Where it can be made.
        declared: What else the declaration holds.
        obs: The observation space.
        check: When observations are checked.
    """

    name: str
    kind: str
    make: Broken
    says: str = ""
    action: spaces.Space[Any] = field(default_factory=lambda: spaces.Discrete(2))
    config: Mapping[str, Any] = field(default_factory=dict)
    frameworks: tuple[str, ...] = BOTH
    declared: Mapping[str, Any] = field(default_factory=dict)
    obs: spaces.Space[Any] = field(default_factory=lambda: VECTOR)
    check: str = "first"

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


def sound(kind: str, framework: str) -> Any:
    """Return the sound class that faults of a kind are made of."""
    import planted_parts

    if kind in ("preprocessor", "filter"):
        return {"preprocessor": planted_parts.Codec, "filter": planted_parts.Halving}[kind]
    return planted_parts.sound(kind, framework)


def spec_of(fault: Fault, framework: str) -> tuple[str, Any]:
    """Return the hook and the declaration of a faulty part."""
    target = f"{MODULE}:Planted"
    if fault.kind in ("model", "memory", "head"):
        slot = "trunk" if fault.kind == "model" else fault.kind
        match = None if slot == "trunk" else (lambda request: Match(Rank.SPECIFIC, "planted"))
        return "rlcatalog_models", ModelSpec(
            NAME, {framework: target}, "", match=match, slot=slot, **fault.declared
        )
    if fault.kind == "action_dist":
        given: dict[str, Any] = {"size": _size, **fault.declared}
        return "rlcatalog_action_dists", ActionDistSpec(NAME, {framework: target}, "", **given)
    if fault.kind == "filter":
        return "rlcatalog_filters", FilterSpec(NAME, {"numpy": target}, "", **fault.declared)

    def match_matrix(request: Any) -> Match:
        fits = request.obs.shape == OBSERVED.shape
        return Match(Rank.SPECIFIC, "a matrix") if fits else Match(None, "for matrices")

    return "rlcatalog_preprocessors", PreprocessorSpec(
        NAME, {"numpy": target}, "", match=match_matrix, kinds=("box",)
    )


def _size(action: Any, config: Any) -> int:
    return int(action.n) if action.kind == "discrete" else 2 * int(np.prod(action.shape))


def catalog_of(fault: Fault, framework: str) -> Catalog:
    """Return a catalog with the faulty part; it replaces the part of the fault before."""
    home = ModuleType(MODULE)
    made = fault.make(sound(fault.kind, framework))
    if isinstance(made, type) and made is not dict:
        made.__name__ = made.__qualname__ = "Planted"
    home.Planted = made  # type: ignore[attr-defined]
    sys.modules[MODULE] = home
    hook, spec = spec_of(fault, framework)
    point = PluginEntryPoint(plugin_of(**{hook: [spec]}), DISTRIBUTION, version=VERSION)
    return Catalog(
        [*scan(), point], environ={"RLCATALOG_STRICT_PLUGINS": "1"}, prefer=(DISTRIBUTION,)
    )


def config_of(fault: Fault) -> dict[str, Any]:
    """Return the config that the faulty part is chosen by."""
    naming = {
        "model": "custom_model",
        "action_dist": "custom_action_dist",
        "filter": "observation_filter",
    }
    named = {naming[fault.kind]: NAME} if fault.kind in naming else {}
    own = {} if fault.kind == "model" else SMALL
    return {**own, **named, **fault.config}


def use(catalog: Catalog, fault: Fault, framework: str) -> None:
    """Build a policy, act, score what was done, save and load: what any program does."""
    policy = rlcatalog.build(fault.obs, fault.action, config_of(fault), framework, catalog=catalog)
    policy.preprocessor.set_check(fault.check)
    fault.obs.seed(0)
    obs = [fault.obs.sample() for _ in range(3)]
    step = policy.act(obs)
    policy.act(obs, step.state, explore=False)
    encoded = policy.preprocess(obs, update=True)
    if policy.has_value:
        policy.values(encoded, step.state)
    batch = {"obs": encoded, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    found = policy.evaluate(batch)
    assert tuple(found.logp.shape) == (3,)
    if fault.kind == "filter":
        with tempfile.TemporaryDirectory() as folder:
            policy.save(folder)
            load(folder, catalog=catalog)


def _faults(kind: str, table: Mapping[str, tuple[Any, ...]]) -> list[Fault]:
    return [
        Fault(name, kind, make, says, **dict(*more)) for name, (make, says, *more) in table.items()
    ]


FAULTS = [
    *_faults("model", MODELS),
    *_faults("memory", MEMORIES),
    *_faults("head", HEADS),
    *_faults("action_dist", DISTS),
    *_faults(
        "preprocessor",
        {
            name: (make, says, {"obs": OBSERVED, **dict(*more)})
            for name, (make, says, *more) in CODECS.items()
        },
    ),
    *_faults("filter", FILTERS),
]
