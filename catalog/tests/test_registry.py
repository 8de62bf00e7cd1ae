"""The registry: which distribution provides a name, parts that the program registers, and errors
for names that are unknown or missing.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
import threading
import time

import pytest

from rlcatalog import (
    ActionDistSpec,
    Catalog,
    CommandSpec,
    FrameworkSpec,
    Match,
    ModelSpec,
    ModelV2,
    PreprocessorSpec,
    plugin_access,
)
from rlcatalog.catalog.snapshot import framework_for
from rlcatalog.errors import (
    ActionError,
    ActionMaskError,
    AmbiguousChoiceError,
    CatalogError,
    DuplicateNameError,
    MissingFrameworkError,
    MissingPluginError,
    NonFiniteError,
    NotServedError,
    ObservationError,
    PluginError,
    PluginWarning,
    UnknownNameError,
)
from rlcatalog.frameworks import default_framework, framework_name, frameworks, require_framework
from rlcatalog.plugins import install_hint
from rlcatalog.plugins.names import may_claim


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


@pytest.fixture(params=itertools.permutations(["acme", "acme-net", "zeta"]), ids="-then-".join)
def catalog_with_contested_name(make_catalog, request):
    """A catalog of three plugins, in any order, that each have a model "acme_net_small".

    acme and acme-net may both claim it, because it begins with the names of both.
    """
    return make_catalog({name: [declare_model("acme_net_small")] for name in request.param})


def test_contested_name_error_lists_both_addresses(catalog_with_contested_name):
    with pytest.raises(AmbiguousChoiceError, match="needs its distribution's name") as caught:
        find_provider(catalog_with_contested_name, "acme_net_small")

    assert str(caught.value).startswith("model 'acme_net_small' ")
    ways = "Use 'acme/acme_net_small' or 'acme-net/acme_net_small'."
    assert str(caught.value).endswith(ways)


def test_contested_name_is_found_by_address(catalog_with_contested_name):
    for name in ("acme", "acme-net", "zeta"):
        address = f"{name}/acme_net_small"
        assert find_provider(catalog_with_contested_name, address) == name


def test_contested_name_may_be_registered(catalog_with_contested_name):
    catalog_with_contested_name.register_model("acme_net_small", TorchNet)

    assert catalog_with_contested_name.registry.get("model", "acme_net_small").in_process


def test_models_are_listed_by_name_or_address(make_catalog):
    catalog = make_catalog(
        {
            "acme": [declare_model("acme"), declare_model("acme_net_small")],
            "acme-net": [declare_model("acme_net"), declare_model("acme_net_small")],
        }
    )

    assert catalog.registry.names(["model"]) == [
        "acme",
        "acme-net/acme_net_small",  # an address, because both plugins have this name
        "acme/acme_net_small",
        "acme_net",
    ]


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

    [part] = empty_catalog.parts("model")
    assert part.load("torch") is TorchNet
    assert part.in_process
    assert part.provider == "registered in process"


def test_registered_model_may_be_replaced(empty_catalog):
    empty_catalog.register_model("mine", TorchNet)
    empty_catalog.register_model("mine", OtherTorchNet)

    [part] = empty_catalog.parts("model")
    assert part.load("torch") is OtherTorchNet
    assert part.declaration.summary == "Another one."  # the docstring


def test_registered_model_belongs_to_one_catalog(empty_catalog):
    other_catalog = Catalog([], environ={})

    empty_catalog.register_model("mine", TorchNet)

    assert other_catalog.parts() == []


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
        (NonFiniteError, FloatingPointError),
        (ActionError, ValueError),
        (ActionMaskError, ValueError),
        (ObservationError, ValueError),
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
    installed = frameworks()
    has_begun = threading.Event()

    def list_slowly(kind):
        first, *others = installed.values()
        yield first
        has_begun.set()
        time.sleep(0.2)  # the main thread asks meanwhile
        yield from others

    monkeypatch.setattr(FrameworkSpec.table, "_specs", None)
    monkeypatch.setattr(plugin_access.plugins, "load_indexed", list_slowly)
    other_thread = threading.Thread(target=frameworks)
    other_thread.start()
    assert has_begun.wait(10)

    names_in_main_thread = list(frameworks())

    other_thread.join()
    assert names_in_main_thread == list(installed)


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
        ("a_module_nobody_has:Net", "", "No module named 'a_module_nobody_has'"),
        ("target:Missing", "class Net: pass", "module 'target' has no attribute 'Missing'"),
        ("target:Net", "class Net(:", "SyntaxError"),
        ("target:Net", "raise SystemExit(7)", "SystemExit: 7"),
        ("target:Net", "raise RuntimeError('no driver')", "RuntimeError: no driver"),
    ],
    ids=["missing-module", "missing-class", "syntax-error", "exit", "runtime-error"],
)
def test_import_error_of_a_target_names_its_cause(
    empty_catalog, read_entry_points, tmp_path, target, source, cause
):
    (tmp_path / "target.py").write_text(source, encoding="utf-8")
    read_entry_points(tmp_path)  # puts the folder on the path
    empty_catalog.register(PreprocessorSpec("codec", {"numpy": target}, ""))

    with pytest.raises(PluginError, match="cannot be imported") as caught:
        empty_catalog.registry.get("preprocessor", "codec").load("numpy")

    message = str(caught.value)
    assert message.startswith("preprocessor 'codec' (registered in process): ")
    assert f"its target {target!r} cannot be imported" in message
    assert cause in message


def test_target_is_imported_when_it_is_loaded(empty_catalog, read_entry_points, tmp_path):
    (tmp_path / "target_lazy.py").write_text("class Codec: pass\n", encoding="utf-8")
    read_entry_points(tmp_path)
    empty_catalog.register(PreprocessorSpec("codec", {"numpy": "target_lazy:Codec"}, ""))
    part = empty_catalog.registry.get("preprocessor", "codec")
    assert "target_lazy" not in sys.modules

    assert part.load("numpy").__name__ == "Codec"
