"""Third-party plugins: failing parts, requests, config keys, classes by name, and processes."""

from __future__ import annotations

import json

import gymnasium as gym
import msgspec
import numpy as np
import pytest
from faulty_functions import function_that_raises
from plugin_processes import run_beside_plugins

import rlcatalog
from rlcatalog import Catalog, Match, ModelSpec, PreprocessorSpec, Rank
from rlcatalog.config import read_config
from rlcatalog.errors import AmbiguousChoiceError, ConfigError, PluginError, PluginWarning
from rlcatalog_testing import PluginEntryPoint, isolated_catalog

BUILT_IN = ("rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical")
FOUR_FEATURES = gym.spaces.Box(-1, 1, (4,), np.float32)
TWO_ACTIONS = gym.spaces.Discrete(2)


def match_best(request):
    return Match(Rank.SPECIFIC, "fits")


def choose_trunk(catalog, config=None):
    return catalog.resolve(FOUR_FEATURES, TWO_ACTIONS, config, "torch").choices["trunk"].part


# --- parts that raise errors ----------------------------------------------------------------------


def test_broken_part_does_not_matter_if_it_is_not_chosen(plugin):
    exit_the_program = function_that_raises(SystemExit("no licence"))
    net = ModelSpec("acme_net", {"torch": "m:C"}, "", match=match_best, describe=exit_the_program)
    acme = PluginEntryPoint(plugin(rlcatalog_models=[net]), "acme")

    assert choose_trunk(isolated_catalog(*BUILT_IN, acme)).name == "fcnet"


@pytest.fixture
def catalog_of_acme_net(plugin):
    """A catalog with acme_net, whose class is `made_up_parts.Net`."""
    net = ModelSpec("acme_net", {"torch": "made_up_parts:Net"}, "")
    return isolated_catalog(*BUILT_IN, PluginEntryPoint(plugin(rlcatalog_models=[net]), "acme"))


def test_model_whose_constructor_fails_is_an_error(catalog_of_acme_net, module):
    pytest.importorskip("torch")
    from rlcatalog_torch import TorchModelV2

    class Net(TorchModelV2):
        def __init__(self, *arguments):
            raise RuntimeError("no driver")

    module(Net=Net)
    config = {"custom_model": "acme_net"}

    with pytest.raises(PluginError, match="cannot be built: RuntimeError: no driver"):
        rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, config, "torch", catalog=catalog_of_acme_net)


def test_model_that_cannot_be_imported_is_an_error(catalog_of_acme_net, module):
    pytest.importorskip("torch")
    module()  # without members
    config = {"custom_model": "acme_net"}

    with pytest.raises(PluginError, match="cannot be imported"):
        rlcatalog.build(FOUR_FEATURES, TWO_ACTIONS, config, "torch", catalog=catalog_of_acme_net)


# --- requests -------------------------------------------------------------------------------------


@pytest.fixture
def resolve_with_match(plugin):
    """Resolve a config with hidden layers of 64 beside a model with this match function.

    Its package is preferred, so that it is asked before the built-in models.
    """

    def resolve(match):
        spec = ModelSpec("acme", {"torch": "m:C"}, "", match=match)
        acme = PluginEntryPoint(plugin(rlcatalog_models=[spec]), "acme")
        catalog = isolated_catalog(*BUILT_IN, acme, prefer=["acme"])
        return catalog.resolve(FOUR_FEATURES, TWO_ACTIONS, {"fcnet_hiddens": [64, 64]}, "torch")

    return resolve


def test_match_function_cannot_change_lists_of_the_config(resolve_with_match):
    from rlcatalog_fcnet.config import FcnetConfig

    hiddens_in_match = []

    def match(request):
        # What a match function gets are copies.
        request.config["fcnet_hiddens"].append(7)
        read_config(request.config, FcnetConfig).fcnet_hiddens.append(7)
        hiddens_in_match.append(list(request.config["fcnet_hiddens"]))
        return Match(None, "does not fit")

    resolution = resolve_with_match(match)  # its config has {"fcnet_hiddens": [64, 64]}

    assert hiddens_in_match == [[64, 64]]
    assert resolution.config["fcnet_hiddens"] == [64, 64]
    assert read_config(resolution.config.fresh(), FcnetConfig).fcnet_hiddens == [64, 64]
    hidden_shapes = [stage.shape for stage in resolution.shapes if "hidden" in stage.name]
    assert hidden_shapes == [(64,), (64,)]


def test_match_function_cannot_set_fields_of_a_request(resolve_with_match):
    def match(request):
        request.encoded_shape = (9,)

    with pytest.raises(PluginError, match="match function raised") as caught:
        resolve_with_match(match)

    assert isinstance(caught.value.__cause__, AttributeError)


def test_match_function_cannot_set_keys_of_the_config(resolve_with_match):
    def match(request):
        request.config["fcnet_hiddens"] = [7]

    with pytest.raises(PluginError, match="match function raised") as caught:
        resolve_with_match(match)

    assert isinstance(caught.value.__cause__, TypeError)


def test_match_function_cannot_change_a_space(resolve_with_match):
    def match(request):
        request.obs.low.fill(7)

    with pytest.raises(PluginError, match="read-only"):
        resolve_with_match(match)

    assert (FOUR_FEATURES.low == -1).all()


# --- config keys ----------------------------------------------------------------------------------


class FirstConfig(msgspec.Struct, frozen=True):
    size: int = 1


class SecondConfig(msgspec.Struct, frozen=True):
    size: str = "two"
    max_seq_len: int = 3
    second_depth: int = 4


@pytest.fixture
def two_sizes(plugin, module):
    """A catalog with packages first and second, which both declare the key `size`."""
    module(FirstConfig=FirstConfig, SecondConfig=SecondConfig)
    points = []
    for name, struct in [("first", "FirstConfig"), ("second", "SecondConfig")]:
        targets = {"torch": "m:C"}
        spec = ModelSpec(f"{name}_net", targets, "", config=f"made_up_parts:{struct}")
        points.append(PluginEntryPoint(plugin(rlcatalog_models=[spec]), name))
    return isolated_catalog(*BUILT_IN, *points)


def test_key_of_two_packages_needs_the_name_of_one(two_sizes):
    with pytest.raises(ConfigError, match="Use 'first/size' or 'second/size'") as caught:
        two_sizes.parse_config({"size": 3})

    assert "'size' needs its distribution's name" in str(caught.value)


def test_key_with_its_package_sets_only_that_one(two_sizes):
    config = {"first/size": 3, "second/size": "four", "second_depth": 9}

    values = two_sizes.parse_config(config)

    assert read_config(values, FirstConfig).size == 3
    assert read_config(values, SecondConfig).size == "four"
    assert values["first/size"] == 3
    assert values["second/size"] == "four"
    assert values["second_depth"] == 9


def test_key_with_its_package_can_be_set_in_a_copy(two_sizes):
    fresh = two_sizes.parse_config(None).fresh()

    fresh["second/size"] = "five"

    assert read_config(fresh, FirstConfig).size == 1  # its default
    assert read_config(fresh, SecondConfig).size == "five"


def test_key_of_two_packages_does_not_hinder_lookups(two_sizes):
    assert choose_trunk(two_sizes).name == "fcnet"


def test_config_keys_of_a_part_name_the_package_of_shared_keys(two_sizes):
    first_net = two_sizes.registry.get("model", "first_net")

    assert two_sizes.config_keys(first_net) == ["first/size"]


def test_kernel_key_keeps_its_meaning_beside_that_of_a_plugin(two_sizes):
    values = two_sizes.parse_config({"max_seq_len": 7, "second/max_seq_len": 8})

    assert values["max_seq_len"] == 7
    assert read_config(values, SecondConfig).max_seq_len == 8


# --- mistakes in the module of a plugin -----------------------------------------------------------


def test_star_import_error_names_the_import(tmp_path, install_plugin, read_entry_points):
    install_plugin(tmp_path, "starry", "from rlcatalog import *\n")

    with pytest.warns(PluginWarning, match=r"import \*` needs a catalog"):
        Catalog(read_entry_points(tmp_path), environ={})


# --- classes by name ------------------------------------------------------------------------------


@pytest.fixture
def use_plugins(plugin, module, monkeypatch):
    """Make a catalog with these packages the default one.

    Each declares the preprocessors OneHotPreprocessor, as a built-in class is called, and Mine.
    """
    module(OneHotPreprocessor=int, Mine=float)

    def use(*distributions):
        points = []
        for name in distributions:
            specs = [
                PreprocessorSpec(f"{name}_{cls}", {"numpy": f"made_up_parts:{cls}"}, "")
                for cls in ("OneHotPreprocessor", "Mine")
            ]
            points.append(PluginEntryPoint(plugin(rlcatalog_preprocessors=specs), name))
        catalog = isolated_catalog(*BUILT_IN, *points)
        monkeypatch.setattr(rlcatalog, "default_catalog", lambda: catalog)

    return use


@pytest.mark.parametrize("distributions", [["acme"], ["acme", "emca"]])
def test_built_in_preprocessor_class_keeps_its_name(use_plugins, distributions):
    import rlcatalog.preprocessors
    from rlcatalog_preprocessors.integers import OneHotPreprocessor

    use_plugins(*distributions)

    assert rlcatalog.preprocessors.OneHotPreprocessor is OneHotPreprocessor


def test_preprocessor_class_of_a_plugin_is_found_by_name(use_plugins):
    import rlcatalog.preprocessors

    use_plugins("acme")

    assert rlcatalog.preprocessors.Mine is float


def test_preprocessor_class_of_two_plugins_is_ambiguous(use_plugins):
    import rlcatalog.preprocessors

    use_plugins("acme", "emca")

    with pytest.raises(AmbiguousChoiceError, match="Mine is a class of acme and emca"):
        rlcatalog.preprocessors.Mine


# --- processes ------------------------------------------------------------------------------------


def list_plugins(folder, *arguments, **options):
    """Return the plugins that `rlcatalog list --json` lists, by distribution, and its stderr."""
    command = run_beside_plugins([folder], "list", "--json", *arguments, **options)
    assert command.returncode == 0, command.stderr
    plugins = {plugin["distribution"]: plugin for plugin in json.loads(command.stdout)["plugins"]}
    return plugins, command.stderr


PRINTING_PLUGIN = """
import os
print("hello")
os.system("echo from a shell")
os.write(1, b"raw\\n")
"""


def test_list_keeps_output_of_plugins_out_of_the_json(tmp_path, install_plugin):
    install_plugin(tmp_path, "acme-printing", PRINTING_PLUGIN)

    plugins, stderr = list_plugins(tmp_path)

    assert "hello" in stderr
    assert plugins["acme-printing"]["status"] == "loaded"
    assert "it has no hook" in plugins["acme-printing"]["error"]
    assert plugins["rlcatalog-fcnet"]["status"] == "loaded"


def test_explain_keeps_output_of_plugins_out_of_the_json(tmp_path, install_plugin):
    install_plugin(tmp_path, "acme-printing", PRINTING_PLUGIN)

    command = run_beside_plugins([tmp_path], "explain", "CartPole-v1", "--json")

    assert json.loads(command.stdout)["model"]["chosen"] == "fcnet"


def test_list_reports_a_plugin_whose_warning_is_an_error(tmp_path, install_plugin):
    warning = "import warnings\nwarnings.warn('old', DeprecationWarning, stacklevel=1)\n"
    install_plugin(tmp_path, "acme-old", warning)

    flags = ["-W", "error::DeprecationWarning:acme_old", "-W", "error::UserWarning"]
    plugins, _ = list_plugins(tmp_path, python_flags=flags)

    assert plugins["acme-old"]["error"] == "DeprecationWarning: old"


def test_list_reports_a_plugin_whose_metadata_cannot_be_decoded(tmp_path, install_plugin):
    info = install_plugin(tmp_path, "acme-latin")
    (info / "entry_points.txt").write_bytes("[rlcatalog.plugins]\nx = y # é\n".encode("latin-1"))

    plugins, _ = list_plugins(tmp_path)

    assert "entry_points.txt cannot be read: UnicodeDecodeError" in plugins["acme-latin"]["error"]
    assert plugins["rlcatalog-fcnet"]["status"] == "loaded"


def test_list_reports_a_plugin_whose_metadata_has_no_section(tmp_path, install_plugin):
    info = install_plugin(tmp_path, "acme-bare")
    (info / "entry_points.txt").write_text("x = rlcatalog_x\n")

    plugins, _ = list_plugins(tmp_path)

    assert "'x = rlcatalog_x' is not in a section" in plugins["acme-bare"]["error"]


def test_list_has_plugins_without_name_in_their_metadata(tmp_path, install_plugin):
    nameless = install_plugin(tmp_path, "acme-nameless")
    (nameless / "METADATA").write_text("Metadata-Version: 2.1\n")

    plugins, _ = list_plugins(tmp_path)

    assert plugins["acme-nameless"]["status"] == "loaded"


each_way_to_end = pytest.mark.parametrize(
    ("source", "cause"),
    [
        pytest.param("import os; os._exit(0)", "exit status 0", id="exit"),
        pytest.param("import os; os.kill(os.getpid(), 11)", "signal SIGSEGV", id="segfault"),
    ],
)


@each_way_to_end
def test_list_without_isolate_ends_with_a_deadly_plugin(tmp_path, install_plugin, source, cause):
    install_plugin(tmp_path, "deadly", source)

    command = run_beside_plugins([tmp_path], "list", RLCATALOG_LOAD_PLUGINS="deadly")

    assert command.stdout == ""


@each_way_to_end
def test_list_isolate_names_a_plugin_that_ends_the_process(tmp_path, install_plugin, source, cause):
    install_plugin(tmp_path, "deadly", source)
    # With --isolate, each plugin is loaded in a process of its own, so that few are loaded here.
    environ = {"RLCATALOG_LOAD_PLUGINS": "deadly,rlcatalog-fcnet"}

    plugins, _ = list_plugins(tmp_path, "--isolate", **environ)

    assert plugins["rlcatalog-fcnet"]["status"] == "loaded"
    assert plugins["deadly"]["status"] == "failed"
    assert plugins["deadly"]["error"] == (
        f"it ended the process that loaded it: {cause}; disable it with"
        " RLCATALOG_DISABLE_PLUGINS=deadly"
    )
