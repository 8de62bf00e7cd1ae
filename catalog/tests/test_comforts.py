"""Working in a notebook: readable explanations, plugins installed while it runs, and classes
registered by a decorator.
"""

from __future__ import annotations

import html.parser
import inspect
import pickle
import re
import sys
import threading

import gymnasium as gym
import msgspec
import numpy as np
import pytest

import rlcatalog
from rlcatalog import Catalog, Filter, Match, ModelSpec, ModelV2, PreprocessorSpec, Rank, Stage
from rlcatalog.errors import DeclarationError, DuplicateNameError, ModelContractError, PluginWarning
from rlcatalog.plugins.discovery import scan
from rlcatalog_cli import main
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

BOX = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO = gym.spaces.Discrete(2)
MASKED = gym.spaces.Dict({"action_mask": gym.spaces.MultiBinary(2), "x": BOX})
PARTS = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-lstm",
    "rlcatalog-visionnet",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
    "rlcatalog-filters",
    "rlcatalog-multi-action",
)


@pytest.fixture(scope="module")
def shared():
    """A catalog for tests that only read it."""
    return isolated_catalog(*PARTS)


@pytest.fixture
def catalog():
    return isolated_catalog(*PARTS)


def make_plugin(*, reason="fits", describe=None, version="1.0"):
    """Return a plugin of acme whose model fits everything, for this reason."""

    def match(request):
        return Match(Rank.SPECIFIC, reason)

    spec = ModelSpec("fine", {"torch": "m:C"}, "", match=match, describe=describe)
    return PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme", version=version)


# --- explanations as text -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explanation(shared):
    """An explanation of a lookup with a filter, a memory, and a key that nothing reads."""
    config = {
        "use_lstm": True,
        "lstm_cell_size": 5,
        "conv_filters": "nature",
        "observation_filter": "MeanStdFilter",
    }
    return shared.explain(BOX, TWO, config, "torch")


def test_explanation_text_is_short(explanation):
    assert str(explanation) == repr(explanation)
    assert len(repr(explanation)) < 3000


@pytest.mark.parametrize(
    "heading",
    [
        "preprocessor: none",
        "filter: MeanStdFilter",
        "model: fcnet",
        "memory: lstm",
        "action_dist: categorical",
    ],
)
def test_explanation_text_names_each_chosen_part(explanation, heading):
    # Two spaces stand between the columns of a line.
    first_columns = [line.split("  ")[0] for line in repr(explanation).splitlines()]

    assert heading in first_columns


def test_explanation_text_has_stages_and_plan(explanation):
    text = repr(explanation)

    for stage in explanation.as_dict()["shapes"]:
        assert stage["stage"] in text
    assert re.search(r"^  obs +\(3,\) +box, 0:3$", text, re.MULTILINE)


def test_explanation_text_names_unread_keys(explanation):
    assert repr(explanation).splitlines()[-2] == "not read by any part: conv_filters"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(r"memory reads: use_lstm, lstm_cell_size, ", id="config-keys"),
        pytest.param(r"  not chosen: visionnet +takes images", id="other-candidates"),
    ],
)
def test_explanation_text_has_details_only_on_request(explanation, line):
    assert re.search(f"^{line}", explanation.text(all=True), re.MULTILINE)
    assert not re.search(f"^{line}", repr(explanation), re.MULTILINE)


def test_explanation_text_of_200_parts_is_cut(shared):
    space = gym.spaces.Dict({f"part {i:03d}": BOX for i in range(200)})

    text = repr(shared.explain(space, TWO, {}, "torch"))

    assert len(text) < 6000
    assert "... 176 more" in text  # 24 lines are shown
    assert max(len(line) for line in text.splitlines()) <= 700


def test_explanation_text_has_no_control_characters():
    plugin = make_plugin(reason="\x1b[2Jgone\nrow")
    catalog = isolated_catalog(*PARTS, plugin, prefer=["acme"])

    text = repr(catalog.explain(BOX, TWO, {}, "torch"))

    assert "\x1b" not in text
    assert any("gone row" in line for line in text.splitlines())


def test_explanation_text_lists_keys_of_the_head():
    catalog = isolated_catalog(*PARTS, "rlcatalog-parametric")

    explanation = catalog.explain(MASKED, TWO, {}, "torch")

    assert explanation.as_dict()["head"]["chosen"] == "parametric"
    assert re.search(r"^head reads: use_parametric, ", explanation.text(all=True), re.MULTILINE)


def test_explain_command_lists_keys_without_warnings(capsys, monkeypatch):
    catalog = isolated_catalog(*PARTS, "rlcatalog-parametric")
    monkeypatch.setattr("rlcatalog_cli.app.default_catalog", lambda: catalog)
    arguments = ["explain", "CartPole-v1", "--framework", "torch", "--all"]
    for setting in ("use_lstm=true", "use_parametric=false", "conv_filters=nature"):
        arguments += ["--model", setting]

    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 0
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert any(line.startswith("memory reads: use_lstm, lstm_cell_size, ") for line in lines)
    assert "not read by any part: conv_filters" in lines
    assert output.err == ""


# --- explanations as HTML -------------------------------------------------------------------------


class ParsedPage(html.parser.HTMLParser):
    """The tags and the texts of a page; it fails if a tag is not closed."""

    def __init__(self, page):
        super().__init__()
        self.open_tags = []
        self.tags = []
        self.texts = []
        self.feed(page)
        assert self.open_tags == []

    def handle_starttag(self, tag, attrs):
        self.open_tags.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


SCRIPT = "<script>alert('&')</script>"
EXPLANATION_TAGS = {
    "div", "p", "b", "ul", "li", "table", "tbody", "tr", "td", "details", "summary",
}  # fmt: skip


@pytest.fixture(scope="module")
def explanation_of_scripts():
    """An explanation of a plugin that wrote HTML into its reason, its stage and its version."""

    def describe(request):
        return [Stage(SCRIPT, (3,))]

    plugin = make_plugin(reason=SCRIPT, describe=describe, version="1<2")
    catalog = isolated_catalog(*PARTS, plugin, prefer=["acme"])
    return catalog.explain(BOX, TWO, {"conv_filters": "nature"}, "torch")


def read_tables(explanation):
    """Return the page of an explanation, parsed, without the picture that may stand before it."""
    page = explanation._repr_html_()
    return ParsedPage(page[page.index("<div>") :])


def test_explanation_html_escapes_texts_of_plugins(explanation_of_scripts):
    page = read_tables(explanation_of_scripts)

    assert "<script" not in explanation_of_scripts._repr_html_()
    assert set(page.tags) == EXPLANATION_TAGS
    assert f"{SCRIPT} (SPECIFIC)" in page.texts
    assert "acme 1<2" in page.texts


def test_explanation_html_has_unread_keys_and_stages(explanation_of_scripts):
    page = read_tables(explanation_of_scripts)

    assert "not read by any part: conv_filters" in page.texts
    cells = {text.strip() for text in page.texts}
    for stage in explanation_of_scripts.as_dict()["shapes"]:
        assert stage["stage"] in cells


# --- policies -------------------------------------------------------------------------------------

#: Weights and biases of a net with three inputs, hidden layers of 5 and 4, two logits, one value.
NUMBER_OF_WEIGHTS = (3 * 5 + 5) + (5 * 4 + 4) + (4 * 2 + 2) + (4 + 1)


@pytest.fixture(params=["torch", "tf"])
def policy(shared, request):
    module = {"torch": "torch", "tf": "tensorflow"}[request.param]
    pytest.importorskip(module, reason=f"{module} is not installed")
    return rlcatalog.build(BOX, TWO, {"fcnet_hiddens": [5, 4]}, request.param, catalog=shared)


def test_policy_text_names_parts_and_shapes(policy):
    text = repr(policy)

    assert text.startswith(f"Policy ({policy.framework})\n")
    assert "fcnet" in text
    assert "rlcatalog-fcnet" in text
    assert "fcnet: hidden 2 (tanh)" in text
    assert "(4,)" in text
    assert "config: fcnet_hiddens" in text
    assert len(text) < 1500


def test_policy_text_and_html_count_weights(policy):
    line = f"weights: {NUMBER_OF_WEIGHTS} numbers in 8 arrays"

    assert line in repr(policy)
    assert line in ParsedPage(policy._repr_html_()).texts


# --- classes of the running program ---------------------------------------------------------------


class Net(ModelV2):
    """A model of the running program."""

    framework_of_class = "torch"


class MineConfig(msgspec.Struct, frozen=True, kw_only=True):
    mine_width: int = 3


def make_config(name, key, default, *, type=int):
    """Return a config struct with one key, as a notebook's cell would define it."""
    fields = [(key, type, default)]
    return msgspec.defstruct(name, fields, frozen=True, kw_only=True, module="cells")


# --- refreshing the plugins -----------------------------------------------------------------------


def install_plugin(folder, name, source):
    """Put a distribution into a folder as pip does: its module, its metadata."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rlcatalog.plugins]\n{module} = {module}\n")
    return info


def uninstall_plugin(info):
    """Remove the metadata of a distribution, so that it is no longer found."""
    for path in info.iterdir():
        path.unlink()
    info.rmdir()


def write_model_plugin(name, *, options=""):
    """Return the source of a plugin with one model; `options` are more arguments of its spec."""
    return f"""
from rlcatalog import Match, ModelSpec, Rank, hookimpl

@hookimpl
def rlcatalog_models():
    return [ModelSpec({name!r}, {{"torch": "nowhere:Net"}}, "made up", {options})]
"""


FAILING_PLUGIN = "import a_module_nobody_has\n"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the path into which plugins are installed; afterwards they are forgotten."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    scan.cache_clear()
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


def test_refresh_finds_newly_installed_plugin(site):
    catalog = Catalog(environ={})
    install_plugin(site, "late-nets", write_model_plugin("late_nets_one"))
    assert "late_nets_one" not in catalog.registry.names(["model"])

    [record] = catalog.refresh()

    assert record.distribution == "late-nets"
    assert record.version == "1.0"
    assert record.status == "loaded"
    assert catalog.registry.get("model", "late_nets_one").distribution == "late-nets"


def test_refresh_returns_only_new_plugins(site):
    catalog = Catalog(environ={})
    install_plugin(site, "late-nets", write_model_plugin("late_nets_one"))
    catalog.refresh()

    assert catalog.refresh() == []


def test_refresh_keeps_the_config_keys_of_other_plugins(site):
    catalog = Catalog(environ={})
    install_plugin(site, "late-nets", write_model_plugin("late_nets_one"))

    catalog.refresh()

    assert "fcnet_hiddens" in catalog.schema.keys  # of rlcatalog-fcnet


def test_refresh_forgets_uninstalled_plugin(site):
    catalog = Catalog(environ={})
    distributions_before = {record.distribution for record in catalog.plugins}
    info = install_plugin(site, "late-nets", write_model_plugin("late_nets_one"))
    catalog.refresh()
    uninstall_plugin(info)

    assert catalog.refresh() == []

    assert {record.distribution for record in catalog.plugins} == distributions_before


def test_refresh_keeps_registered_classes(site):
    catalog = Catalog(environ={})
    catalog.register_model("mine", Net)
    info = install_plugin(site, "late-nets", write_model_plugin("late_nets_one"))

    catalog.refresh()
    assert catalog.registry.get("model", "mine").load("torch") is Net

    uninstall_plugin(info)
    catalog.refresh()
    assert catalog.registry.get("model", "mine").load("torch") is Net


def test_refresh_drops_class_that_reads_a_removed_key(site):
    config = "import msgspec\n\nclass Keys(msgspec.Struct):\n    late_width: int = 3\n"
    (site / "late_keys_config.py").write_text(config)
    source = write_model_plugin("late_keys_net", options="config='late_keys_config:Keys'")
    info = install_plugin(site, "late-keys", source)
    catalog = Catalog(environ={})
    catalog.register_model("mine", Net, reads=("late_width",))
    uninstall_plugin(info)

    with pytest.warns(PluginWarning, match=r"model 'mine', .* is omitted: .*late_width"):
        catalog.refresh()

    assert not {"mine", "late_keys_net"} & set(catalog.registry.names(["model"]))


def test_refresh_forgets_cached_lookups(site):
    catalog = Catalog(environ={}, prefer=["late-best"])
    before = catalog.explain(BOX, TWO, {}, "torch").as_dict()
    match = "match=lambda request: Match(Rank.SPECIFIC, 'best')"
    install_plugin(site, "late-best", write_model_plugin("late_best_net", options=match))

    catalog.refresh()

    after = catalog.explain(BOX, TWO, {}, "torch").as_dict()
    assert before["model"]["chosen"] == "fcnet"
    assert after["model"]["chosen"] == "late_best_net"


def test_refresh_reports_broken_plugin(site):
    catalog = Catalog(environ={"RLCATALOG_STRICT_PLUGINS": ""})
    install_plugin(site, "late-broken", FAILING_PLUGIN)

    with pytest.warns(PluginWarning, match="a_module_nobody_has"):
        [record] = catalog.refresh()

    assert record.status == "failed"


def test_refresh_in_strict_mode_raises_and_changes_nothing(site):
    catalog = Catalog(environ={"RLCATALOG_STRICT_PLUGINS": "1"})
    registry_before = catalog.registry
    install_plugin(site, "late-broken", FAILING_PLUGIN)

    with pytest.raises(rlcatalog.errors.CatalogError, match="a_module_nobody_has"):
        catalog.refresh()

    assert catalog.registry is registry_before


def test_registered_name_wins_over_new_plugin(site):
    catalog = Catalog(environ={})
    catalog.register_model("late_rival_net", Net)
    install_plugin(site, "late-rival", write_model_plugin("late_rival_net"))

    catalog.refresh()

    assert catalog.registry.get("model", "late_rival_net").in_process
    address = "late-rival/late_rival_net"
    assert catalog.registry.get("model", address).distribution == "late-rival"


def test_refresh_of_given_plugins_loads_them_again(catalog):
    names_before = catalog.registry.names(["model"])
    catalog.register_model("mine", Net, config=MineConfig)

    assert catalog.refresh() == []

    assert catalog.registry.names(["model"]) == sorted([*names_before, "mine"])
    assert catalog.parse_config({"mine_width": 7}).given == {"mine_width": 7}


def test_refresh_does_not_disturb_lookups_of_other_threads(catalog):
    catalog.register_model(
        "mine",
        Net,
        match=lambda request: Match(Rank.SPECIFIC, "mine"),
        config=MineConfig,
        describe=lambda request: [Stage("mine", (request.config["mine_width"],))],
    )
    stop = threading.Event()
    errors = []

    def look_up_until_stopped():
        while not stop.is_set():
            try:
                space = gym.spaces.Box(-1, 1, (3,), np.float32)  # new, so that no cache answers
                explanation = catalog.explain(space, TWO, {"mine_width": 4}, "torch")
                assert explanation.as_dict()["model"]["chosen"] == "mine"
            except Exception as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=look_up_until_stopped) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        catalog.refresh()
    stop.set()
    for thread in threads:
        thread.join()

    assert errors == []


# --- registering classes --------------------------------------------------------------------------


def test_register_model_decorator_returns_the_class(catalog):
    class Mine(Net):
        pass

    assert catalog.register_model("mine")(Mine) is Mine
    assert catalog.registry.get("model", "mine").load("torch") is Mine


@pytest.fixture
def catalog_of_small_spaces(catalog):
    """A catalog with a registered model for fewer than four inputs."""

    def describe(request):
        return [Stage("wide", (request.config["mine_width"],))]

    def match(request):
        if request.encoded_size < 4:
            return Match(Rank.SPECIFIC, "small")
        return Match(None, "large")

    catalog.register_model(
        "mine", match=match, describe=describe, config=MineConfig, reads=("max_seq_len",)
    )(Net)
    return catalog


def test_registered_model_is_chosen_by_its_match(catalog_of_small_spaces):
    nine_inputs = gym.spaces.Box(-1, 1, (9,), np.float32)

    small = catalog_of_small_spaces.explain(BOX, TWO, {}, "torch").as_dict()
    large = catalog_of_small_spaces.explain(nine_inputs, TWO, {}, "torch").as_dict()

    assert small["model"]["chosen"] == "mine"
    assert small["model"]["reason"] == "small"
    assert large["model"]["chosen"] == "fcnet"


def test_registered_model_has_config_keys_and_stages(catalog_of_small_spaces):
    data = catalog_of_small_spaces.explain(BOX, TWO, {"mine_width": 6}, "torch").as_dict()

    assert data["model"]["config_keys"] == ["mine_width", "max_seq_len"]
    assert {"stage": "mine: wide", "shape": [6]} in data["shapes"]


def test_config_key_of_registered_model_is_checked(catalog_of_small_spaces):
    assert catalog_of_small_spaces.schema.keys["mine_width"].owner == "this process"
    with pytest.raises(rlcatalog.errors.ConfigTypeError, match="'mine_width'"):
        catalog_of_small_spaces.parse_config({"mine_width": "wide"})


@pytest.fixture
def catalog_with_memory(catalog):
    """A catalog with a registered memory that `use_mine` switches on."""
    struct = make_config("Own", "use_mine", False, type=bool)
    catalog.register_model("mine", Net, slot="memory", switch="use_mine", config=struct)
    return catalog


def test_registered_memory_is_chosen_by_its_switch(catalog_with_memory):
    data = catalog_with_memory.explain(BOX, TWO, {"use_mine": True}, "torch").as_dict()

    assert data["memory"]["chosen"] == "mine"
    assert data["memory"]["reason"] == "use_mine is set"


def test_registered_memory_beside_lstm_is_ambiguous(catalog_with_memory):
    config = {"use_mine": True, "use_lstm": True}

    with pytest.raises(rlcatalog.errors.AmbiguousChoiceError, match="one of use_lstm and use_mine"):
        catalog_with_memory.explain(BOX, TWO, config, "torch")


class Half(Filter):
    """Halves observations."""

    def __call__(self, encoded, *, update=False):
        return encoded / 2


class SevenInputs(rlcatalog.ActionDistribution):
    """A distribution with seven inputs."""

    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return 7


class TwoNumbers(rlcatalog.Preprocessor):
    """Encodes an observation as two numbers."""

    def _init_shape(self, obs_space, options):
        return (2,)


def test_registered_filter_is_built_by_name(catalog):
    catalog.register_filter("half")(Half)
    config = {"observation_filter": "half", "custom_action_dist": "diag_gaussian"}

    policy = rlcatalog.build(
        BOX, gym.spaces.Box(-1, 1, (2,), np.float32), config, "torch", catalog=catalog
    )

    assert type(policy.filter) is Half


def test_registered_class_of_each_kind_is_chosen(catalog):
    catalog.register_filter("half")(Half)
    catalog.register_action_dist("mine", match=lambda request: Match(Rank.SPECIFIC, "mine"))(
        SevenInputs
    )
    catalog.register_preprocessor(
        "two", kinds=("multi_binary",), match=lambda request: Match(Rank.SPECIFIC, "bits")
    )(TwoNumbers)

    data = catalog.explain(
        gym.spaces.MultiBinary(2), TWO, {"observation_filter": "half"}, "torch"
    ).as_dict()

    assert data["preprocessor"]["chosen"] == "two"
    assert data["filter"]["chosen"] == "half"
    assert data["action_dist"]["chosen"] == "mine"
    assert {"stage": "mine: inputs", "shape": [7]} in data["shapes"]


def test_register_filter_rejects_another_class(catalog):
    with pytest.raises(ModelContractError, match=r"must be a subclass of rlcatalog\.Filter"):
        catalog.register_filter("no", int)


@pytest.fixture
def default_catalog(catalog, monkeypatch):
    """A new catalog in place of the process's default one."""
    monkeypatch.setattr("rlcatalog.catalog.default.default_catalog", lambda: catalog)
    return catalog


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        ("model", Net),
        ("filter", Filter),
        ("preprocessor", rlcatalog.Preprocessor),
        ("action_dist", rlcatalog.ActionDistribution),
    ],
)
def test_top_level_decorator_registers_in_default_catalog(default_catalog, kind, base):
    cls = type("Mine", (base,), {})

    getattr(rlcatalog, f"register_{kind}")("mine")(cls)

    component = default_catalog.registry.get(kind, "mine")
    assert component.objects[component.frameworks[0]] is cls


def test_top_level_refresh_keeps_registered_classes(default_catalog):
    rlcatalog.register_model("mine", config=MineConfig)(Net)

    assert rlcatalog.refresh() == []
    assert default_catalog.registry.get("model", "mine").load("torch") is Net


TOP_LEVEL_FUNCTIONS = ["explain", "refresh", "register_filter", "register_model", "wrap_env"]


@pytest.mark.parametrize("name", TOP_LEVEL_FUNCTIONS)
def test_top_level_function_has_signature_of_the_method(name):
    function = inspect.signature(getattr(rlcatalog, name))
    method = inspect.signature(getattr(Catalog, name))

    _self, *method_parameters = method.parameters.values()
    assert list(function.parameters.values()) == method_parameters


@pytest.mark.parametrize("name", TOP_LEVEL_FUNCTIONS)
def test_top_level_function_can_be_pickled(name):
    function = getattr(rlcatalog, name)

    assert pickle.loads(pickle.dumps(function)) is function


def test_registering_again_replaces_the_config_struct(catalog):
    catalog.register_model("again", Net, config=make_config("Again", "again_width", 3))
    assert catalog.parse_config({})["again_width"] == 3

    catalog.register_model("again", Net, config=make_config("Again", "again_width", 5))
    assert catalog.parse_config({})["again_width"] == 5

    catalog.register_model("again", Net, config=make_config("Renamed", "again_width", 8))
    assert catalog.parse_config({})["again_width"] == 8

    catalog.register_model("again", Net)
    assert "again_width" not in catalog.schema.keys


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("vf_share_layers", "rlcatalog"),
        ("fcnet_hiddens", "rlcatalog-fcnet"),
        ("mine_width", "this process"),
    ],
)
def test_config_key_of_another_owner_is_rejected(catalog, key, owner):
    catalog.register_model("mine", Net, config=MineConfig)

    with pytest.raises(DuplicateNameError, match=f"'{key}' belongs to {owner}"):
        catalog.register_model("other", Net, config=make_config("Taken", key, 1))

    assert "other" not in catalog.registry.names(["model"])
    assert catalog.parse_config({})["mine_width"] == 3


def test_config_struct_with_invalid_default_is_rejected(catalog):
    struct = make_config("Wrong", "wrong_width", "wide")

    with pytest.raises(DeclarationError, match="does not allow its own default"):
        catalog.register_model("wrong", Net, config=struct)

    assert "wrong" not in catalog.registry.names(["model"])


def test_config_struct_of_two_parts_stays_while_one_has_it(catalog):
    catalog.register_model("mine", Net, config=MineConfig)
    catalog.register_filter("half", Filter, config=MineConfig)

    catalog.register_model("mine", Net)  # without the struct

    assert catalog.parse_config({"mine_width": 9}).given == {"mine_width": 9}


def test_register_functions_take_name_and_class_by_position():
    catalog = Catalog([], environ={})

    catalog.register_model("a", Net)
    catalog.register_preprocessor("b", rlcatalog.Preprocessor)
    catalog.register_action_dist("c", rlcatalog.ActionDistribution)
    catalog.register(PreprocessorSpec("d", {"numpy": "m:C"}, ""))

    assert [component.name for component in catalog.components()] == ["c", "a", "b", "d"]
