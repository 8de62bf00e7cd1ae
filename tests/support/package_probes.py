"""Programs that say what a package does in an environment of its own; `package_environments.py`
runs them.
"""

from __future__ import annotations

PRELUDE = """
import contextlib, importlib, importlib.util, json, pkgutil, sys
from pathlib import Path

data, report = json.loads(sys.argv[1]), {}
prefix = Path(sys.prefix).resolve()


#: Files that one package alone loads, where it is installed.
READERS = {
    "commands": "rlcatalog_cli",
    "checks": "rlcatalog_testing",
    "examples": "rlcatalog_testing",
}


def is_read(target):
    # Whether the package that loads a command or a check is here.
    reader = {"cli": "rlcatalog_cli", "checks": "rlcatalog_testing"}.get(target)
    return reader is None or importlib.util.find_spec(reader) is not None


def absent(names):
    for name in names:
        assert importlib.util.find_spec(name) is None, f"{name} is there"


def import_all(package):
    package = importlib.import_module(package)
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".", lambda name: None):
        readers = {READERS[part] for part in found.name.split(".") if part in READERS}
        if not any(importlib.util.find_spec(reader) is None for reader in readers):
            importlib.import_module(found.name)


def files_are_here(*packages):
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in packages:
            assert Path(module.__file__).resolve().is_relative_to(prefix), module.__file__
"""

#: One package beside the kernel: nothing else is there, it loads, every module imports, its parts
#: work.
ALONE = """
absent(data["siblings"])
import gymnasium as gym
import numpy as np
import rlcatalog
from rlcatalog.models import ModelPart, assemble
from rlcatalog.actions import BoundDistribution
from rlcatalog.errors import (
    CatalogError,
    MissingPluginError,
    NoMatchError,
    UnsupportedSpaceError,
)
from rlcatalog.frameworks import frameworks
from rlcatalog.plugins import Request
from rlcatalog.spaces import Repeated, Simplex

catalog = rlcatalog.Catalog(environ={})
report["plugins"] = [[r.distribution, r.status, r.error] for r in catalog.plugins]
import_all(data["module"])
files_are_here("rlcatalog", data["module"])

spaces = gym.spaces
box = spaces.Box(-1, 1, (4,), np.float32)
image = spaces.Box(0, 255, (10, 10, 3), np.float32)
samples = [
    box,
    spaces.Discrete(3),
    spaces.Box(0, 255, (84, 84, 3), np.uint8),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(3),
    spaces.Dict({"a": box}),
    spaces.Tuple([box, spaces.Discrete(2)]),
    spaces.Text(3),
    spaces.Sequence(box),
    spaces.OneOf([box, spaces.Discrete(2)]),
    spaces.Graph(box, box),
    Repeated(box, 3),
    Simplex((3,)),
]
for name, module in list(sys.modules.items()):  # and a plugin's own kinds of space
    if name.partition(".")[0] == data["module"] != "rlcatalog":
        kinds = [
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and kind.__module__ == name
        ]
        for kind in kinds:
            if issubclass(kind, gym.Space):
                # Made with one number, or not at all: a space may take anything else.
                with contextlib.suppress(TypeError, AttributeError):
                    samples.append(kind(4))
values = catalog.schema.defaults()
values |= {
    key: 100 for key in ("sequence_max_len", "graph_max_nodes", "graph_max_edges") if key in values
}


def fits(part, *wanted, **more):
    requests = (
        (s, Request(*[rlcatalog.SpaceInfo.read(s, path) for path in wanted], values, **more))
        for s in samples
    )
    return [s for s, request in requests if part.declaration.judge(request).rank is not None]


def trunk_class(framework):
    # A model whose features are its observations.
    base = importlib.import_module("rlcatalog_" + framework)
    base = base.TorchModelV2 if framework == "torch" else base.TFModelV2

    class Bare(base):
        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs = 4

        def forward(self, input_dict, state, seq_lens):
            return input_dict["obs_flat"], state

    return Bare


class Sevens(rlcatalog.ActionDistribution):
    @staticmethod
    def required_model_output_shape(action_space, model_config=None):
        return int(np.prod(action_space.shape))

    def sample(self):
        return self.inputs[:, 0] if self.inputs.shape[1] == 1 else self.inputs

    def logp(self, actions):
        return self.inputs[:, 0] * 0


class Plain(rlcatalog.Preprocessor):
    def _init_shape(self, obs_space, options):
        return obs_space.shape


def environments():
    for name in ("CartPole-v1", "ale_py:ALE/Breakout-v5"):
        with contextlib.suppress(ImportError):  # ale_py is there for the package that needs it
            yield gym.make(name)


def tensor(array, framework):
    if framework == "torch":
        return importlib.import_module("torch").as_tensor(array)
    return importlib.import_module("tensorflow").constant(array)


class Pair(Sevens):
    # A product of two of these.
    @classmethod
    def parts(cls, action, size, options):
        return [(child, Sevens, size // 2) for child in action.children]


def work_together(part, framework):
    # A distribution around another one, and the head that serves it, joined as the catalog does
    # where both are there.
    own = [c for c in catalog.parts() if c.distribution == part.distribution]
    dists = [c for c in own if c.kind == "action_dist" and c.declaration.wraps_default]
    heads = [c for c in own if c.kind == "model" and c.declaration.slot == "head"]
    if not dists or part not in (*dists, *heads):
        return False
    ((dist,), (head,)) = dists, heads
    space = spaces.Tuple([box, box])
    action, config = rlcatalog.SpaceInfo.read(space, "action"), dict(values)
    size = dist.declaration.size(action, config, 8)
    cls = dist.load(framework)
    bound = BoundDistribution(cls, cls.options_for(action, config, [(Pair, 8)]))
    parts = [ModelPart(trunk_class(framework)), ModelPart(head.load(framework), slot="head")]
    model = assemble(parts, box, space, size, lambda: dict(config), "model", action_dist=bound)
    inputs, _ = model({"obs": tensor(np.ones((3, 4), np.float32), framework)})
    made = bound(inputs, model)
    drawn = made.sample()
    assert tuple(drawn.shape) == (3, 8)
    assert (
        made.logp(drawn).tolist() == [0, 0, 0]
        if framework == "torch"
        else not np.any(made.logp(drawn))
    )
    assert tuple(model.value_function().shape) == (3,)
    return True


def work(part, framework):
    name = part.name
    if part.kind == "framework":  # its targets are not called by frameworks
        return frameworks()[name].load(framework) is not None
    if work_together(part, framework):
        return True
    if part.kind == "preprocessor":
        for space in fits(part, "obs"):
            made = catalog.preprocessor_for(space, values)
            assert made.part is part
            assert made.transform(space.sample()).shape == made.shape
            return True
        for space in samples:  # one that is only chosen by name
            with contextlib.suppress(CatalogError, AttributeError, TypeError, ValueError):
                made = catalog.preprocessor_for(space, {**values, "custom_preprocessor": name})
                assert made.transform(space.sample()).shape == made.shape
                return True
    elif part.kind == "filter":
        made = part.load(framework)(Plain(box), values)
        assert np.isfinite(made(np.ones((2, 4), np.float32), update=True)).all()
        return True
    elif part.kind == "env_wrapper":
        for env in environments():
            wrapped = catalog.wrap_env(env)
            if wrapped is not env:
                assert wrapped.observation_space.contains(wrapped.reset(seed=0)[0])
                return True
    elif part.kind == "action_dist":
        composite = part.declaration.composite
        for space in [spaces.Tuple([spaces.Discrete(2), box])] if composite else samples:
            # The parts of a composite come from packages that are not here.
            parts = {f"action[{i}]": Sevens for i in range(2)} if composite else None
            with contextlib.suppress(UnsupportedSpaceError, MissingPluginError):
                cls, size = catalog.action_dist(
                    space, {"custom_action_dist": parts}, name, framework
                )
                dist = cls(tensor(np.zeros((2, size), np.float32), framework))
                assert np.isfinite(np.asarray(dist.logp(dist.sample()))).all()
                return True
    elif part.kind == "model":
        config = {"custom_model": name}
        if part.declaration.slot == "memory":  # around a trunk of the program's own
            asks = next(key for key in catalog.config_keys(part) if key.startswith("use_"))
            config = {"custom_model": trunk_class(framework), asks: True}
        observed = [box, image, spaces.Dict({"eye": image, "self": box})]
        # The same, and what a head may find in the observation.
        if part.declaration.slot == "head":
            asks = [key for key in catalog.config_keys(part) if key.startswith("use_")]
            config = {
                "custom_model": trunk_class(framework),
                "custom_action_dist": Sevens,
                **dict.fromkeys(asks, True),
            }
            observed = [spaces.Dict({"avail_actions": spaces.Box(-1, 1, (2, 3)), "self": box})]
        for space in observed:
            with contextlib.suppress(NoMatchError, UnsupportedSpaceError, MissingPluginError):
                whole = isinstance(space, spaces.Box)
                seen = space if whole else catalog.preprocessor_for(space).observation_space
                model = catalog.model_v2(seen, spaces.Discrete(2), 2, config, framework)
                state = [
                    tensor(np.stack([np.asarray(part)] * 3), framework)
                    for part in model.get_initial_state()
                ]
                obs = tensor(np.zeros((3, *seen.shape), np.float32), framework)
                output, state = model({"obs": obs}, state, tensor(np.ones(3, np.int32), framework))
                assert tuple(output.shape) == (3, 2)
                assert tuple(model.value_function().shape) == (3,)
                return True
    if part.kind not in ("command", "check") or is_read(framework):
        part.load(framework)
    return False


report["worked"], report["imported"] = [], []
for part in catalog.parts():
    if part.distribution == data["distribution"]:
        for framework in part.frameworks:
            done = report["worked" if work(part, framework) else "imported"]
            done.append(f"{part.kind}/{part.name}/{framework}")
report["parts"] = [
    f"{c.kind}/{c.name}/{framework}"
    for c in catalog.parts()
    if c.distribution == data["distribution"]
    for framework in c.frameworks
]
"""

#: Without any framework: everything answers, and what needs one names the extra.
WITHOUT_FRAMEWORKS = """
absent(["torch", "tensorflow"])
import rlcatalog
from rlcatalog.errors import MissingFrameworkError
from rlcatalog.frameworks import require_framework

catalog = rlcatalog.Catalog(environ={})
report["statuses"] = [r.status for r in catalog.plugins]
report["said"] = {}
for part in catalog.parts():
    # An adapter needs the packages of its environments, PyTorch included.
    if part.distribution == data["distribution"] and part.kind not in (
        "framework",
        "exporter",
        "env_adapter",
    ):
        for framework in filter(is_read, part.frameworks):
            try:
                part.load(framework)
            except MissingFrameworkError as error:
                report["said"][f"{part.name}/{framework}"] = str(error)
for framework in ("torch", "tf"):
    try:
        require_framework(framework)
    except MissingFrameworkError as error:
        report["said"][framework] = str(error)
"""

#: One framework of two: a policy acts with it, the other one's extra is named.
ONE_FRAMEWORK = """
absent([data["missing_module"], *data["siblings"]])
import gymnasium as gym
import rlcatalog
from rlcatalog.errors import MissingFrameworkError

env = gym.make("CartPole-v1")
# The installed framework need not be named.
policy = rlcatalog.build(env=env, config={"fcnet_hiddens": [8]})
assert policy.framework == data["framework"], policy.framework
obs, _ = env.reset(seed=0)
step = policy.act(obs[None])
assert env.action_space.contains(step.action[0]), step.action
report["shapes"] = [list(step.action.shape), list(step.dist_inputs.shape), list(step.value.shape)]
try:
    rlcatalog.build(env=env, framework=data["missing"])
except MissingFrameworkError as error:
    report["said"] = str(error)
files_are_here(*data["ours"])
report["modules"] = [name for name in sys.modules if name in ("torch", "tensorflow")]
"""


#: What the kernel alone says of what it lacks.
NOT_THERE = """
import gymnasium as gym
import rlcatalog
from rlcatalog.errors import MissingFrameworkError, MissingPluginError
from rlcatalog.frameworks import framework_name

spaces = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)
for name, ask in {
    "explain": lambda: rlcatalog.explain(*spaces), "build": lambda: rlcatalog.build(*spaces),
    "load": lambda: rlcatalog.load("policy"), "Policy": lambda: rlcatalog.Policy,
    "Actor": lambda: rlcatalog.Actor("policy.onnx"), "framework": lambda: framework_name("torch"),
}.items():
    try:
        ask()
    except (MissingFrameworkError, MissingPluginError) as error:
        report[name] = str(error)
"""

#: The seeds' lookups, a pass, and a distribution's draws.
LOOKUPS = """
absent(data["siblings"])
import gymnasium as gym
import numpy as np
import torch
from rlcatalog import ModelCatalog

obs, action = gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(2)
preprocessor = ModelCatalog.get_preprocessor_for_space(obs)
dist_class, size = ModelCatalog.get_action_dist(action, {}, framework="torch")
model = ModelCatalog.get_model_v2(
    preprocessor.observation_space, action, size, {"fcnet_hiddens": [8]}, "torch"
)
outputs, _ = model({"obs": torch.as_tensor(preprocessor.transform(obs.sample()))[None]}, [], None)
dist = dist_class(outputs, model)
sample = dist.sample()
report["logp"] = dist.logp(sample).tolist()
report["expected"] = torch.log_softmax(outputs, -1)[0, sample].tolist()
report["value"] = list(model.value_function().shape)
"""


#: Several command lines, one after another; of each, its exit status and what it printed.
COMMANDS = """
import contextlib, io, json, sys
from rlcatalog_cli import main

found = []
for line in json.loads(sys.argv[1]):
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(line)
        except SystemExit as end:
            status = end.code or 0
    found.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""
