"""Who provides which name: addresses, names alone, registration in process, and what the errors
say.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
import threading
import time

import gymnasium as gym
import numpy as np
import pytest

from rlcatalog import (
    ActionDistribution,
    ActionDistSpec,
    Catalog,
    CommandSpec,
    FilterSpec,
    Match,
    ModelSpec,
    ModelV2,
    Preprocessor,
    PreprocessorSpec,
    Rank,
    Request,
    SpaceInfo,
    provided,
)
from rlcatalog.catalog.lookups import framework_for
from rlcatalog.errors import (
    AmbiguousChoiceError,
    CatalogError,
    DuplicateNameError,
    MissingFrameworkError,
    MissingPluginError,
    ModelContractError,
    NotServedError,
    PluginError,
    PluginWarning,
    UnknownNameError,
)
from rlcatalog.frameworks import default_framework, framework_name, frameworks, require_framework
from rlcatalog.plugins import install_hint
from rlcatalog.plugins.names import may_claim

BOX = gym.spaces.Box(-1, 1, (3,), np.float32)


def model(name, rank=None, **more):
    """Declare a model; with a rank it matches everything."""
    match = None if rank is None else (lambda request: Match(rank, f"{name} takes it"))
    targets = more.pop("targets", {"torch": f"{name}_parts:Net"})
    return ModelSpec(name, targets, f"the model {name}", match=match, **more)


@pytest.fixture
def catalog_of(entry_point, plugin):
    """Make a catalog from plugins that provide models: `catalog_of({"dist-a": [spec, …]}, …)`."""

    def make(plugins, *, environ=None, prefer=(), version="1.0"):
        points = [
            entry_point(distribution, plugin(rlcatalog_models=specs), version=version)
            for distribution, specs in plugins.items()
        ]
        return Catalog(points, environ=environ or {}, prefer=prefer)

    return make


def who(catalog, name="net", kind="model"):
    return catalog.registry.get(kind, name).distribution


def statuses(catalog):
    return {record.distribution: record.status for record in catalog.plugins}


# --- addresses ------------------------------------------------------------------------------------


def test_the_full_name_takes_any_spelling_of_the_distribution(catalog_of):
    catalog = catalog_of({"some-dist": [model("net")]})
    assert catalog.registry.get("model", "Some_Dist/net").distribution == "some-dist"


def test_components_of_different_kinds_may_share_a_name(entry_point, plugin):
    dist = ActionDistSpec("net", {"torch": "m:C"}, "", size=lambda space, config: 1)
    made = plugin(rlcatalog_models=[model("net")], rlcatalog_action_dists=[dist])
    catalog = Catalog([entry_point("net", made)], environ={})
    assert who(catalog) == who(catalog, kind="action_dist") == "net"


@pytest.mark.parametrize("order", list(itertools.permutations(["acme", "acme-net", "zeta"])))
def test_a_name_that_two_may_claim_is_an_error_with_both_addresses(catalog_of, order):
    catalog = catalog_of(
        {name: [model("acme_net_small"), model(name.replace("-", "_"))] for name in order}
    )
    with pytest.raises(AmbiguousChoiceError) as raised:
        who(catalog, "acme_net_small")
    assert str(raised.value) == (
        "model 'acme_net_small' needs its distribution's name. Use 'acme/acme_net_small' or"
        " 'acme-net/acme_net_small'."
    )
    for name in order:
        assert (
            who(catalog, f"{name}/acme_net_small") == who(catalog, name.replace("-", "_")) == name
        )
    assert set(statuses(catalog).values()) == {"loaded"}
    assert catalog.registry.names(["model"]) == [
        "acme",
        "acme-net/acme_net_small",
        "acme/acme_net_small",
        "acme_net",
        "zeta",
        "zeta/acme_net_small",
    ]
    catalog.register_model("acme_net_small", TorchNet)
    assert catalog.registry.get("model", "acme_net_small").in_process


def test_a_name_that_begins_with_another_word_is_said_with_its_distribution(catalog_of):
    for plugins in ({"acme": [model("net")]}, {"acme": [model("net")], "zeta": [model("net")]}):
        catalog = catalog_of(plugins)
        ways = " or ".join(f"'{name}/net'" for name in plugins)
        with pytest.raises(
            UnknownNameError, match=rf"^model 'net' needs its distribution's name\. Use {ways}\.$"
        ):
            who(catalog)
        assert who(catalog, "acme/net") == "acme"


@pytest.mark.parametrize("name", ["thief", "aa-thief", "zz-thief"])
@pytest.mark.parametrize("installed", [True, False])
def test_a_listed_name_is_its_owners_and_another_part_called_so_has_its_address(
    catalog_of, name, installed
):
    plugins = {name: [model("fcnet")]} | (
        {"rlcatalog-fcnet": [model("fcnet")]} if installed else {}
    )
    for options in ({}, {"prefer": [name]}):
        catalog = catalog_of(plugins, **options)
        assert who(catalog, f"{name}/fcnet") == name
        if installed:
            assert who(catalog, "fcnet") == "rlcatalog-fcnet"
        else:
            with pytest.raises(
                MissingPluginError, match=re.escape(install_hint("rlcatalog-fcnet"))
            ):
                who(catalog, "fcnet")


@pytest.mark.parametrize(
    ("kind", "name", "distribution", "may"),
    [
        ("model", "acme_resnet", "acme-resnet", True),
        ("model", "acme_resnet_50", "acme-resnet", True),
        ("model", "Acme-ResNet.deep", "acme-resnet", True),
        ("model", "acme_resnets", "acme-resnet", False),
        ("model", "acme_resnets", "acme", True),
        ("model", "acme", "acme", True),
        ("model", "acmenet", "acme", False),
        ("model", "fcnet", "fcnet", False),
        ("model", "fcnet", "rlcatalog-fcnet", True),
        ("config", "max_seq_len", "max", False),
        ("command", "list", "list", False),
        ("suffix", ".acme", "acme", True),
        ("suffix", ".onnx", "onnx", False),
    ],
)
def test_whose_a_name_is(kind, name, distribution, may):
    assert may_claim(kind, name, distribution) is may


def test_a_command_called_like_a_listed_one_has_its_address(entry_point, plugin):
    specs = [CommandSpec(name, {"cli": "m:f"}, "") for name in ("list", "explain", "acme_sail")]
    catalog = Catalog([entry_point("acme", plugin(rlcatalog_commands=specs))], environ={})
    assert catalog.registry.names(["command"]) == ["acme/explain", "acme/list", "acme_sail"]


# --- ties -----------------------------------------------------------------------------------------


def trunk(catalog):
    info = SpaceInfo.read(BOX)
    request = Request(info, info, catalog.schema.defaults(), "torch", (3,), 2)
    return catalog.slots.model(request, None, None)[0]["trunk"]


def test_a_tie_names_both_and_the_ways_out(catalog_of):
    catalog = catalog_of(
        {"one": [model("one", rank=Rank.GENERIC)], "two": [model("two", rank=Rank.GENERIC)]}
    )
    with pytest.raises(AmbiguousChoiceError) as raised:
        trunk(catalog)
    message = str(raised.value)
    assert message.startswith(
        "trunk: 'one' (one 1.0: one takes it) and 'two' (two 1.0: two takes it) match "
    )
    for part in (
        "equally well (GENERIC)",
        "name one in the config",
        "RLCATALOG_PREFER_PLUGINS=one",
        "RLCATALOG_DISABLE_PLUGINS=two",
    ):
        assert part in message


@pytest.mark.parametrize("variable", ["RLCATALOG_PREFER_PLUGINS", "RLCATALOG_DISABLE_PLUGINS"])
def test_the_ways_out_that_a_tie_names_work(catalog_of, variable):
    plugins = {"one": [model("one", rank=Rank.GENERIC)], "two": [model("two", rank=Rank.GENERIC)]}
    with pytest.raises(AmbiguousChoiceError) as raised:
        trunk(catalog_of(plugins))
    way = (
        str(raised.value)
        .partition(f"{variable}=")[2]
        .partition(".")[0]
        .partition(",")[0]
        .split()[0]
    )
    choice = trunk(catalog_of(plugins, environ={variable: way}))
    assert choice.component is not None
    assert choice.component.name == "one"


@pytest.mark.parametrize(("prefer", "name"), [("one", "one"), (" Two", "two")])
def test_a_preference_settles_a_tie(catalog_of, prefer, name):
    plugins = {"one": [model("one", rank=Rank.GENERIC)], "two": [model("two", rank=Rank.GENERIC)]}
    for catalog in (
        catalog_of(plugins, prefer=[prefer]),
        catalog_of(plugins, environ={"RLCATALOG_PREFER_PLUGINS": prefer}),
    ):
        choice = trunk(catalog)
        assert choice.component is not None
        assert choice.component.name == name
        assert choice.verdicts[0][0].name == name


def test_a_preference_does_not_beat_a_better_rank(catalog_of):
    plugins = {"one": [model("one", rank=Rank.SPECIFIC)], "two": [model("two", rank=Rank.GENERIC)]}
    choice = trunk(catalog_of(plugins, prefer=["two", "one"]))
    assert choice.component is not None
    assert choice.component.name == "one"
    assert [(c.name, answer.rank) for c, answer in choice.verdicts] == [
        ("one", Rank.SPECIFIC),
        ("two", Rank.GENERIC),
    ]

    # The other is not asked.
    assert trunk(catalog_of(plugins, prefer=["two"])).component.name == "two"


def test_two_registrations_of_the_program_that_tie_are_told_apart_by_name(catalog_of):
    catalog = catalog_of({"one": [model("one", rank=Rank.SPECIFIC)]})
    catalog.register(model("mine", rank=Rank.FALLBACK))
    assert trunk(catalog).component.name == "mine"
    catalog.register(model("other", rank=Rank.FALLBACK))
    with pytest.raises(AmbiguousChoiceError) as raised:
        trunk(catalog)
    assert "registered in process" in str(raised.value)
    assert str(raised.value).endswith("Options: name one in the config (custom_model='mine').")


# --- registering in process -----------------------------------------------------------------------


class TorchNet(ModelV2):
    """A model of the running program."""

    framework_of_class = "torch"


class OtherTorchNet(TorchNet):
    """Another one."""


def test_a_program_may_replace_its_own_registration():
    catalog = Catalog([], environ={})
    for cls in (TorchNet, OtherTorchNet):
        catalog.register_model("mine", cls)
        assert catalog.registry.get("model", "mine").load("torch") is cls
    (component,) = catalog.components("model")
    assert component.in_process
    assert component.provider == "registered in process"
    assert component.declaration.summary == "Another one."


def test_one_catalogs_registrations_are_not_anothers():
    first, second = Catalog([], environ={}), Catalog([], environ={})
    first.register_model("mine", TorchNet)
    assert second.components() == []


def test_a_registration_may_be_a_declaration():
    catalog = Catalog([], environ={})
    catalog.register(FilterSpec("halve", {"numpy": "m:C"}, "halves"))
    assert catalog.registry.get("filter", "halve").in_process


@pytest.mark.parametrize(
    ("register", "value", "says"),
    [
        (
            "register_model",
            int,
            "must be a registered name or a subclass of rlcatalog_torch.TorchModelV2",
        ),
        ("register_model", {"a": TorchNet}, "a torch.nn.Module or keras.Layer"),
        ("register_action_dist", int, "rlcatalog.ActionDistribution"),
        ("register_preprocessor", TorchNet, "rlcatalog.Preprocessor"),
    ],
)
def test_a_registration_of_something_else_is_refused(register, value, says):
    catalog = Catalog([], environ={})
    with pytest.raises(ModelContractError, match=says):
        getattr(catalog, register)("mine", value)
    assert catalog.components() == []


def test_distributions_and_preprocessors_are_registered_too():
    class Codec(Preprocessor):
        """A codec."""

    class Dist(ActionDistribution):
        """A distribution."""

        @staticmethod
        def required_model_output_shape(action_space, model_config=None):
            return 5

    catalog = Catalog([], environ={})
    catalog.register_preprocessor("codec", Codec)
    catalog.register_action_dist("dist", Dist)
    assert [(c.kind, c.name) for c in catalog.components()] == [
        ("action_dist", "dist"),
        ("preprocessor", "codec"),
    ]
    assert catalog.registry.get("preprocessor", "codec").load("numpy") is Codec


def test_a_registration_is_seen_by_lookups_that_were_answered_before(entry_point, plugin, module):
    class Codec(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (3,)

    def takes(rank):
        return lambda request: Match(rank, "takes everything")

    module(Codec=Codec)
    made = plugin(
        rlcatalog_models=[model("net", rank=Rank.GENERIC)],
        rlcatalog_preprocessors=[
            PreprocessorSpec(
                "codec", {"numpy": "made_up_parts:Codec"}, "", match=takes(Rank.GENERIC)
            )
        ],
        rlcatalog_action_dists=[
            ActionDistSpec(
                "dist",
                {"torch": "m:D"},
                "",
                match=takes(Rank.GENERIC),
                size=lambda space, config: 2,
            )
        ],
    )
    catalog = Catalog([entry_point("parts", made)], environ={})
    action = gym.spaces.Discrete(2)
    before = catalog.resolve(BOX, action)
    assert catalog.resolve(BOX, action) is before
    catalog.register(model("better", rank=Rank.SPECIFIC))
    assert catalog.resolve(BOX, action).component("trunk").name == "better"


# --- unknown, missing -----------------------------------------------------------------------------


def test_an_unknown_name_suggests_the_nearest_and_lists_what_exists(catalog_of):
    catalog = catalog_of({"net": [model("net_transformer"), model("net_conv")]})
    with pytest.raises(UnknownNameError) as raised:
        catalog.registry.get("model", "net_transfromer")
    assert str(raised.value) == (
        "Unknown model 'net_transfromer'. Did you mean 'net_transformer'? Known: net_conv,"
        " net_transformer."
    )
    assert isinstance(raised.value, KeyError)


def test_an_unknown_name_without_a_near_one(catalog_of):
    with pytest.raises(UnknownNameError, match=r"^Unknown model 'xyz'\. Known: net\.$"):
        catalog_of({"net": [model("net")]}).registry.get("model", "xyz")


def test_an_unknown_name_where_nothing_is_installed():
    with pytest.raises(UnknownNameError) as raised:
        Catalog([], environ={}).registry.get("action_dist", "xyz")
    assert "Unknown action dist 'xyz'. No action dists are installed." in str(raised.value)
    assert str(raised.value).endswith(install_hint("rlcatalog[torch]"))


@pytest.mark.parametrize(
    ("kind", "name", "distribution"),
    [
        ("model", "fcnet", "rlcatalog-fcnet"),
        ("action_dist", "categorical", "rlcatalog-categorical"),
        ("action_dist", "diag_gaussian", "rlcatalog-gaussian"),
        ("preprocessor", "onehot", "rlcatalog-preprocessors"),
    ],
)
def test_a_part_of_ours_that_is_not_installed_names_its_package(kind, name, distribution):
    with pytest.raises(MissingPluginError) as raised:
        Catalog([], environ={}).registry.get(kind, name)
    label = kind.replace("_", " ")
    assert str(raised.value) == (
        f"{label} {name!r} is provided by {distribution}, which is not installed."
        f" {install_hint(distribution)}"
    )


def test_a_part_by_its_full_name_whose_package_is_not_installed():
    with pytest.raises(
        MissingPluginError, match="is provided by some-dist, which is not installed"
    ):
        Catalog([], environ={}).registry.get("model", "some-dist/net")


def test_a_part_whose_package_is_disabled_says_so(entry_point):
    environ = {"RLCATALOG_DISABLE_PLUGINS": "fcnet"}
    catalog = Catalog(
        [entry_point("rlcatalog-fcnet", name="fcnet", version="0.1.0")], environ=environ
    )
    with pytest.raises(MissingPluginError) as raised:
        catalog.registry.get("model", "fcnet")
    assert (
        "model 'fcnet' is provided by rlcatalog-fcnet 0.1.0, which is disabled: disabled by"
        in str(raised.value)
    )
    assert "RLCATALOG_DISABLE_PLUGINS='fcnet'" in str(raised.value)


def test_a_part_whose_package_failed_says_why(entry_point):
    with pytest.warns(PluginWarning):
        catalog = Catalog(
            [entry_point("rlcatalog-fcnet", plugin=OSError("disk on fire"))], environ={}
        )
    with pytest.raises(
        MissingPluginError, match=r"rlcatalog-fcnet 1\.0, which has failed: OSError: disk on fire"
    ):
        catalog.registry.get("model", "fcnet")


def test_a_part_that_a_loaded_package_does_not_have_is_unknown(catalog_of):
    with pytest.raises(UnknownNameError, match="Known: net"):
        catalog_of({"net": [model("net")]}).registry.get("model", "net/other")


def test_the_errors_are_caught_as_what_a_caller_expects():
    for error, expected in (
        (UnknownNameError, KeyError),
        (MissingPluginError, LookupError),
        (MissingFrameworkError, ImportError),
        (AmbiguousChoiceError, ValueError),
        (DuplicateNameError, ValueError),
        (PluginError, ImportError),
        (NotServedError, NotImplementedError),
    ):
        assert issubclass(error, CatalogError)
        assert issubclass(error, expected)


# --- frameworks -----------------------------------------------------------------------------------


@pytest.fixture
def not_installed(monkeypatch):
    """Pretend that modules are not installed."""

    def hide(*modules):
        real = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *args: None if name in modules else real(name, *args),
        )

    return hide


def test_the_names_of_frameworks():
    assert [framework_name(name) for name in ("torch", "tf", "tf2")] == ["torch", "tf", "tf"]


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("pytorch", " Did you mean 'torch'?"), ("jax", ""), ("Torch", " Did you mean 'torch'?")],
)
def test_an_unknown_framework_lists_what_exists(name, suggestion):
    with pytest.raises(UnknownNameError) as raised:
        framework_name(name)
    assert str(raised.value) == (
        f"Unknown framework {name!r}.{suggestion} Known: 'torch', 'tf' ('tf2' is an alias of 'tf')."
    )


@pytest.mark.parametrize("wrong", [3, None, ["torch"], {"torch": 1}])
def test_a_framework_that_is_no_text_is_unknown_too(wrong):
    with pytest.raises(UnknownNameError, match="Unknown framework"):
        framework_name(wrong)


def test_threads_that_ask_first_wait_until_all_frameworks_are_there(monkeypatch):
    began, specs = threading.Event(), list(frameworks().values())
    expected = list(frameworks())

    def slow(kind):
        yield specs[0]
        began.set()
        time.sleep(0.2)  # the other thread asks meanwhile
        yield from specs[1:]

    monkeypatch.delitem(provided.declarations, "framework")
    monkeypatch.setattr(provided, "index_declarations", slow)
    first = threading.Thread(target=frameworks)
    first.start()
    assert began.wait(10)
    found = list(frameworks())
    first.join()
    assert found == expected


@pytest.mark.parametrize(
    ("missing", "framework"),
    [
        ((), "torch"),
        (("tensorflow",), "torch"),
        (("torch",), "tf"),
        (("torch", "tensorflow"), "torch"),
    ],
)
def test_the_installed_framework_is_the_default_one(not_installed, missing, framework):
    if framework == "tf":
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    not_installed(*missing)
    assert default_framework() == framework
    assert framework_for(None) == framework
    # a name is taken as it is; a missing framework is reported later.
    assert framework_for("torch") == "torch"


@pytest.mark.parametrize(("framework", "module"), [("torch", "torch"), ("tf", "tensorflow")])
def test_a_framework_that_is_not_installed_names_the_extra(not_installed, framework, module):
    not_installed(module)
    with pytest.raises(MissingFrameworkError) as raised:
        require_framework(framework)
    assert str(raised.value) == (
        f"framework={framework!r} needs the package {module!r}, which is not installed."
        f" {install_hint(f'rlcatalog[{framework}]')}"
    )


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_part_names_the_extra_of_its_framework(catalog_of, not_installed, framework):
    not_installed("torch", "tensorflow")
    catalog = catalog_of({"net": [model("net", targets={"torch": "m:C", "tf": "m:D"})]})
    hint = re.escape(install_hint(f"rlcatalog[{framework}]"))
    with pytest.raises(MissingFrameworkError, match=hint):
        catalog.registry.get("model", "net").load(framework)
    catalog.register_model("mine", TorchNet)
    with pytest.raises(MissingFrameworkError, match=re.escape(install_hint("rlcatalog[torch]"))):
        catalog.registry.get("model", "mine").load("torch")


def test_a_part_without_code_for_a_framework_says_which_it_has(catalog_of):
    catalog = catalog_of({"net": [model("net")]})
    with pytest.raises(NotServedError) as raised:
        catalog.registry.get("model", "net").load("tf")
    assert (
        str(raised.value)
        == "model 'net' (net 1.0) has no code for framework='tf'; it supports: torch."
    )


# --- targets --------------------------------------------------------------------------------------

TARGETS = {
    "a_module_nobody_has:Net": "ModuleNotFoundError: No module named 'a_module_nobody_has'",
    "target_module:Missing": "AttributeError: module 'target_module' has no attribute 'Missing'",
    "target_syntax:Net": "SyntaxError",
    "target_exit:Net": "SystemExit: 7",
    "target_raises:Net": "RuntimeError: no driver",
}


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_that_cannot_be_imported_says_which_and_why(installed, tmp_path, target):
    for name, source in {
        "module": "class Net: pass\n",
        "syntax": "class Net(:\n",
        "exit": "raise SystemExit(7)\n",
        "raises": "raise RuntimeError('no driver')\n",
    }.items():
        (tmp_path / f"target_{name}.py").write_text(source, encoding="utf-8")
    installed(tmp_path)
    spec = PreprocessorSpec("codec", {"numpy": target}, "")
    catalog = Catalog([], environ={})
    catalog.register(spec)
    with pytest.raises(PluginError) as raised:
        catalog.registry.get("preprocessor", "codec").load("numpy")
    message = str(raised.value)
    assert message.startswith(
        f"preprocessor 'codec' (registered in process): its target {target!r} cannot be imported"
    )
    assert TARGETS[target] in message
    assert raised.value.__cause__ is not None


def test_a_target_is_imported_at_its_first_use(installed, tmp_path):
    (tmp_path / "target_lazy.py").write_text("class Codec: pass\n", encoding="utf-8")
    installed(tmp_path)
    catalog = Catalog([], environ={})
    catalog.register(PreprocessorSpec("codec", {"numpy": "target_lazy:Codec"}, ""))
    component = catalog.registry.get("preprocessor", "codec")
    assert "target_lazy" not in sys.modules
    assert component.load("numpy").__name__ == "Codec"
