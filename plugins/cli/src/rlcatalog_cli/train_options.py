"""Options that all commands that train have, each written once: annotations for their parameters, `None` by default."""

from __future__ import annotations

from typing import Annotated

import typer

EnvId = Annotated[str | None, typer.Argument(metavar="ENV_ID", help="A Gymnasium environment, such as CartPole-v1.")]
ModelKeys = Annotated[
    list[str] | None, typer.Option("--model", metavar="KEY=VALUE", help="A key of the model config; repeatable.")
]
Steps = Annotated[int | None, typer.Option(min=1, help="Environment steps to train for; 100,000 when missing.")]
Seed = Annotated[
    int | None, typer.Option(min=0, max=2**32 - 1, help="Of environments, weights and sampling; 0 when missing.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run that the folder holds.")]
Modules = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="Import a module that registers environments; repeatable."),
]
CheckpointEvery = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="STEPS", help="Steps between checkpoints; a tenth of --steps when missing, 0: at the end."
    ),
]
KeepCheckpoints = Annotated[int | None, typer.Option(min=1, help="How many stay; 2 when missing.")]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Threads; small networks are fastest with one.")]
