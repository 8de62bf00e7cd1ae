"""`Task`: what is trained, with which settings, and what others published of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: What is set where a task says nothing else; everything else is the engine's default.
SETTINGS = {
    "lr": 3e-4,
    "gamma": 0.98,
    "gae": 0.95,
    "length": 64,
    "minibatch": 128,
    "epochs": 8,
    "envs": 8,
}
#: When the catalog's defaults changed last. Runs name it, so that they are not mistaken for kept
#: ones.
DEFAULTS = "2026-11-30"
#: Engine → the nets it is trained with.
NETS: Mapping[str, tuple[str, ...]] = {
    "sb3": ("own", "catalog"),
    "rllib": ("own", "catalog"),
    "ours": ("catalog",),
}
#: Algorithms that keep a replay buffer; their settings are Stable-Baselines3's keyword arguments.
OFF_POLICY = ("SAC", "TD3", "DQN")
#: Settings that describe one net → that net.
NET_OF = {
    "own": "own",
    "numbers": "numbers",
    "model": "catalog",
    "extractor": "catalog",
    "attention": "attention",
    "lstm": "lstm",
    "independent": "independent",
}
#: Nets of the engines themselves, on which the catalog's defaults have no effect.
OWN_NETS = ("own", "numbers")
#: Engine and net.
Side = tuple[str, str]
#: Engine → what its catalog's net is compared with, where a task says nothing else.
BASES: Mapping[str, Side] = {
    "sb3": ("sb3", "own"),
    "rllib": ("rllib", "own"),
    "ours": ("sb3", "own"),
}


def used_by(net: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's settings without those of its other nets."""
    return {name: value for name, value in settings.items() if NET_OF.get(name, net) == net}


class Published(NamedTuple):
    """A figure that others published of a task.

    Attributes:
        what: Who reached it with what, in how many steps.
        value: The mean return.
        source: Where it stands: an address.
    """

    what: str
    value: float
    source: str


@dataclass(frozen=True)
class Task:
    """What is trained.

    Attributes:
        make: Makes the environment.
        low: What is paid for acting at random.
        high: What is paid at best.
        steps: Engine → environment steps to train for; ours as many as Stable-Baselines3.
        settings: Hyperparameters of all engines, under the names of PPO's paper. `value` is the
            weight of the mean squared error of the value, `decay` names what falls linearly to 0,
            `scaled` what is normalised by running statistics. `own` and `model` are the two nets:
            keyword arguments of Stable-Baselines3's policy, and the catalog's model config.
        seeds: The same for seeds: ten or more where a run takes less than a minute, else five.
        claimed: Whether a claim is made.
        algorithm: The algorithm, as Stable-Baselines3 and sb3-contrib call it.
        nets: Engine → the nets it is trained with.
        views: `"engine"` or `"engine/net"` → makes the environment as these see it, instead of
            `make`.
        needs: Packages of requirements/compare.txt.
        kept_defaults: Whether the catalog's nets are trained with the defaults of the time when the
            task's results were kept, and not with those of today.
        cost: CPU seconds that a run is expected to take; kept runs know better.
        source: Where the settings were published, and what differs.
        published: What others reached.
        compared: Pairs of sides whose returns are compared; empty for each net of the catalog, with
            what `BASES` names.
        about: What the task needs, and how other libraries do it.
    """

    make: Callable[[], Any]
    low: float
    high: float
    steps: dict[str, int]
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=lambda: {"sb3": 10, "rllib": 10})
    claimed: bool = True
    algorithm: str = "PPO"
    nets: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NETS)
    views: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    kept_defaults: bool = False
    cost: float = 60.0
    source: str = ""
    published: tuple[Published, ...] = ()
    compared: tuple[tuple[Side, Side], ...] = ()
    about: str = ""

    @property
    def pairs(self) -> tuple[tuple[Side, Side], ...]:
        """What is compared: a net of the catalog, and its baseline."""
        if self.compared:
            return self.compared
        return tuple(
            ((engine, net), BASES[engine])
            for engine, nets in self.nets.items()
            for net in nets
            if net not in OWN_NETS
        )

    @property
    def given(self) -> dict[str, Any]:
        """All settings."""
        return self.settings if self.algorithm in OFF_POLICY else {**SETTINGS, **self.settings}

    @property
    def explores(self) -> bool:
        """Whether actions in training have noise added, which a trained policy plays without."""
        return self.algorithm in OFF_POLICY

    def steps_of(self, engine: str) -> int:
        """Return the steps of an engine."""
        return self.steps.get(engine, self.steps["sb3"])

    def seeds_of(self, engine: str) -> int:
        """Return the number of seeds of an engine."""
        return self.seeds.get(engine, self.seeds["sb3"])

    def maker(self, engine: str, net: str) -> Callable[[], Any]:
        """Return what makes the environment as an engine sees it with a net."""
        return self.views.get(f"{engine}/{net}") or self.views.get(engine) or self.make
