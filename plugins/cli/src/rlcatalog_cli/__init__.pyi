from .app import main as main, open_env as open_env
from .config_files import FileConfig as FileConfig, read_config_file as read_config_file
from .imports import import_modules as import_modules
from .isolation import (
    describe_exit as describe_exit,
    print_answer as print_answer,
    print_json as print_json,
    redirect_stdout as redirect_stdout,
)
from .options import (
    AS_JSON as AS_JSON,
    FRAMEWORKS as FRAMEWORKS,
    ConfigFile as ConfigFile,
    FrameworkName as FrameworkName,
    ModelKeys as ModelKeys,
    Modules as Modules,
    key_values as key_values,
    model_config as model_config,
)
from .progress import (
    ProgressDisplay as ProgressDisplay,
    show_items as show_items,
    show_progress as show_progress,
)
from .sheets import print_sheet as print_sheet
