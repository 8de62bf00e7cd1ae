from .checkpoints import (
    CHECKPOINTS as CHECKPOINTS,
    checkpoint_name as checkpoint_name,
    new_checkpoint as new_checkpoint,
    newest_checkpoint as newest_checkpoint,
    prune_checkpoints as prune_checkpoints,
)
from .comparison import draw as draw
from .engines import (
    Engine as Engine,
    RunOptions as RunOptions,
    RunPlan as RunPlan,
    describe_policy as describe_policy,
)
from .folders import (
    default_folder as default_folder,
    policy_of as policy_of,
    read_config as read_config,
    refuse_imports as refuse_imports,
    refuse_taken as refuse_taken,
    run_folder as run_folder,
    write_config as write_config,
)
from .interrupts import (
    Interrupted as Interrupted,
    Interrupts as Interrupts,
    interruptible as interruptible,
)
from .records import json_line as json_line, record_run as record_run
from .seeds import (
    SeedStream as SeedStream,
    derive_env_seeds as derive_env_seeds,
    derive_seed as derive_seed,
)
from .session import Session as Session
from .summaries import read_rows as read_rows
