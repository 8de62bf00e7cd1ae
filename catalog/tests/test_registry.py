"""Who provides which name: overrides, registration in process, preferences, and what the errors say."""

from __future__ import annotations

import importlib.util
import itertools
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
from rlcatalog.errors import (
    AmbiguousChoiceError,
    CatalogError,
    DeclarationError,
    DuplicateNameError,
    MissingFrameworkError,
    MissingPluginError,
    ModelContractError,
    NotServedError,
    PluginError,
    PluginWarning,
    UnknownNameError,
)
from rlcatalog.frameworks import default_framework, framework_name, frameworks, require_framework, table

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


# --- overrides -------------------------------------------------------------------------------------------------------


def test_the_full_name_takes_any_spelling_of_the_distribution(catalog_of):
    catalog = catalog_of({"some-dist": [model("net")]})
    assert catalog.registry.get("model", "Some_Dist/net").distribution == "some-dist"


def test_components_of_different_kinds_may_share_a_name(entry_point, plugin):
    dist = ActionDistSpec("net", {"torch": "m:C"}, "", size=lambda space, config: 1)
    points = [
        entry_point("a", plugin(rlcatalog_models=[model("net")])),
        entry_point("b", plugin(rlcatalog_action_dists=[dist])),
    ]
    catalog = Catalog(points, environ={})
    assert (who(catalog), who(catalog, kind="action_dist")) == ("a", "b")


# --- one name, two providers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefer", ["b-second", "B_Second", " b.second "])
@pytest.mark.parametrize("where", ["argument", "environment"])
def test_a_preference_decides_who_keeps_a_name(catalog_of, prefer, where):
    plugins = {"a-first": [model("net")], "b-second": [model("net")]}
    by_hand = {"prefer": [prefer]} if where == "argument" else {"environ": {"RLCATALOG_PREFER_PLUGINS": f"x,{prefer}"}}
    catalog = catalog_of(plugins, **by_hand)
    assert who(catalog) == "b-second"
    assert who(catalog, "a-first/net") == "a-first"
    assert statuses(catalog) == {"a-first": "shadowed", "b-second": "loaded"}


@pytest.mark.parametrize("order", list(itertools.permutations(["a-first", "b-second", "c-third"])))
def test_a_name_that_several_claim_and_none_owns_means_nothing_alone(catalog_of, order):
    plugins = {name: [model("net"), model(name.replace("-", "_"))] for name in order}
    with pytest.warns(PluginWarning) as caught:
        catalog = catalog_of(plugins)
    assert len(caught) == 3
    with pytest.raises(AmbiguousChoiceError) as raised:
        who(catalog)
    assert str(raised.value) == (
        "model 'net' is claimed by a-first/net and b-second/net and c-third/net and belongs to none of them. Say"
        " a-first/net or b-second/net or c-third/net; put one first with RLCATALOG_PREFER_PLUGINS=a-first, or disable"
        " one with RLCATALOG_DISABLE_PLUGINS=c-third."
    )
    for name in order:
        assert who(catalog, f"{name}/net") == who(catalog, name.replace("-", "_")) == name
    assert set(statuses(catalog).values()) == {"loaded"}
    assert catalog.registry.names(["model"]) == [
        "a-first/net", "a_first", "b-second/net", "b_second", "c-third/net", "c_third",
    ]  # fmt: skip
    with pytest.raises(DuplicateNameError, match=r"provided by a-first 1\.0 and b-second 1\.0 and c-third 1\.0"):
        catalog.register_model("net", TorchNet)
    catalog.register_model("net", TorchNet)
    assert catalog.registry.get("model", "net").in_process


def test_disabling_one_of_two_providers_settles_a_clash(catalog_of):
    plugins = {"a-first": [model("net")], "b-second": [model("net")]}
    catalog = catalog_of(plugins, environ={"RLCATALOG_DISABLE_PLUGINS": "a-first", "RLCATALOG_STRICT_PLUGINS": "1"})
    assert who(catalog) == "b-second"


def test_the_argument_counts_more_than_the_environment(catalog_of):
    plugins = {name: [model("net")] for name in ("a", "b", "c")}
    catalog = catalog_of(plugins, prefer=["c"], environ={"RLCATALOG_PREFER_PLUGINS": "b"})
    assert who(catalog) == "c"
    assert catalog.prefer == ("c", "b")


# --- owners ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thief", ["aa-x", "zz-x"])
@pytest.mark.parametrize("prefer", [(), ("aa-x", "zz-x")])
@pytest.mark.parametrize("installed", [True, False])
def test_a_listed_name_is_its_owners_and_the_thief_loses_that_part_alone(catalog_of, thief, prefer, installed):
    plugins = {thief: [model("fcnet"), model("other")]} | ({"rlcatalog-fcnet": [model("fcnet")]} if installed else {})
    with pytest.warns(PluginWarning, match=f"of {thief} 1.0 is loaded, but .*'fcnet' belongs to rlcatalog-fcnet"):
        catalog = catalog_of(plugins, prefer=prefer)
    assert who(catalog, "other") == thief
    if installed:
        assert who(catalog, "fcnet") == "rlcatalog-fcnet"
    else:
        with pytest.raises(MissingPluginError, match="pip install rlcatalog-fcnet"):
            who(catalog, "fcnet")
    with pytest.raises(UnknownNameError):
        who(catalog, f"{thief}/fcnet")


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("acme_resnet", "acme-resnet"),
        ("acme_resnet_50", "acme-resnet"),
        ("Acme-ResNet.deep", "acme-resnet"),
        ("acme_resnets", "acme"),
        ("acme_x", "acme"),
        ("acme", "acme"),
        ("acmenet", None),
        ("resnet_acme", None),
    ],
)
def test_an_unlisted_name_is_that_of_the_longest_distribution_it_begins_with(catalog_of, name, owner):
    distributions = ("acme", "acme-resnet", "other")
    with pytest.warns(PluginWarning):
        catalog = catalog_of(
            {d: [model(name, targets={"torch": "m:C"}), model(f"free_{d[-1]}")] for d in distributions}
        )
    assert set(statuses(catalog).values()) == {"loaded"}
    if owner is not None:
        assert who(catalog, name) == owner
        assert [c.distribution for c in catalog.components("model") if c.name == name] == [owner]
    else:
        with pytest.raises(AmbiguousChoiceError):
            who(catalog, name)


def test_a_disabled_owner_keeps_its_name(catalog_of):
    plugins = {"acme": [model("acme_net")], "zeta": [model("acme_net")]}
    with pytest.warns(PluginWarning, match="of zeta 1.0 is failed: .*'acme_net' belongs to acme"):
        catalog = catalog_of(plugins, environ={"RLCATALOG_DISABLE_PLUGINS": "acme"})
    assert catalog.components() == []


def test_a_command_called_like_the_kernels_is_lost(entry_point, plugin):
    specs = [CommandSpec(name, {"cli": "m:f"}, "") for name in ("list", "explain", "acme_sail")]
    with pytest.warns(PluginWarning) as caught:
        catalog = Catalog([entry_point("acme", plugin(rlcatalog_commands=specs))], environ={})
    for name, warning in zip(("explain", "list"), caught, strict=True):
        assert f"command {name!r} belongs to rlcatalog" in str(warning.message)
    assert catalog.registry.names(["command"]) == ["acme_sail"]


# --- ties ------------------------------------------------------------------------------------------------------------


def trunk(catalog):
    info = SpaceInfo.read(BOX)
    request = Request(info, info, catalog.schema.defaults(), "torch", (3,), 2)
    return catalog.slots.model(request, None, None)[0]["trunk"]


def test_a_tie_names_both_and_the_ways_out(catalog_of):
    catalog = catalog_of({"dist-one": [model("one", rank=Rank.GENERIC)], "dist-two": [model("two", rank=Rank.GENERIC)]})
    with pytest.raises(AmbiguousChoiceError) as raised:
        trunk(catalog)
    message = str(raised.value)
    assert message.startswith("trunk: 'one' (dist-one 1.0: one takes it) and 'two' (dist-two 1.0: two takes it) match ")
    for part in (
        "equally well (GENERIC)",
        "name one in the config",
        "RLCATALOG_PREFER_PLUGINS=dist-one",
        "RLCATALOG_DISABLE_PLUGINS=dist-two",
    ):
        assert part in message


@pytest.mark.parametrize("variable", ["RLCATALOG_PREFER_PLUGINS", "RLCATALOG_DISABLE_PLUGINS"])
def test_the_ways_out_that_a_tie_names_work(catalog_of, variable):
    plugins = {"dist-one": [model("one", rank=Rank.GENERIC)], "dist-two": [model("two", rank=Rank.GENERIC)]}
    with pytest.raises(AmbiguousChoiceError) as raised:
        trunk(catalog_of(plugins))
    way = str(raised.value).partition(f"{variable}=")[2].partition(".")[0].partition(",")[0].split()[0]
    choice = trunk(catalog_of(plugins, environ={variable: way}))
    assert choice.component is not None
    assert choice.component.name == "one"


@pytest.mark.parametrize(("prefer", "name"), [("dist-one", "one"), ("dist_two", "two")])
def test_a_preference_settles_a_tie(catalog_of, prefer, name):
    plugins = {"dist-one": [model("one", rank=Rank.GENERIC)], "dist-two": [model("two", rank=Rank.GENERIC)]}
    for catalog in (
        catalog_of(plugins, prefer=[prefer]),
        catalog_of(plugins, environ={"RLCATALOG_PREFER_PLUGINS": prefer}),
    ):
        choice = trunk(catalog)
        assert choice.component is not None
        assert choice.component.name == name
        assert choice.verdicts[0].component.name == name


def test_a_preference_does_not_beat_a_better_rank(catalog_of):
    plugins = {"dist-one": [model("one", rank=Rank.SPECIFIC)], "dist-two": [model("two", rank=Rank.GENERIC)]}
    choice = trunk(catalog_of(plugins, prefer=["dist-two"]))
    assert choice.component is not None
    assert choice.component.name == "one"
    assert [(v.component.name, v.rank) for v in choice.verdicts] == [("one", Rank.SPECIFIC), ("two", Rank.GENERIC)]


def test_a_tie_with_a_registration_of_the_program_names_ways_out_that_exist(catalog_of):
    catalog = catalog_of({"dist-one": [model("one", rank=Rank.GENERIC)]})
    for name in ("another", "zet"):
        catalog.register(model(name, rank=Rank.GENERIC))
        with pytest.raises(AmbiguousChoiceError) as raised:
            trunk(catalog)
        message = str(raised.value)
        assert "registered in process" in message
        assert "name one in the config" in message
        for variable in ("RLCATALOG_PREFER_PLUGINS=", "RLCATALOG_DISABLE_PLUGINS="):
            assert variable not in message or f"{variable}dist-one" in message


# --- registering in process ------------------------------------------------------------------------------------------


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


def test_a_programs_registration_does_not_take_a_plugins_name_unasked(catalog_of):
    catalog = catalog_of({"dist-one": [model("net")]})
    with pytest.raises(DuplicateNameError) as raised:
        catalog.register_model("net", TorchNet)
    assert "model 'net' is provided by dist-one 1.0" in str(raised.value)
    assert "under another name, or pass override=True" in str(raised.value)
    assert who(catalog) == "dist-one"


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
        ("register_model", int, "must be a registered name or a subclass of rlcatalog_torch.TorchModelV2"),
        ("register_model", TorchNet.__init__, "rlcatalog_tf.TFModelV2"),
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
    assert [(c.kind, c.name) for c in catalog.components()] == [("action_dist", "dist"), ("preprocessor", "codec")]
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
            PreprocessorSpec("codec", {"numpy": "made_up_parts:Codec"}, "", match=takes(Rank.GENERIC))
        ],
        rlcatalog_action_dists=[
            ActionDistSpec("dist", {"torch": "m:D"}, "", match=takes(Rank.GENERIC), size=lambda space, config: 2)
        ],
    )
    catalog = Catalog([entry_point("parts", made)], environ={})
    action = gym.spaces.Discrete(2)
    before = catalog.resolve(BOX, action)
    assert catalog.resolve(BOX, action) is before
    catalog.register(model("better", rank=Rank.SPECIFIC))
    assert catalog.resolve(BOX, action).component("trunk").name == "better"


# --- unknown, missing ------------------------------------------------------------------------------------------------


def test_an_unknown_name_suggests_the_nearest_and_lists_what_exists(catalog_of):
    catalog = catalog_of({"dist-one": [model("transformer"), model("convnet")]})
    with pytest.raises(UnknownNameError) as raised:
        catalog.registry.get("model", "transfromer")
    assert str(raised.value) == (
        "Unknown model 'transfromer'. Did you mean 'transformer'? Known: convnet, transformer."
    )
    assert isinstance(raised.value, KeyError)


def test_an_unknown_name_without_a_near_one(catalog_of):
    with pytest.raises(UnknownNameError, match=r"^Unknown model 'xyz'\. Known: net\.$"):
        catalog_of({"dist-one": [model("net")]}).registry.get("model", "xyz")


def test_an_unknown_name_where_nothing_is_installed():
    with pytest.raises(UnknownNameError) as raised:
        Catalog([], environ={}).registry.get("action_dist", "xyz")
    assert "Unknown action dist 'xyz'. No action dists are installed." in str(raised.value)
    assert "pip install rlcatalog-" in str(raised.value)


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
        f"{label} {name!r} is provided by {distribution}, which is not installed: pip install {distribution}"
    )


def test_a_part_by_its_full_name_whose_package_is_not_installed():
    with pytest.raises(MissingPluginError, match="is provided by some-dist, which is not installed"):
        Catalog([], environ={}).registry.get("model", "some-dist/net")


def test_a_part_whose_package_is_disabled_says_so(entry_point):
    environ = {"RLCATALOG_DISABLE_PLUGINS": "fcnet"}
    catalog = Catalog([entry_point("rlcatalog-fcnet", name="fcnet", version="0.1.0")], environ=environ)
    with pytest.raises(MissingPluginError) as raised:
        catalog.registry.get("model", "fcnet")
    assert "model 'fcnet' is provided by rlcatalog-fcnet 0.1.0, which is disabled: disabled by" in str(raised.value)
    assert "RLCATALOG_DISABLE_PLUGINS='fcnet'" in str(raised.value)


def test_a_part_whose_package_failed_says_why(entry_point):
    with pytest.warns(PluginWarning):
        catalog = Catalog([entry_point("rlcatalog-fcnet", plugin=OSError("disk on fire"))], environ={})
    with pytest.raises(MissingPluginError, match=r"rlcatalog-fcnet 1\.0, which is failed: OSError: disk on fire"):
        catalog.registry.get("model", "fcnet")


def test_a_part_that_a_loaded_package_does_not_have_is_unknown(catalog_of):
    with pytest.raises(UnknownNameError, match="Known: net"):
        catalog_of({"dist-one": [model("net")]}).registry.get("model", "dist-one/other")


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


# --- frameworks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def not_installed(monkeypatch):
    """Pretend that modules are not installed."""

    def hide(*modules):
        real = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *args: None if name in modules else real(name, *args)
        )

    return hide


def test_the_names_of_frameworks():
    assert [framework_name(name) for name in ("torch", "tf", "tf2")] == ["torch", "tf", "tf"]


@pytest.mark.parametrize(
    ("name", "suggestion"), [("pytorch", " Did you mean 'torch'?"), ("jax", ""), ("Torch", " Did you mean 'torch'?")]
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
    began, specs = threading.Event(), list(provided.frameworks())
    expected = list(frameworks())

    def slow():
        yield specs[0]
        began.set()
        time.sleep(0.2)  # the other thread asks meanwhile
        yield from specs[1:]

    monkeypatch.setattr(table, "_TABLE", {})
    monkeypatch.setattr(table, "_filled", False)
    monkeypatch.setitem(provided._found, "frameworks", slow)
    first = threading.Thread(target=frameworks)
    first.start()
    assert began.wait(10)
    found = list(frameworks())
    first.join()
    assert found == expected


@pytest.mark.parametrize(
    ("missing", "framework"),
    [((), "torch"), (("tensorflow",), "torch"), (("torch",), "tf"), (("torch", "tensorflow"), "torch")],
)
def test_the_installed_framework_is_the_default_one(not_installed, missing, framework):
    if framework == "tf":
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    not_installed(*missing)
    assert default_framework() == framework
    assert Catalog([], environ={}).slots.framework(None) == framework
    assert Catalog([], environ={}).slots.framework("torch") == "torch"  # a name wins; that it is missing is said later


@pytest.mark.parametrize(("framework", "module"), [("torch", "torch"), ("tf", "tensorflow")])
def test_a_framework_that_is_not_installed_names_the_extra(not_installed, framework, module):
    not_installed(module)
    with pytest.raises(MissingFrameworkError) as raised:
        require_framework(framework)
    assert str(raised.value) == (
        f"framework={framework!r} needs the package {module!r}, which is not installed here."
        f" Install it with: pip install 'rlcatalog[{framework}]'"
    )


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_part_names_its_own_packages_extra(catalog_of, not_installed, framework):
    not_installed("torch", "tensorflow")
    catalog = catalog_of({"dist-one": [model("net", targets={"torch": "m:C", "tf": "m:D"})]})
    with pytest.raises(MissingFrameworkError, match=rf"pip install 'dist-one\[{framework}\]'"):
        catalog.registry.get("model", "net").load(framework)
    catalog.register_model("mine", TorchNet)
    with pytest.raises(MissingFrameworkError, match=r"pip install 'rlcatalog\[torch\]'"):
        catalog.registry.get("model", "mine").load("torch")


def test_a_part_without_code_for_a_framework_says_which_it_has(catalog_of):
    catalog = catalog_of({"dist-one": [model("net")]})
    with pytest.raises(NotServedError) as raised:
        catalog.registry.get("model", "net").load("tf")
    assert str(raised.value) == "model 'net' (dist-one 1.0) has no code for framework='tf'; it serves: torch."


# --- targets ---------------------------------------------------------------------------------------------------------

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
    assert message.startswith(f"preprocessor 'codec' (registered in process): its target {target!r} cannot be imported")
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
