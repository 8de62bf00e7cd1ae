from .app import main as main, open_env as open_env
from .isolation import (
    describe_exit as describe_exit,
    print_answer as print_answer,
    print_json as print_json,
    redirect_stdout as redirect_stdout,
)
from .options import (
    AS_JSON as AS_JSON,
    FRAMEWORKS as FRAMEWORKS,
    FrameworkName as FrameworkName,
    ModelKeys as ModelKeys,
    Modules as Modules,
    key_values as key_values,
)
from .progress import show_items as show_items, show_progress as show_progress
