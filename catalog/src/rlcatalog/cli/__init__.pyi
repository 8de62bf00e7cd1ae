from .app import OWN_COMMANDS as OWN_COMMANDS, main as main, make_app as make_app
from .arguments import key_values as key_values, make_env as make_env
from .json_lines import json_line as json_line
from .run_records import is_held as is_held, read_record as read_record, recorded as recorded
from .runs import (
    default_folder as default_folder,
    import_modules as import_modules,
    read_config as read_config,
    refuse_taken as refuse_taken,
    run_folder as run_folder,
    write_config as write_config,
)
