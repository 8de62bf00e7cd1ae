"""What a notebook is given: short tables, plugins installed meanwhile, classes registered in one
line.
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
def parts():
    return isolated_catalog(*PARTS)


@pytest.fixture
def catalog():
    return isolated_catalog(*PARTS)


# --- tables ---------------------------------------------------------------------------------------


def test_an_explanation_prints_what_was_chosen_and_not_everything(parts):
    config = {
        "use_lstm": True,
        "lstm_cell_size": 5,
        "conv_filters": "nature",
        "observation_filter": "MeanStdFilter",
    }
    found = parts.explain(BOX, TWO, config, "torch")
    text, data = repr(found), found.as_dict()
    assert str(found) == text
    assert len(text) < 3000
    lines = text.splitlines()
    for slot, name in (
        ("preprocessor", "none"),
        ("filter", "MeanStdFilter"),
        ("model", "fcnet"),
        ("memory", "lstm"),
        ("action_dist", "categorical"),
    ):
        assert any(line.split("  ")[0] == f"{slot}: {name}" for line in lines), slot
    for stage in data["shapes"]:
        assert stage["stage"] in text
    assert re.search(r"^  obs +\(3,\) +box, 0:3$", text, re.MULTILINE)
    assert lines[-2] == "not read by any part: conv_filters"
    whole = found.text(all=True)
    for line in (
        r"memory reads: use_lstm, lstm_cell_size, ",
        r"  not chosen: visionnet +takes images",
    ):
        assert re.search(f"^{line}", whole, re.MULTILINE)
        assert not re.search(f"^{line}", text, re.MULTILINE)


def test_a_large_space_stays_readable(parts):
    space = gym.spaces.Dict({f"part {i:03d}": BOX for i in range(200)})
    text = repr(parts.explain(space, TWO, {}, "torch"))
    assert len(text) < 6000
    assert "... 176 more" in text
    assert max(map(len, text.splitlines())) <= 700


class Tags(html.parser.HTMLParser):
    """Collects tags and texts, and insists that what is opened is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


EVIL = "<script>alert('&')</script>"


def test_html_holds_the_same_and_escapes_what_plugins_wrote():
    def describe(request):
        return [Stage(EVIL, (3,))]

    spec = ModelSpec(
        "fine", {"torch": "m:C"}, "", match=lambda r: Match(Rank.SPECIFIC, EVIL), describe=describe
    )
    plugin = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme", version="1<2")
    found = isolated_catalog(*PARTS, plugin, prefer=["acme"]).explain(
        BOX, TWO, {"conv_filters": "nature"}, "torch"
    )
    page = found._repr_html_()
    assert "<script" not in page
    page = page[page.index("<div>") :]  # behind the picture, where it can be drawn
    tags = Tags(page)
    assert set(tags.tags) == {
        "div",
        "p",
        "b",
        "ul",
        "li",
        "table",
        "tbody",
        "tr",
        "td",
        "details",
        "summary",
    }
    assert f"{EVIL} (SPECIFIC)" in tags.texts
    assert "acme 1<2" in tags.texts
    assert "not read by any part: conv_filters" in tags.texts
    cells = {text.strip() for text in tags.texts}
    for stage in found.as_dict()["shapes"]:
        assert stage["stage"] in cells


def test_control_characters_of_a_plugin_do_not_reach_the_terminal():
    spec = ModelSpec(
        "fine", {"torch": "m:C"}, "", match=lambda r: Match(Rank.SPECIFIC, "\x1b[2Jgone\nrow")
    )
    plugin = PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme")
    text = repr(isolated_catalog(*PARTS, plugin, prefer=["acme"]).explain(BOX, TWO, {}, "torch"))
    assert "\x1b" not in text
    assert any("gone row" in line for line in text.splitlines())


def test_the_command_shows_the_keys_of_memory_and_head_and_those_that_nothing_reads(
    capsys, monkeypatch
):
    made = isolated_catalog(*PARTS, "rlcatalog-parametric")
    monkeypatch.setattr("rlcatalog_cli.app.default_catalog", lambda: made)
    arguments = ["explain", "CartPole-v1", "--framework", "torch", "--all"]
    settings = ["use_lstm=true", "use_parametric=false", "conv_filters=nature"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, *(word for setting in settings for word in ("--model", setting))])
    assert ended.value.code == 0
    printed, said = capsys.readouterr()
    lines = printed.splitlines()
    assert any(line.startswith("memory reads: use_lstm, lstm_cell_size, ") for line in lines)
    assert "not read by any part: conv_filters" in lines
    assert said == ""  # what is printed is not warned of
    found = made.explain(MASKED, TWO, {}, "torch")
    assert found.as_dict()["head"]["chosen"] == "parametric"
    assert re.search(r"^head reads: use_parametric, ", found.text(all=True), re.MULTILINE)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_policy_shows_its_parts_shapes_and_number_of_weights(parts, framework):
    pytest.importorskip(
        {"torch": "torch", "tf": "tensorflow"}[framework], reason=f"{framework} is not installed"
    )
    policy = rlcatalog.build(BOX, TWO, {"fcnet_hiddens": [5, 4]}, framework, catalog=parts)
    text = repr(policy)
    # Two hidden layers, two logits, one value.
    count = (3 * 5 + 5) + (5 * 4 + 4) + (4 * 2 + 2) + (4 + 1)
    assert text.startswith(f"Policy ({framework})\n")
    assert f"weights: {count} numbers in 8 arrays" in text
    for piece in (
        "fcnet",
        "rlcatalog-fcnet",
        "fcnet: hidden 2 (tanh)",
        "(4,)",
        "config: fcnet_hiddens",
    ):
        assert piece in text
    assert len(text) < 1500
    assert f"weights: {count} numbers in 8 arrays" in Tags(policy._repr_html_()).texts


# --- plugins installed meanwhile ------------------------------------------------------------------


def install(folder, name, code, version="1.0"):
    """Put a distribution into a folder as pip does: its module, its metadata."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[rlcatalog.plugins]\n{module} = {module}\n")
    return info


PLUGIN = """
from rlcatalog import Match, ModelSpec, Rank, hookimpl

@hookimpl
def rlcatalog_models():
    return [ModelSpec({name!r}, {{"torch": "nowhere:Net"}}, "made up")]
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the path into which plugins are installed; the process's scan is as it was,
    afterwards.
    """
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    scan.cache_clear()
    for name in [
        name
        for name, module in sys.modules.items()
        if str(tmp_path) in str(getattr(module, "__file__", ""))
    ]:
        del sys.modules[name]


def test_a_plugin_installed_meanwhile_is_found_and_one_removed_is_forgotten(site):
    found = Catalog(environ={})
    scanned = {record.distribution for record in found.plugins}
    found.register_model("mine", Net)
    info = install(site, "late-nets", PLUGIN.format(name="late_nets_one"))
    assert "late_nets_one" not in found.registry.names(["model"])
    (record,) = found.refresh()
    assert (record.distribution, record.version, record.status) == ("late-nets", "1.0", "loaded")
    assert found.registry.get("model", "late_nets_one").distribution == "late-nets"
    assert found.registry.get("model", "mine").load("torch") is Net
    assert "fcnet_hiddens" in found.schema.keys
    assert found.refresh() == []
    for path in info.iterdir():
        path.unlink()
    info.rmdir()
    assert found.refresh() == []
    assert {record.distribution for record in found.plugins} == scanned
    assert found.registry.get("model", "mine").load("torch") is Net


def test_a_class_that_reads_a_removed_plugins_key_is_omitted_and_said(site):
    keys = "import msgspec\n\nclass Keys(msgspec.Struct):\n    late_width: int = 3\n"
    (site / "late_keys_config.py").write_text(keys)
    code = PLUGIN.format(name="late_keys_net").replace(
        '"made up")', '"made up", config="late_keys_config:Keys")'
    )
    info = install(site, "late-keys", code)
    found = Catalog(environ={})
    found.register_model("mine", Net, reads=("late_width",))
    for path in info.iterdir():
        path.unlink()
    info.rmdir()
    with pytest.warns(
        PluginWarning, match="model 'mine', which this program registered, is omitted: .*late_width"
    ):
        found.refresh()
    assert not {"mine", "late_keys_net"} & set(found.registry.names(["model"]))


def test_a_lookup_is_made_anew_after_a_refresh(site):
    found = Catalog(environ={}, prefer=["late-best"])
    assert found.explain(BOX, TWO, {}, "torch").as_dict()["model"]["chosen"] == "fcnet"
    code = PLUGIN.format(name="late_best_net").replace(
        '"made up")', 'a, match=lambda r: Match(Rank.SPECIFIC, "best"))'
    )
    install(site, "late-best", code.replace(" a,", ' "a",'))
    found.refresh()
    assert found.explain(BOX, TWO, {}, "torch").as_dict()["model"]["chosen"] == "late_best_net"


def test_a_broken_plugin_is_reported_and_under_strictness_nothing_changes(site):
    for strict in ("", "1"):
        scan.cache_clear()
        found = Catalog(environ={"RLCATALOG_STRICT_PLUGINS": strict})
        before = found.registry
        name = f"late-broken{strict}"
        info = install(site, name, "import a_module_nobody_has\n")
        if strict:
            with pytest.raises(rlcatalog.errors.CatalogError, match="a_module_nobody_has"):
                found.refresh()
            assert found.registry is before
        else:
            with pytest.warns(PluginWarning, match="a_module_nobody_has"):
                (record,) = found.refresh()
            assert record.status == "failed"
        for path in info.iterdir():
            path.unlink()
        info.rmdir()


def test_a_plugin_that_brings_a_registered_name_stands_behind_the_program(site):
    found = Catalog(environ={})
    found.register_model("late_rival_net", Net)
    install(site, "late-rival", PLUGIN.format(name="late_rival_net"))
    found.refresh()
    assert found.registry.get("model", "late_rival_net").in_process
    assert found.registry.get("model", "late-rival/late_rival_net").distribution == "late-rival"


def test_a_catalog_of_given_plugins_loads_them_again(catalog):
    names = catalog.registry.names(["model"])
    catalog.register_model("mine", Net, config=MineConfig)
    assert catalog.refresh() == []
    assert catalog.registry.names(["model"]) == sorted([*names, "mine"])
    assert catalog.parse_config({"mine_width": 7}).given == {"mine_width": 7}


def test_lookups_go_on_while_a_catalog_is_refreshed(catalog):
    catalog.register_model(
        "mine",
        Net,
        match=lambda r: Match(Rank.SPECIFIC, "mine"),
        config=MineConfig,
        describe=lambda r: [Stage("mine", (r.config["mine_width"],))],
    )
    stop, errors = threading.Event(), []

    def look():
        while not stop.is_set():
            try:
                space = gym.spaces.Box(-1, 1, (3,), np.float32)
                found = catalog.explain(space, TWO, {"mine_width": 4}, "torch").as_dict()
                assert found["model"]["chosen"] == "mine"
            except Exception as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        catalog.refresh()
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []


# --- registering ----------------------------------------------------------------------------------


class Net(ModelV2):
    """A model of the running program."""

    framework_of_class = "torch"


class MineConfig(msgspec.Struct, frozen=True, kw_only=True):
    mine_width: int = 3


def test_a_class_is_registered_by_a_decorator_in_one_line(catalog):
    @catalog.register_model("mine")
    class Mine(Net):
        pass

    assert catalog.registry.get("model", "mine").load("torch") is Mine  # the class is what it was


def test_a_decorated_model_has_keys_stages_a_slot_and_a_match_of_its_own(catalog):
    def describe(request):
        return [Stage("wide", (request.config["mine_width"],))]

    def match(request):
        return Match(Rank.SPECIFIC, "small") if request.encoded_size < 4 else Match(None, "large")

    catalog.register_model(
        "mine", match=match, describe=describe, config=MineConfig, reads=("max_seq_len",)
    )(Net)
    found = catalog.explain(BOX, TWO, {"mine_width": 6}, "torch").as_dict()
    assert (found["model"]["chosen"], found["model"]["reason"]) == ("mine", "small")
    assert found["model"]["config_keys"] == ["mine_width", "max_seq_len"]
    assert {"stage": "mine: wide", "shape": [6]} in found["shapes"]
    large = gym.spaces.Box(-1, 1, (9,), np.float32)
    assert catalog.explain(large, TWO, {}, "torch").as_dict()["model"]["chosen"] == "fcnet"
    with pytest.raises(rlcatalog.errors.ConfigTypeError, match="'mine_width'"):
        catalog.parse_config({"mine_width": "wide"})
    assert catalog.schema.keys["mine_width"].owner == "this process"


def test_a_memory_of_ones_own_is_switched_on(catalog):
    struct = msgspec.defstruct("Own", [("use_mine", bool, False)], frozen=True, kw_only=True)
    catalog.register_model("mine", Net, slot="memory", switch="use_mine", config=struct)
    memory = catalog.explain(BOX, TWO, {"use_mine": True}, "torch").as_dict()["memory"]
    assert (memory["chosen"], memory["reason"]) == ("mine", "use_mine is set")
    with pytest.raises(
        rlcatalog.errors.AmbiguousChoiceError, match="Remove one of use_lstm and use_mine from"
    ):
        catalog.explain(BOX, TWO, {"use_mine": True, "use_lstm": True}, "torch")


def test_distributions_preprocessors_and_filters_are_registered_likewise(catalog):
    @catalog.register_filter("half")
    class Half(Filter):
        def __call__(self, encoded, *, update=False):
            return encoded / 2

    @catalog.register_action_dist("mine", match=lambda r: Match(Rank.SPECIFIC, "mine"))
    class Mine(rlcatalog.ActionDistribution):
        @staticmethod
        def required_model_output_shape(action_space, model_config):
            return 7

    @catalog.register_preprocessor(
        "twice", kinds=("multi_binary",), match=lambda r: Match(Rank.SPECIFIC, "bits")
    )
    class Twice(rlcatalog.Preprocessor):
        def _init_shape(self, obs_space, options):
            return (2,)

    space = gym.spaces.MultiBinary(2)
    found = catalog.explain(space, TWO, {"observation_filter": "half"}, "torch").as_dict()
    assert [found[slot]["chosen"] for slot in ("preprocessor", "filter", "action_dist")] == [
        "twice",
        "half",
        "mine",
    ]
    assert {"stage": "mine: inputs", "shape": [7]} in found["shapes"]
    policy = rlcatalog.build(
        BOX,
        gym.spaces.Box(-1, 1, (2,), np.float32),
        {"observation_filter": "half", "custom_action_dist": "diag_gaussian"},
        "torch",
        catalog=catalog,
    )
    assert type(policy.filter) is Half
    with pytest.raises(ModelContractError, match=r"must be a subclass of rlcatalog\.Filter"):
        catalog.register_filter("no", int)


@pytest.mark.parametrize(
    "name", ["explain", "refresh", "register_filter", "register_model", "wrap_env"]
)
def test_a_function_of_the_default_catalog_is_its_method_and_travels_by_name(name):
    function, method = getattr(rlcatalog, name), getattr(rlcatalog.Catalog, name)
    assert pickle.loads(pickle.dumps(function)) is function
    own, (_, *taken) = (inspect.signature(one).parameters.values() for one in (function, method))
    assert list(own) == taken


def test_the_processs_catalog_has_the_same_at_the_top_of_the_package(monkeypatch):
    made = isolated_catalog(*PARTS)
    monkeypatch.setattr("rlcatalog.catalog.default.default_catalog", lambda: made)

    @rlcatalog.register_model("mine", config=MineConfig)
    class Mine(Net):
        pass

    @rlcatalog.register_filter("half")
    class Half(Filter):
        pass

    @rlcatalog.register_preprocessor("twice")
    class Twice(rlcatalog.Preprocessor):
        pass

    @rlcatalog.register_action_dist("dist")
    class Dist(rlcatalog.ActionDistribution):
        pass

    for kind, name, cls in (
        ("model", "mine", Mine),
        ("filter", "half", Half),
        ("preprocessor", "twice", Twice),
        ("action_dist", "dist", Dist),
    ):
        component = made.registry.get(kind, name)
        assert component.objects[component.frameworks[0]] is cls
    assert rlcatalog.refresh() == []
    assert made.registry.get("model", "mine").load("torch") is Mine


def test_a_cell_that_is_run_again_replaces_class_and_struct(catalog):
    for width in (3, 5):
        struct = msgspec.defstruct(
            "Again", [("again_width", int, width)], frozen=True, kw_only=True, module="cells"
        )
        catalog.register_model("again", Net, config=struct)
        assert catalog.parse_config({})["again_width"] == width
    renamed = msgspec.defstruct(
        "Renamed", [("again_width", int, 8)], frozen=True, kw_only=True, module="cells"
    )
    catalog.register_model("again", Net, config=renamed)
    assert catalog.parse_config({})["again_width"] == 8
    catalog.register_model("again", Net)
    assert "again_width" not in catalog.schema.keys


@pytest.mark.parametrize("key", ["vf_share_layers", "fcnet_hiddens", "mine_width"])
def test_a_key_of_anothers_is_refused(catalog, key):
    catalog.register_model("mine", Net, config=MineConfig)
    struct = msgspec.defstruct("Taken", [(key, int, 1)], frozen=True, kw_only=True)
    owner = {
        "vf_share_layers": "rlcatalog",
        "fcnet_hiddens": "rlcatalog-fcnet",
        "mine_width": "this process",
    }[key]
    with pytest.raises(DuplicateNameError, match=rf"config key '{key}' belongs to {owner}\."):
        catalog.register_model("other", Net, config=struct)
    assert "other" not in catalog.registry.names(["model"])
    assert catalog.parse_config({})["mine_width"] == 3


def test_a_struct_that_does_not_allow_its_own_defaults_is_refused(catalog):
    struct = msgspec.defstruct("Wrong", [("wrong_width", int, "wide")], frozen=True, kw_only=True)
    with pytest.raises(DeclarationError, match="'wrong_width' does not allow its own default"):
        catalog.register_model("wrong", Net, config=struct)
    assert "wrong" not in catalog.registry.names(["model"])


def test_two_parts_share_one_struct(catalog):
    catalog.register_model("mine", Net, config=MineConfig)
    catalog.register_filter("half", Filter, config=MineConfig)
    catalog.register_model("mine", Net)  # of which the filter's keys stay
    assert catalog.parse_config({"mine_width": 9}).given == {"mine_width": 9}


def test_old_signatures_stay():
    """What programs call today, by position."""
    found = Catalog([], environ={})
    found.register_model("a", Net)
    found.register_preprocessor("b", rlcatalog.Preprocessor)
    found.register_action_dist("c", rlcatalog.ActionDistribution)
    found.register(PreprocessorSpec("d", {"numpy": "m:C"}, ""))
    assert [c.name for c in found.components()] == ["c", "a", "b", "d"]
