"""The registry: which distribution provides a name, parts that the program registers, and errors
for names that are unknown or missing.
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


def declare_model(name, *, rank=None, targets=None):
    """Declare a model; with a rank it matches everything."""

    def match(request):
        return Match(rank, f"{name} takes it")

    return ModelSpec(
        name,
        targets or {"torch": f"{name}_parts:Net"},
        f"the model {name}",
        match=None if rank is None else match,
    )


@pytest.fixture
def make_catalog(entry_point, plugin):
    """Make a catalog of plugins, given as distribution → its models."""

    def make(plugins, *, environ=None, prefer=()):
        points = [
            entry_point(distribution, plugin(rlcatalog_models=specs))
            for distribution, specs in plugins.items()
        ]
        return Catalog(points, environ=environ or {}, prefer=prefer)

    return make


def find_provider(catalog, name, *, kind="model"):
    """Return the distribution that provides a part."""
    return catalog.registry.get(kind, name).distribution


# --- addresses ------------------------------------------------------------------------------------


def test_address_takes_any_spelling_of_the_distribution(make_catalog):
    catalog = make_catalog({"some-dist": [declare_model("net")]})

    assert find_provider(catalog, "Some_Dist/net") == "some-dist"


def test_parts_of_different_kinds_may_share_a_name(entry_point, plugin):
    dist = ActionDistSpec("net", {"torch": "m:C"}, "", size=lambda space, config: 1)
    module = plugin(rlcatalog_models=[declare_model("net")], rlcatalog_action_dists=[dist])
    catalog = Catalog([entry_point("net", module)], environ={})

    assert find_provider(catalog, "net", kind="model") == "net"
    assert find_provider(catalog, "net", kind="action_dist") == "net"


#: acme and acme-net may both claim the name: it begins with the names of both.
CONTESTED_NAME = "acme_net_small"
CLAIMANTS = ["acme", "acme-net", "zeta"]


@pytest.fixture(params=itertools.permutations(CLAIMANTS), ids="-then-".join)
def catalog_of_claimants(make_catalog, request):
    """A catalog of three plugins, each with a model called like itself and the contested name."""
    return make_catalog(
        {
            name: [declare_model(CONTESTED_NAME), declare_model(name.replace("-", "_"))]
            for name in request.param
        }
    )


def test_contested_name_error_lists_both_addresses(catalog_of_claimants):
    with pytest.raises(AmbiguousChoiceError, match="needs its distribution's name") as caught:
        find_provider(catalog_of_claimants, CONTESTED_NAME)

    assert str(caught.value).startswith("model 'acme_net_small' ")
    ways = "Use 'acme/acme_net_small' or 'acme-net/acme_net_small'."
    assert str(caught.value).endswith(ways)


def test_contested_name_is_found_by_address(catalog_of_claimants):
    for name in CLAIMANTS:
        assert find_provider(catalog_of_claimants, f"{name}/{CONTESTED_NAME}") == name


def test_contested_name_leaves_other_names_alone(catalog_of_claimants):
    for name in CLAIMANTS:
        assert find_provider(catalog_of_claimants, name.replace("-", "_")) == name
    assert {record.status for record in catalog_of_claimants.plugins} == {"loaded"}
    assert catalog_of_claimants.registry.names(["model"]) == [
        "acme",
        "acme-net/acme_net_small",
        "acme/acme_net_small",
        "acme_net",
        "zeta",
        "zeta/acme_net_small",
    ]


def test_contested_name_may_be_registered(catalog_of_claimants):
    catalog_of_claimants.register_model(CONTESTED_NAME, TorchNet)

    assert catalog_of_claimants.registry.get("model", CONTESTED_NAME).in_process


@pytest.mark.parametrize(
    ("distributions", "ways"),
    [
        pytest.param(["acme"], "Use 'acme/net'.", id="one-plugin"),
        pytest.param(["acme", "zeta"], "Use 'acme/net' or 'zeta/net'.", id="two-plugins"),
    ],
)
def test_name_without_prefix_needs_its_distribution(make_catalog, distributions, ways):
    catalog = make_catalog({name: [declare_model("net")] for name in distributions})

    assert find_provider(catalog, "acme/net") == "acme"
    with pytest.raises(UnknownNameError, match=r"^model 'net' needs its distribution") as caught:
        find_provider(catalog, "net")
    assert str(caught.value).endswith(ways)


# The name is tried before and after the built-in package in alphabetical order.
each_thief = pytest.mark.parametrize("thief", ["thief", "aa-thief", "zz-thief"])
each_preference = pytest.mark.parametrize(
    "is_preferred", [False, True], ids=["not-preferred", "preferred"]
)


@each_thief
@each_preference
def test_built_in_name_cannot_be_taken_by_another_plugin(make_catalog, thief, is_preferred):
    plugins = {thief: [declare_model("fcnet")], "rlcatalog-fcnet": [declare_model("fcnet")]}
    catalog = make_catalog(plugins, prefer=[thief] if is_preferred else [])

    assert find_provider(catalog, "fcnet") == "rlcatalog-fcnet"
    assert find_provider(catalog, f"{thief}/fcnet") == thief


@each_thief
@each_preference
def test_built_in_name_stays_reserved_without_its_package(make_catalog, thief, is_preferred):
    catalog = make_catalog(
        {thief: [declare_model("fcnet")]}, prefer=[thief] if is_preferred else []
    )

    with pytest.raises(MissingPluginError) as caught:
        find_provider(catalog, "fcnet")
    assert install_hint("rlcatalog-fcnet") in str(caught.value)
    assert find_provider(catalog, f"{thief}/fcnet") == thief


@pytest.mark.parametrize(
    ("kind", "name", "distribution"),
    [
        ("model", "acme", "acme"),
        ("model", "acme_resnets", "acme"),
        ("model", "acme_resnet", "acme-resnet"),
        ("model", "acme_resnet_50", "acme-resnet"),
        ("model", "Acme-ResNet.deep", "acme-resnet"),
        ("model", "fcnet", "rlcatalog-fcnet"),
        ("suffix", ".acme", "acme"),
    ],
)
def test_distribution_may_claim_names_with_its_prefix(kind, name, distribution):
    assert may_claim(kind, name, distribution) is True


@pytest.mark.parametrize(
    ("kind", "name", "distribution"),
    [
        # The prefix has to end with the end of a word …
        ("model", "acme_resnets", "acme-resnet"),
        ("model", "acmenet", "acme"),
        # … and names of rlcatalog are never free.
        ("model", "fcnet", "fcnet"),
        ("config", "max_seq_len", "max"),
        ("command", "list", "list"),
        ("suffix", ".onnx", "onnx"),
    ],
)
def test_distribution_may_not_claim_other_names(kind, name, distribution):
    assert may_claim(kind, name, distribution) is False


def test_command_with_a_built_in_name_has_its_address(entry_point, plugin):
    specs = [CommandSpec(name, {"cli": "m:f"}, "") for name in ("list", "explain", "acme_sail")]
    catalog = Catalog([entry_point("acme", plugin(rlcatalog_commands=specs))], environ={})

    assert catalog.registry.names(["command"]) == ["acme/explain", "acme/list", "acme_sail"]


# --- ties -----------------------------------------------------------------------------------------

#: Two plugins whose models match equally well.
TWO_GENERIC = {
    "one": [declare_model("one", rank=Rank.GENERIC)],
    "two": [declare_model("two", rank=Rank.GENERIC)],
}
#: Two plugins of which "one" has the better match.
SPECIFIC_AND_GENERIC = {
    "one": [declare_model("one", rank=Rank.SPECIFIC)],
    "two": [declare_model("two", rank=Rank.GENERIC)],
}


def choose_trunk(catalog):
    info = SpaceInfo.read(BOX)
    request = Request(info, info, catalog.schema.defaults(), "torch", (3,), 2)
    choices, _unclaimed = catalog.slots.model(request, None, None)
    return choices["trunk"]


def test_tie_error_names_both_parts_and_the_options(make_catalog):
    with pytest.raises(AmbiguousChoiceError) as caught:
        choose_trunk(make_catalog(TWO_GENERIC))

    message = str(caught.value)
    assert message.startswith("trunk: ")
    assert "'one' (one 1.0: one takes it) and 'two' (two 1.0: two takes it)" in message
    assert "equally well (GENERIC)" in message
    assert "name one in the config" in message
    assert "RLCATALOG_PREFER_PLUGINS=one" in message
    assert "RLCATALOG_DISABLE_PLUGINS=two" in message


@pytest.mark.parametrize("variable", ["RLCATALOG_PREFER_PLUGINS", "RLCATALOG_DISABLE_PLUGINS"])
def test_tie_is_resolved_by_each_variable_of_the_error(make_catalog, variable):
    with pytest.raises(AmbiguousChoiceError) as caught:
        choose_trunk(make_catalog(TWO_GENERIC))
    value = re.search(rf"{variable}=(\w+)", str(caught.value)).group(1)

    choice = choose_trunk(make_catalog(TWO_GENERIC, environ={variable: value}))

    assert choice.component.name == "one"


@pytest.mark.parametrize(
    ("preferred", "name"),
    [pytest.param("one", "one", id="first"), pytest.param(" Two", "two", id="other-spelling")],
)
@pytest.mark.parametrize("source", ["argument", "environment"])
def test_tie_is_resolved_by_a_preference(make_catalog, preferred, name, source):
    if source == "argument":
        catalog = make_catalog(TWO_GENERIC, prefer=[preferred])
    else:
        catalog = make_catalog(TWO_GENERIC, environ={"RLCATALOG_PREFER_PLUGINS": preferred})

    choice = choose_trunk(catalog)

    assert choice.component.name == name
    first_candidate, _ = choice.verdicts[0]
    assert first_candidate.name == name


def test_better_rank_wins_among_preferred_plugins(make_catalog):
    choice = choose_trunk(make_catalog(SPECIFIC_AND_GENERIC, prefer=["two", "one"]))

    assert choice.component.name == "one"
    ranks = [(component.name, answer.rank) for component, answer in choice.verdicts]
    assert ranks == [("one", Rank.SPECIFIC), ("two", Rank.GENERIC)]


def test_preferred_plugin_wins_over_one_that_is_not_asked(make_catalog):
    choice = choose_trunk(make_catalog(SPECIFIC_AND_GENERIC, prefer=["two"]))

    assert choice.component.name == "two"


def test_registered_model_wins_over_plugins_at_any_rank(make_catalog):
    catalog = make_catalog({"one": [declare_model("one", rank=Rank.SPECIFIC)]})
    catalog.register(declare_model("mine", rank=Rank.FALLBACK))

    assert choose_trunk(catalog).component.name == "mine"


def test_tie_of_registered_models_is_resolved_by_name_only(make_catalog):
    catalog = make_catalog({})
    catalog.register(declare_model("mine", rank=Rank.FALLBACK))
    catalog.register(declare_model("other", rank=Rank.FALLBACK))

    with pytest.raises(AmbiguousChoiceError, match="registered in process") as caught:
        choose_trunk(catalog)

    options = "Options: name one in the config (custom_model='mine')."
    assert str(caught.value).endswith(options)


# --- registering in process -----------------------------------------------------------------------


class TorchNet(ModelV2):
    """A model of the running program."""

    framework_of_class = "torch"


class OtherTorchNet(TorchNet):
    """Another one."""


@pytest.fixture
def empty_catalog():
    """A catalog without plugins."""
    return Catalog([], environ={})


def test_registered_model_says_where_it_comes_from(empty_catalog):
    empty_catalog.register_model("mine", TorchNet)

    [component] = empty_catalog.components("model")
    assert component.load("torch") is TorchNet
    assert component.in_process
    assert component.provider == "registered in process"


def test_registered_model_may_be_replaced(empty_catalog):
    empty_catalog.register_model("mine", TorchNet)
    empty_catalog.register_model("mine", OtherTorchNet)

    [component] = empty_catalog.components("model")
    assert component.load("torch") is OtherTorchNet
    assert component.declaration.summary == "Another one."  # the docstring


def test_registered_model_belongs_to_one_catalog(empty_catalog):
    other_catalog = Catalog([], environ={})

    empty_catalog.register_model("mine", TorchNet)

    assert other_catalog.components() == []


def test_registered_part_may_be_a_declaration(empty_catalog):
    empty_catalog.register(FilterSpec("halve", {"numpy": "m:C"}, "halves"))

    assert empty_catalog.registry.get("filter", "halve").in_process


@pytest.mark.parametrize(
    ("method", "value", "phrase"),
    [
        pytest.param(
            "register_model", int, "a subclass of rlcatalog_torch.TorchModelV2", id="model-class"
        ),
        pytest.param(
            "register_model", {"a": TorchNet}, "a torch.nn.Module or keras.Layer", id="model-dict"
        ),
        pytest.param("register_action_dist", int, "rlcatalog.ActionDistribution", id="dist-class"),
        pytest.param(
            "register_preprocessor", TorchNet, "rlcatalog.Preprocessor", id="preprocessor-class"
        ),
    ],
)
def test_registering_something_else_is_rejected(empty_catalog, method, value, phrase):
    with pytest.raises(ModelContractError) as caught:
        getattr(empty_catalog, method)("mine", value)

    assert phrase in str(caught.value)
    assert empty_catalog.components() == []


class ThreeNumbers(Preprocessor):
    """A preprocessor with three outputs."""

    def _init_shape(self, obs_space, options):
        return (3,)


class FiveInputs(ActionDistribution):
    """A distribution with five inputs."""

    @staticmethod
    def required_model_output_shape(action_space, model_config=None):
        return 5


def test_registered_preprocessor_is_loaded_by_name(empty_catalog):
    empty_catalog.register_preprocessor("codec", ThreeNumbers)

    assert empty_catalog.registry.get("preprocessor", "codec").load("numpy") is ThreeNumbers


def test_registered_parts_are_listed_by_kind(empty_catalog):
    empty_catalog.register_preprocessor("codec", ThreeNumbers)
    empty_catalog.register_action_dist("dist", FiveInputs)

    listed = [(component.kind, component.name) for component in empty_catalog.components()]
    assert listed == [("action_dist", "dist"), ("preprocessor", "codec")]


def match_everything(request):
    return Match(Rank.GENERIC, "takes everything")


def test_registering_clears_cached_lookups(entry_point, plugin, module):
    module(Codec=ThreeNumbers)
    parts = plugin(
        rlcatalog_models=[declare_model("net", rank=Rank.GENERIC)],
        rlcatalog_preprocessors=[
            PreprocessorSpec("codec", {"numpy": "made_up_parts:Codec"}, "", match=match_everything)
        ],
        rlcatalog_action_dists=[
            ActionDistSpec(
                "dist",
                {"torch": "m:D"},
                "",
                match=match_everything,
                size=lambda space, config: 2,
            )
        ],
    )
    catalog = Catalog([entry_point("parts", parts)], environ={})
    action_space = gym.spaces.Discrete(2)
    before = catalog.resolve(BOX, action_space)
    assert catalog.resolve(BOX, action_space) is before

    catalog.register(declare_model("better", rank=Rank.SPECIFIC))

    assert catalog.resolve(BOX, action_space).component("trunk").name == "better"


# --- unknown, missing -----------------------------------------------------------------------------


def test_unknown_name_error_suggests_the_nearest_name(make_catalog):
    models = [declare_model("net_transformer"), declare_model("net_conv")]
    catalog = make_catalog({"net": models})

    with pytest.raises(UnknownNameError, match="Did you mean 'net_transformer'") as caught:
        catalog.registry.get("model", "net_transfromer")

    assert str(caught.value).startswith("Unknown model 'net_transfromer'. ")
    assert str(caught.value).endswith(" Known: net_conv, net_transformer.")
    assert isinstance(caught.value, KeyError)


def test_unknown_name_error_without_a_near_name_lists_names(make_catalog):
    catalog = make_catalog({"net": [declare_model("net")]})

    with pytest.raises(UnknownNameError, match=r"^Unknown model 'xyz'\. Known: net\.$"):
        catalog.registry.get("model", "xyz")


def test_unknown_name_error_without_parts_says_how_to_install(empty_catalog):
    with pytest.raises(UnknownNameError, match="No action dists are installed") as caught:
        empty_catalog.registry.get("action_dist", "xyz")

    assert str(caught.value).startswith("Unknown action dist 'xyz'. ")
    assert str(caught.value).endswith(install_hint("rlcatalog[torch]"))


@pytest.mark.parametrize(
    ("kind", "name", "distribution"),
    [
        ("model", "fcnet", "rlcatalog-fcnet"),
        ("action_dist", "categorical", "rlcatalog-categorical"),
        ("action_dist", "diag_gaussian", "rlcatalog-gaussian"),
        ("preprocessor", "onehot", "rlcatalog-preprocessors"),
    ],
)
def test_missing_built_in_part_error_names_its_package(empty_catalog, kind, name, distribution):
    with pytest.raises(MissingPluginError, match="which is not installed") as caught:
        empty_catalog.registry.get(kind, name)

    label = kind.replace("_", " ")
    assert str(caught.value).startswith(f"{label} {name!r} is provided by {distribution}, ")
    assert str(caught.value).endswith(install_hint(distribution))


def test_address_in_missing_package_error_names_the_package(empty_catalog):
    with pytest.raises(MissingPluginError, match="some-dist, which is not installed"):
        empty_catalog.registry.get("model", "some-dist/net")


def test_part_of_disabled_package_error_names_the_switch(entry_point):
    point = entry_point("rlcatalog-fcnet", name="fcnet", version="0.1.0")
    catalog = Catalog([point], environ={"RLCATALOG_DISABLE_PLUGINS": "fcnet"})

    with pytest.raises(MissingPluginError, match="which is disabled: disabled by") as caught:
        catalog.registry.get("model", "fcnet")

    assert str(caught.value).startswith("model 'fcnet' is provided by rlcatalog-fcnet 0.1.0, ")
    assert "RLCATALOG_DISABLE_PLUGINS='fcnet'" in str(caught.value)


def test_part_of_failed_package_error_names_the_failure(entry_point):
    point = entry_point("rlcatalog-fcnet", plugin=OSError("disk on fire"))
    with pytest.warns(PluginWarning):
        catalog = Catalog([point], environ={})

    with pytest.raises(MissingPluginError, match="has failed: OSError: disk on fire") as caught:
        catalog.registry.get("model", "fcnet")

    assert "rlcatalog-fcnet 1.0, which" in str(caught.value)


def test_address_of_a_part_that_a_package_lacks_is_unknown(make_catalog):
    catalog = make_catalog({"net": [declare_model("net")]})

    with pytest.raises(UnknownNameError, match="Known: net"):
        catalog.registry.get("model", "net/other")


@pytest.mark.parametrize(
    ("error", "built_in_error"),
    [
        (UnknownNameError, KeyError),
        (MissingPluginError, LookupError),
        (MissingFrameworkError, ImportError),
        (AmbiguousChoiceError, ValueError),
        (DuplicateNameError, ValueError),
        (PluginError, ImportError),
        (NotServedError, NotImplementedError),
    ],
)
def test_error_is_a_catalog_error_and_a_built_in_one(error, built_in_error):
    assert issubclass(error, CatalogError)
    assert issubclass(error, built_in_error)


# --- frameworks -----------------------------------------------------------------------------------


@pytest.fixture
def hide_modules(monkeypatch):
    """Pretend that modules are not installed."""

    def hide(*modules):
        find_spec = importlib.util.find_spec

        def find_spec_of_others(name, *args):
            return None if name in modules else find_spec(name, *args)

        monkeypatch.setattr(importlib.util, "find_spec", find_spec_of_others)

    return hide


@pytest.mark.parametrize(("name", "framework"), [("torch", "torch"), ("tf", "tf"), ("tf2", "tf")])
def test_framework_name_resolves_aliases(name, framework):
    assert framework_name(name) == framework


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("pytorch", " Did you mean 'torch'?"), ("jax", ""), ("Torch", " Did you mean 'torch'?")],
)
def test_unknown_framework_error_suggests_a_name(name, suggestion):
    with pytest.raises(UnknownNameError) as caught:
        framework_name(name)

    assert str(caught.value).startswith(f"Unknown framework {name!r}.{suggestion} Known: ")
    assert "'torch', 'tf' ('tf2' is an alias of 'tf')" in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(3, id="number"),
        pytest.param(None, id="none"),
        pytest.param(["torch"], id="list"),
        pytest.param({"torch": 1}, id="dict"),
    ],
)
def test_framework_that_is_not_text_is_unknown(value):
    with pytest.raises(UnknownNameError, match="Unknown framework"):
        framework_name(value)


def test_frameworks_waits_for_a_thread_that_lists_them(monkeypatch):
    specs = list(frameworks().values())
    expected = list(frameworks())
    has_begun = threading.Event()

    def list_slowly(kind):
        yield specs[0]
        has_begun.set()
        time.sleep(0.2)  # the main thread asks meanwhile
        yield from specs[1:]

    monkeypatch.delitem(provided.declarations, "framework")
    monkeypatch.setattr(provided, "index_declarations", list_slowly)
    other_thread = threading.Thread(target=frameworks)
    other_thread.start()
    assert has_begun.wait(10)

    names = list(frameworks())

    other_thread.join()
    assert names == expected


@pytest.mark.parametrize(
    ("missing", "framework"),
    [
        pytest.param((), "torch", id="both-installed"),
        pytest.param(("tensorflow",), "torch", id="only-torch"),
        pytest.param(("torch",), "tf", id="only-tensorflow"),
        pytest.param(("torch", "tensorflow"), "torch", id="none-installed"),
    ],
)
def test_default_framework_is_one_that_is_installed(hide_modules, missing, framework):
    if framework == "tf":
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    hide_modules(*missing)

    assert default_framework() == framework
    assert framework_for(None) == framework
    # A framework that is named is reported as missing only when it is needed.
    assert framework_for("torch") == "torch"


@pytest.mark.parametrize(("framework", "module"), [("torch", "torch"), ("tf", "tensorflow")])
def test_missing_framework_error_names_the_extra(hide_modules, framework, module):
    hide_modules(module)

    with pytest.raises(MissingFrameworkError, match="which is not installed") as caught:
        require_framework(framework)

    assert f"framework={framework!r} needs the package {module!r}, " in str(caught.value)
    assert str(caught.value).endswith(install_hint(f"rlcatalog[{framework}]"))


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_missing_framework_of_plugin_error_names_extra(make_catalog, hide_modules, framework):
    hide_modules("torch", "tensorflow")
    net = declare_model("net", targets={"torch": "m:C", "tf": "m:D"})
    catalog = make_catalog({"net": [net]})

    with pytest.raises(MissingFrameworkError) as caught:
        catalog.registry.get("model", "net").load(framework)

    assert install_hint(f"rlcatalog[{framework}]") in str(caught.value)


def test_missing_framework_of_registered_model_names_extra(empty_catalog, hide_modules):
    hide_modules("torch", "tensorflow")
    empty_catalog.register_model("mine", TorchNet)

    with pytest.raises(MissingFrameworkError) as caught:
        empty_catalog.registry.get("model", "mine").load("torch")

    assert install_hint("rlcatalog[torch]") in str(caught.value)


def test_part_without_code_for_framework_says_what_it_supports(make_catalog):
    catalog = make_catalog({"net": [declare_model("net", targets={"torch": "m:C"})]})

    with pytest.raises(NotServedError, match="has no code for framework='tf'") as caught:
        catalog.registry.get("model", "net").load("tf")

    assert str(caught.value).startswith("model 'net' (net 1.0) ")
    assert str(caught.value).endswith("it supports: torch.")


# --- targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "source", "cause"),
    [
        pytest.param(
            "a_module_nobody_has:Net",
            "",
            "ModuleNotFoundError: No module named 'a_module_nobody_has'",
            id="missing-module",
        ),
        pytest.param(
            "target:Missing",
            "class Net: pass\n",
            "AttributeError: module 'target' has no attribute 'Missing'",
            id="missing-class",
        ),
        pytest.param("target:Net", "class Net(:\n", "SyntaxError", id="syntax-error"),
        pytest.param("target:Net", "raise SystemExit(7)\n", "SystemExit: 7", id="exit"),
        pytest.param(
            "target:Net",
            "raise RuntimeError('no driver')\n",
            "RuntimeError: no driver",
            id="runtime-error",
        ),
    ],
)
def test_target_that_fails_to_import_error_names_cause(
    empty_catalog, installed, tmp_path, target, source, cause
):
    (tmp_path / "target.py").write_text(source, encoding="utf-8")
    installed(tmp_path)
    empty_catalog.register(PreprocessorSpec("codec", {"numpy": target}, ""))

    with pytest.raises(PluginError, match="cannot be imported") as caught:
        empty_catalog.registry.get("preprocessor", "codec").load("numpy")

    message = str(caught.value)
    assert message.startswith("preprocessor 'codec' (registered in process): ")
    assert f"its target {target!r} cannot be imported" in message
    assert cause in message
    assert caught.value.__cause__ is not None


def test_target_is_imported_when_it_is_loaded(empty_catalog, installed, tmp_path):
    (tmp_path / "target_lazy.py").write_text("class Codec: pass\n", encoding="utf-8")
    installed(tmp_path)
    empty_catalog.register(PreprocessorSpec("codec", {"numpy": "target_lazy:Codec"}, ""))
    component = empty_catalog.registry.get("preprocessor", "codec")
    assert "target_lazy" not in sys.modules

    assert component.load("numpy").__name__ == "Codec"
