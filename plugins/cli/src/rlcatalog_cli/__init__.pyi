from .app import main as main
from .arguments import key_values as key_values
from .explaining import open_env as open_env
from .isolation import aside as aside, print_answer as print_answer, print_json as print_json
from .options import AS_JSON as AS_JSON, ModelKeys as ModelKeys, Modules as Modules
from .printing import print_summary as print_summary
from .progress import Display as Display
