"""What an engine is to `rlcatalog train`: a class that its package declares with an `EngineSpec`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rlcatalog import Policy
from rlcatalog.config import plain
from rlcatalog.errors import SavedPolicyError, shown
from rlcatalog_runs.plans import RunOptions, RunPlan

if TYPE_CHECKING:
    from rlcatalog_runs.session import Session

#: The engine of `rlcatalog train` where none is named.
DEFAULT_ENGINE = "ppo"


class Engine:
    """What trains one run. Making it builds all that is needed, anew or from the plan's checkpoint.

    No folder is there yet when it is made: what cannot be trained is refused before anything is written.

    Class attributes:
        options: The options it takes: a field named as an option of `rlcatalog train` takes that one, and any other
            adds an option of its own: `Annotated[int, Meta(description="…", extra={"metavar": "N"})]`. Of a
            `"PATH"`, each of several seeds gets a folder of its own.
        algorithms: What `--algo` names, the default first.
        checkpoint: What lies in each of its checkpoints.
        packages: Modules whose versions the record of a run holds, where they are imported.
        fixed: Options that a resumed run keeps as it began with them.
        reserved: Keys that `--set` does not take → the option that sets them.
        not_restored: What a resumed run begins anew, as a sentence for the user; empty: nothing.
        trusts_checkpoints: Whether reading a checkpoint runs what its writer put in it, as a pickle does. A folder is
            not trusted: `--resume` then asks for `--engine`, too.
        ends_at_once: Whether Ctrl-C may raise `Interrupted` anywhere within `learn`; otherwise the engine asks
            `session.interrupts`.

    Args:
        plan: The run.

    Raises:
        CatalogError: The run cannot be trained.
    """

    options: ClassVar[type[RunOptions]] = RunOptions
    algorithms: ClassVar[tuple[str, ...]] = ()
    checkpoint: ClassVar[str] = "policy"
    packages: ClassVar[tuple[str, ...]] = ()
    fixed: ClassVar[frozenset[str]] = frozenset({"settings"})
    reserved: ClassVar[Mapping[str, str]] = {}
    not_restored: ClassVar[str] = ""
    trusts_checkpoints: ClassVar[bool] = False
    ends_at_once: ClassVar[bool] = False

    def __init__(self, plan: RunPlan) -> None:
        if plan.algorithm not in (self.algorithms or (plan.algorithm,)):
            raise SavedPolicyError(f"{plan.folder}: a run of {shown(plan.algorithm)}, which its engine has not.")
        self.plan = plan

    @classmethod
    def check(cls, plan: RunPlan) -> None:
        """Raise where a plan is wrong, without building anything: before there are runs of several seeds."""

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        raise NotImplementedError

    def describe(self) -> Mapping[str, Any]:
        """Return what the run's `config.json` says: `algorithm`, with its `name` and `seed`, and `describe_policy`."""
        raise NotImplementedError

    def prepare_folder(self, folder: Path) -> None:
        """Change what the folder holds before the run is written into it: remove what another run has left."""

    def learn(self, session: Session) -> None:
        """Train until `session.options.steps`, or until `session.stopping` says why to end.

        Report each row of metrics with `session.report`, and write checkpoints with `session.save_checkpoint`, the
        last one at the end.

        Args:
            session: The run in progress.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close environments and processes."""


def describe_policy(policy: Policy) -> dict[str, Any]:
    """Return what a run's `config.json` says of its policy."""
    choices = policy.resolution.choices.items()
    parts = {slot: choice.component.name for slot, choice in choices if choice.component is not None}
    return {"framework": policy.framework, "model": plain(policy.config), "parts": parts}
