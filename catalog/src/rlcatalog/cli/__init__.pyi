from .app import OWN_COMMANDS as OWN_COMMANDS, main as main, make_app as make_app
from .arguments import key_values as key_values, make_env as make_env
from .interrupts import Interrupted as Interrupted, Interrupts as Interrupts, interruptible as interruptible
from .isolation import print_answer as print_answer
from .json_lines import json_line as json_line
from .resuming import (
    KeptRun as KeptRun,
    Resumed as Resumed,
    new_run as new_run,
    refuse_fixed as refuse_fixed,
    refuse_other as refuse_other,
    resumed_run as resumed_run,
)
from .rows import MOST_ROWS as MOST_ROWS, cut_rows as cut_rows
from .run_checkpoints import (
    CHECKPOINTS as CHECKPOINTS,
    checkpoint_name as checkpoint_name,
    checkpoint_steps as checkpoint_steps,
    checkpoints_of as checkpoints_of,
    new_checkpoint as new_checkpoint,
    newest_checkpoint as newest_checkpoint,
    prune_checkpoints as prune_checkpoints,
    run_of as run_of,
)
from .run_records import is_held as is_held, read_record as read_record, recorded as recorded
from .runs import (
    default_folder as default_folder,
    import_modules as import_modules,
    policy_of as policy_of,
    read_config as read_config,
    refuse_imports as refuse_imports,
    refuse_taken as refuse_taken,
    run_folder as run_folder,
    write_config as write_config,
)
from .train_options import (
    CheckpointEvery as CheckpointEvery,
    EnvId as EnvId,
    KeepCheckpoints as KeepCheckpoints,
    ModelKeys as ModelKeys,
    Modules as Modules,
    Overwrite as Overwrite,
    Seed as Seed,
    Steps as Steps,
    Threads as Threads,
)
