"""Messages of errors and warnings for `docs/reference/errors.md`: each is raised by the code in
`EXAMPLES`.

A line `---` separates what only prepares the example, which the page does not show.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import rlcatalog
from rlcatalog import errors

#: Most lines of a session on the page.
LINES = 12
#: Characters of a line that the site's text column shows without scrolling.
WIDTH = 90
#: Names that every example may use.
NAMES = {
    "gym": gym,
    "np": np,
    "spaces": spaces,
    "rlcatalog": rlcatalog,
    "__name__": "error_examples",
}
_KIT = "from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of\n"
_POLICY = 'policy = rlcatalog.build(env="CartPole-v1")\n---\n'
#: An environment whose methods fail, each in its way.
_ENV = """
class MyEnv(gym.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
"""
#: Class → code that raises it, or warns with it.
EXAMPLES = {
    "CatalogWarning": """
from rlcatalog_ppo import PPO
algo = PPO("CartPole-v1")
---
algo.stopping = "the target is reached"
algo.learn(1000)
""",
    "PluginWarning": f"""{_KIT}
broken = PluginEntryPoint("acme_net.plugin", "acme-net")
---
isolated_catalog("rlcatalog-fcnet", broken).registry
""",
    "UnreadKeysWarning": """rlcatalog.build(env="CartPole-v1", config={"conv_filters":"""
    """ "nature"})""",
    "ImageLayoutWarning": """
image = spaces.Box(0, 255, (4, 10, 12), np.uint8)
---
rlcatalog.build(image, spaces.Discrete(2), {"conv_flatten": True})
""",
    "OneHotWarning": """
rlcatalog.explain(spaces.Discrete(20_000), spaces.Discrete(2))
---
rlcatalog.build(spaces.Discrete(20_000), spaces.Discrete(2))
""",
    "ObservationWarning": """
policy = rlcatalog.build(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
---
policy.act([[0.0, 2.0]])
""",
    "UnusedMaskWarning": """
unit = spaces.Dict({"action_mask": spaces.MultiBinary(2), "speed": spaces.Box(-1, 1, (1,))})
---
rlcatalog.build(spaces.Dict({"unit": unit}), spaces.Discrete(2))
""",
    "ActionRangeWarning": """
thermostat = spaces.Box(15, 30, (1,))
---
rlcatalog.build(spaces.Box(-1, 1, (3,)), thermostat, {"action_bounds": "clip"})
""",
    "LoadOrderWarning": """
import importlib, importlib.machinery, sys, types
from rlcatalog_torch import load_order
load_order._warn.cache_clear()
sys.modules.pop("triton", None)
for name in ("tensorflow", "tensorflow.python"):
    sys.modules[name] = types.ModuleType(name)
class Triton:
    create_module = staticmethod(lambda spec: None)
    exec_module = staticmethod(lambda module: None)
    def find_spec(name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, Triton()) if name == "triton" else None
sys.meta_path.insert(0, Triton)
sys.meta_path.insert(0, load_order._IsolateTriton("triton"))
---
import tensorflow
import triton
""",
    "ResumeWarning": """
from rlcatalog_ppo import PPO
envs = gym.make_vec("CartPole-v1", 2)
---
PPO(envs).save_checkpoint("run")
""",
    "SavedPolicyWarning": """
policy = rlcatalog.build(env="CartPole-v1", config={"fcnet_hiddens": [4]})
weights = policy.model.get_weights()
policy.model.set_weights({name: array * np.nan for name, array in weights.items()})
policy.save("cartpole")
---
rlcatalog.load("cartpole")
""",
    "PluginError": f"""{_KIT}
from rlcatalog.catalog import default_catalog
strict = {{"RLCATALOG_STRICT_PLUGINS": "1"}}
---
early = plugin_of(rlcatalog_models=lambda: default_catalog())
early = PluginEntryPoint(early, "acme-net")
isolated_catalog("rlcatalog-fcnet", early, environ=strict).registry
""",
    "PartError": f"""{_KIT}
from rlcatalog import ModelSpec
parts = ("rlcatalog-torch", "rlcatalog-preprocessors", "rlcatalog-categorical", "rlcatalog-filters")
---
def match(request):
    return request.obs.shap
spec = ModelSpec("acme_net", {{"torch": "acme_net.torch:Net"}}, "a net", match=match)
plugin = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme-net")
catalog = isolated_catalog(*parts, plugin)
catalog.resolve(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
""",
    "IncompatiblePluginError": f"""{_KIT}
strict = {{"RLCATALOG_STRICT_PLUGINS": "1"}}
---
newer = PluginEntryPoint(plugin_of(), "acme-net", requires=["rlcatalog>=9"])
isolated_catalog("rlcatalog-fcnet", newer, environ=strict).registry
""",
    "DeclarationError": """
from rlcatalog import ModelSpec
---
ModelSpec("acme net", {"torch": "acme_net.torch:Net"}, "a net")
""",
    "DuplicateNameError": f"""{_KIT}
from rlcatalog import ModelSpec
spec = ModelSpec("acme_net", {{"torch": "acme_net.torch:Net"}}, "a net")
strict = {{"RLCATALOG_STRICT_PLUGINS": "1"}}
---
twice = PluginEntryPoint(plugin_of(rlcatalog_models=[spec, spec]), "acme-net")
isolated_catalog("rlcatalog-fcnet", twice, environ=strict).registry
""",
    "MissingPluginError": f"""{_KIT}
---
parts = ("rlcatalog-torch", "rlcatalog-fcnet", "rlcatalog-preprocessors")
catalog = isolated_catalog(*parts)
catalog.resolve(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
""",
    "MissingFrameworkError": """
import sys
sys.modules["tensorflow"] = None
---
rlcatalog.build(env="CartPole-v1", framework="tf")
""",
    "MissingExtraError": """
import sys
sys.modules["drawsvg"] = None
sys.modules.pop("rlcatalog_cli.picture", None)
policy = rlcatalog.build(env="CartPole-v1")
---
policy.explain().svg()
""",
    "UnknownNameError": """rlcatalog.build(env="CartPole-v1", config={"custom_model": "fcnett"})""",
    "AmbiguousChoiceError": """
config = {"use_lstm": True, "use_attention": True}
rlcatalog.build(env="CartPole-v1", config=config)
""",
    "NoMatchError": f"""{_KIT}
import msgspec, sys, types
from rlcatalog import Match, ModelSpec
sys.modules["acme_head"] = types.ModuleType("acme_head")
sys.modules["acme_head"].Config = msgspec.defstruct("Config", [("acme_on", bool, False)])
frameworks = ("rlcatalog-torch",)
parts = ("rlcatalog-fcnet", "rlcatalog-preprocessors", "rlcatalog-categorical", "rlcatalog-filters")
targets = {{"torch": "acme_head:Head"}}
keys = {{"slot": "head", "switch": "acme_on", "config": "acme_head:Config"}}
---
def match(request):
    return Match(None, "takes images")
spec = ModelSpec("acme_head", targets, "a head", match=match, **keys)
plugin = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme")
catalog = isolated_catalog(*frameworks, *parts, plugin)
catalog.resolve(spaces.Box(-1, 1, (2,)), spaces.Discrete(2), {{"acme_on": True}})
""",
    "UnsupportedSpaceError": """
rlcatalog.build(spaces.Sequence(spaces.Discrete(3)), spaces.Discrete(2))
""",
    "ConfigError": """rlcatalog.build(env="CartPole-v1", config={"fcnet_activation": "rellu"})""",
    "UnknownConfigKeyError": """
rlcatalog.build(env="CartPole-v1", config={"fcnet_hidden": [64]})
""",
    "ConfigTypeError": """rlcatalog.build(env="CartPole-v1", config={"fcnet_hiddens": 64})""",
    "ModelContractError": """
import torch
---
class Net(torch.nn.Module):
    def forward(self, obs):
        return obs.sum()
rlcatalog.build(env="CartPole-v1", model=Net)
""",
    "ObservationError": f"{_POLICY}policy.act([[0.0, 0.0, 0.0]])",
    "OutputError": """
from pathlib import Path
from rlcatalog_ppo.offline import Recorder
Path("rollouts").write_text("a file")
policy = rlcatalog.build(env="CartPole-v1")
---
Recorder("rollouts", policy)
""",
    "OutOfBoundsError": """
config = {"check_observations": "always"}
policy = rlcatalog.build(spaces.Box(-1, 1, (2,)), spaces.Discrete(2), config)
---
policy.act([[0.0, 2.0]])
""",
    "ActionError": f"""{_POLICY}
policy.evaluate({{"obs": np.zeros((1, 4), np.float32), "raw_action": [2]}})
""",
    "MissingColumnError": f"""{_POLICY}policy.evaluate({{"obs": np.zeros((1, 4), np.float32)}})""",
    "ActionMaskError": f"{_POLICY}policy.act([[0.0] * 4], mask=[[0, 0]])",
    "NonFiniteError": """
policy = rlcatalog.build(spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(2))
policy.act([[0.0, 0.0]])
---
policy.act([[0.0, np.nan]])
""",
    "StaleOutputError": f"{_POLICY}policy.model.value_function()",
    "NoClosedFormError": """
policy = rlcatalog.build(env="Pendulum-v1", config={"custom_action_dist": "squashed_gaussian"})
dist = policy.dist_class(policy.backend.tensor(np.zeros((1, 2), np.float32)), policy.model)
---
dist.entropy()
""",
    "NotServedError": """
from rlcatalog_ppo import PPO
---
PPO("Pendulum-v1", {"model": {"custom_action_dist": "deterministic"}})
""",
    "EnvironmentFaultError": f"""
from rlcatalog_ppo import PPO
{_ENV}
    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, {{}}
---
PPO(MyEnv).train()
""",
    "WorkerError": f"""
import os
from rlcatalog_ppo.environments import vector
{_ENV}
    def reset(self, *, seed=None, options=None):
        os._exit(3)
---
envs = vector(MyEnv, 1, how="async")
envs.reset()
""",
    "SavedPolicyError": """rlcatalog.load("nowhere")""",
    "FolderTakenError": """
from pathlib import Path
from rlcatalog_testing.scaffold import package_files, write_package
Path("acme-net").mkdir()
---
write_package(Path("acme-net"), package_files("model", "acme-net"))
""",
    "RunFolderError": """
from pathlib import Path
from rlcatalog_runs import run_folder, write_config
with run_folder(Path("run")):
    write_config(Path("run"), "CartPole-v1", {})
---
with run_folder(Path("run")):
    ...
""",
    "FailedRunsError": """
from rlcatalog_cli.app import make_app
run = lambda *arguments: make_app(arguments)(arguments, standalone_mode=False)
---
run("train", "Nowhere-v0", "--seeds", "0", "--out", "runs")
""",
    "NotMirroredError": "import rlcatalog_compat.rllib.agents.sac",
    "NameNotMirroredError": """
import rlcatalog_compat.rllib.utils.tf_utils as tf_utils
---
tf_utils.scope_vars
""",
    "ConformanceError": f"""{_KIT}
from rlcatalog import EnvWrapperSpec
from rlcatalog_testing import check_plugin
---
clock = {{"numpy": "gymnasium.wrappers:TimeAwareObservation"}}
spec = EnvWrapperSpec("acme_clock", clock, "a clock")
plugin = PluginEntryPoint(plugin_of(rlcatalog_env_wrappers=[spec]), "acme")
check_plugin("acme", catalog=isolated_catalog(plugin))
""",
    "BlockedError": f"""{_KIT}
from rlcatalog import Match, ModelSpec, Rank
from rlcatalog_testing import cases
listed = "rlcatalog-preprocessors", "rlcatalog-deterministic"
match = lambda request: Match(Rank.GENERIC, "a net for everything")
---
spec = ModelSpec("beta_net", {{"torch": "beta.torch:Net"}}, "a net", match=match)
plugin = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "beta")
catalog = isolated_catalog(*listed, plugin, prefer=["beta"])
for case in cases("rlcatalog-deterministic", catalog=catalog):
    case()
""",
}


def session(name: str) -> str:
    """Return an example as a session: its code, and the message of the error or warning that it
    causes.
    """
    hidden, _, code = EXAMPLES[name].rpartition("---\n")
    message = _run(name, f"{hidden}\n{code}\n")
    lines = [
        ("... " if line.startswith(" ") else ">>> ") + line for line in code.strip().splitlines()
    ]
    for line in f"{name}: {message}".splitlines():
        lines += textwrap.wrap(
            line, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
        )
    return "\n".join([*lines[:LINES], "…"] if len(lines) > LINES else lines)


def _run(name: str, code: str) -> str:
    """Run code in an empty folder; return the message of the error or warning of a class."""
    causes: list[Warning | str | errors.CatalogError] = []
    with _restored() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(code, "<example>", "exec"), dict(NAMES))
        except errors.CatalogError as error:
            causes.append(error)
    causes += [item.message for item in caught]
    found = [str(cause) for cause in causes if type(cause).__name__ == name]
    if not found:
        raise SystemExit(f"tools/error_messages.py: the example of {name} causes {causes}.")
    message = found[0].replace(str(Path(folder).resolve()), "…").replace(folder, "…")
    message = re.sub(r"\b[0-9a-f]{16}\b", "…", message)  # checksums
    return message.replace(metadata.version("rlcatalog"), "X.Y.Z")


@contextlib.contextmanager
def _restored() -> Iterator[str]:
    """Work in a temporary folder, without output; restore modules and finders afterwards."""
    modules, folder, main = dict(sys.modules), os.getcwd(), sys.modules["__main__"]
    file = vars(main).pop("__file__", None)  # or the processes of environments would import it
    with (
        tempfile.TemporaryDirectory() as temporary,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        os.chdir(temporary)
        try:
            yield temporary
        finally:
            os.chdir(folder)
            if file is not None:
                main.__file__ = file
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if getattr(finder, "__module__", "") != NAMES["__name__"]
    ]
    for name in ("tensorflow", "tensorflow.python", "triton", "drawsvg"):
        sys.modules.pop(name, None)
        if name in modules:
            sys.modules[name] = modules[name]
