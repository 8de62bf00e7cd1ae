"""Parts that a switch turns on, and errors about parts that match equally well."""

from __future__ import annotations

import copy
import pickle
import sys
from types import ModuleType

import msgspec
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import rlcatalog
from rlcatalog import (
    ActionDistSpec,
    Match,
    ModelSpec,
    PreprocessorSpec,
    Rank,
    Request,
    SpaceInfo,
)
from rlcatalog.errors import AmbiguousChoiceError, PartError
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = Discrete(2)
BUILT_IN = (
    "rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-lstm", "rlcatalog-attention",
    "rlcatalog-parametric", "rlcatalog-autoregressive", "rlcatalog-gaussian",
    "rlcatalog-multi-action", "rlcatalog-categorical",
)  # fmt: skip


def match_anything(request):
    return Match(Rank.SPECIFIC, "whatever it is")


def match_as_generic(request):
    return Match(Rank.GENERIC, "any time")


def match_box_actions(request):
    if request.action.kind == "box":
        return Match(Rank.SPECIFIC, "a Box")
    return Match(None, "no Box")


@pytest.fixture
def make_plugin(monkeypatch):
    """Return the plugin of a package, with the config keys that it declares as switches."""

    def make(distribution, *, switches=(), **parts):
        module = ModuleType(f"made_up_{distribution}")
        keys = [(switch, bool, False) for switch in switches]
        module.Config = msgspec.defstruct("Config", keys, frozen=True, kw_only=True)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        hooks = {f"rlcatalog_{kind}": specs for kind, specs in parts.items()}
        return PluginEntryPoint(plugin_of(**hooks), distribution)

    return make


def make_catalog(*plugins, without=None, **options):
    """Return a catalog of built-in packages, without one of them, and of these plugins."""
    built_in = [name for name in BUILT_IN if name != without]
    return isolated_catalog(*built_in, *plugins, **options)


def declare_memory(distribution, name, **fields):
    targets = {"torch": f"made_up_{distribution}:Memory"}
    return ModelSpec(name, targets, "made up", slot="memory", **fields)


def declare_switched_memory(distribution, name, switch, **fields):
    """Return the declaration of a memory with a switch from the config struct of its package."""
    config = f"made_up_{distribution}:Config"
    return declare_memory(distribution, name, switch=switch, config=config, **fields)


def explain_slot(catalog, slot, config=None, *, obs=THREE_FEATURES, action=TWO_ACTIONS):
    return catalog.explain(obs, action, config or {}, "torch").as_dict()[slot]


# --- switches -------------------------------------------------------------------------------------


each_match_function = pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="switch-only"),
        pytest.param({"match": match_anything}, id="switch-and-match"),
    ],
)


@each_match_function
def test_part_that_is_switched_on_and_fails_is_an_error(make_plugin, fields):
    # The module of acme has no class for it.
    spec = declare_switched_memory("acme", "acme_gru", "acme_on", **fields)
    catalog = make_catalog(make_plugin("acme", switches=["acme_on"], models=[spec]))

    with pytest.raises(PartError, match="'made_up_acme:Memory'") as caught:
        rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, {"acme_on": True}, "torch", catalog=catalog)

    assert "model 'acme_gru' (acme 1.0)" in str(caught.value)


@each_match_function
def test_part_that_is_switched_off_cannot_fail(make_plugin, fields):
    spec = declare_switched_memory("acme", "acme_gru", "acme_on", **fields)
    catalog = make_catalog(make_plugin("acme", switches=["acme_on"], models=[spec]))

    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, {}, "torch", catalog=catalog)

    assert not policy.memory


@pytest.mark.parametrize(
    ("name", "switch"),
    [
        ("lstm", "use_lstm"),
        ("attention", "use_attention"),
        ("parametric", "use_parametric"),
        ("autoregressive", "use_autoregressive"),
    ],
)
def test_built_in_parts_have_their_switch(name, switch):
    part = rlcatalog.default_catalog().registry.get("model", name)

    assert part.declaration.switch == switch


def count_two(action, config):
    return 2


def size_of_wrapper(action, config, inner_size):
    return inner_size


@pytest.fixture
def catalog_of_switches(make_plugin):
    """Return a catalog with a trunk, a head, a distribution and a preprocessor, each with a switch,
    and with a head and a wrapping distribution without one.
    """
    trunk = ModelSpec(
        "acme_net",
        {"torch": "made_up_acme:Net"},
        "made up",
        switch="acme_on",
        config="made_up_acme:Config",
    )
    targets = {"torch": "made_up_acme:Head"}
    head = ModelSpec("acme_turn", targets, "made up", slot="head")
    switched_head = ModelSpec(
        "acme_aim",
        targets,
        "made up",
        slot="head",
        switch="acme_aim_on",
        config="made_up_acme:Config",
    )
    dist = ActionDistSpec(
        "emca_dist",
        {"torch": "made_up_emca:Dist"},
        "made up",
        size=count_two,
        switch="emca_on",
        config="made_up_emca:Config",
    )
    wrapper = ActionDistSpec(
        "emca_wrapper",
        {"torch": "made_up_emca:Wrapper"},
        "made up",
        size=size_of_wrapper,
        wraps_default=True,
    )
    codec = PreprocessorSpec(
        "omca_codec",
        {"numpy": "made_up_omca:Codec"},
        "made up",
        switch="omca_on",
        config="made_up_omca:Config",
    )
    return make_catalog(
        make_plugin(
            "acme",
            switches=["acme_on", "acme_aim_on"],
            models=[trunk, head, switched_head],
        ),
        make_plugin("emca", switches=["emca_on"], action_dists=[dist, wrapper]),
        make_plugin("omca", switches=["omca_on"], preprocessors=[codec]),
    )


@pytest.mark.parametrize(
    ("config", "cause"),
    [
        pytest.param(
            {"custom_model": "lstm", "use_attention": True},
            "custom_model='lstm' and use_attention=True each choose a memory",
            id="memory",
        ),
        pytest.param(
            {"memory": "lstm", "use_attention": True},
            "memory='lstm' and use_attention=True each choose a memory",
            id="memory-by-its-key",
        ),
        pytest.param(
            {"custom_model": "fcnet", "acme_on": True},
            "custom_model='fcnet' and acme_on=True each choose a trunk",
            id="trunk",
        ),
        pytest.param(
            {"custom_model": "acme_turn", "acme_aim_on": True},
            "custom_model='acme_turn' and acme_aim_on=True each choose a head",
            id="head",
        ),
        pytest.param(
            {"custom_action_dist": "categorical", "emca_on": True},
            "custom_action_dist='categorical' and emca_on=True each choose an action distribution",
            id="distribution",
        ),
        pytest.param(
            {"custom_preprocessor": "none", "omca_on": True},
            "custom_preprocessor='none' and omca_on=True each choose a preprocessor",
            id="preprocessor",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:custom_preprocessor:DeprecationWarning")
def test_name_and_switch_of_two_parts_are_an_error(catalog_of_switches, config, cause):
    with pytest.raises(AmbiguousChoiceError, match="each choose") as caught:
        catalog_of_switches.explain(THREE_FEATURES, TWO_ACTIONS, config)

    assert cause in str(caught.value)


def test_name_beside_the_switch_of_another_slot_is_accepted(catalog_of_switches):
    config = {"custom_model": "fcnet", "use_lstm": True}

    assert explain_slot(catalog_of_switches, "model", config)["chosen"] == "fcnet"
    assert explain_slot(catalog_of_switches, "memory", config)["chosen"] == "lstm"


def test_name_beside_the_switch_of_the_same_part_is_accepted(catalog_of_switches):
    config = {"custom_model": "acme_net", "acme_on": True}

    assert explain_slot(catalog_of_switches, "model", config)["chosen"] == "acme_net"


def test_named_wrapper_wraps_the_switched_on_distribution(catalog_of_switches):
    config = {"custom_action_dist": "emca_wrapper", "emca_on": True}

    resolution = catalog_of_switches.resolve(THREE_FEATURES, TWO_ACTIONS, config, "torch")

    assert [plan.part.name for plan in resolution.dists.walk()] == ["emca_wrapper", "emca_dist"]


# --- declarations ---------------------------------------------------------------------------------


def test_match_function_decides_beside_a_switch():
    spec = declare_switched_memory("acme", "acme_gru", "acme_on", match=match_as_generic)

    # The switch is off.
    assert spec.judge(Request(SpaceInfo.read(THREE_FEATURES))) == Match(Rank.GENERIC, "any time")


@pytest.mark.parametrize(
    ("space", "match"),
    [
        pytest.param(TWO_ACTIONS, Match(Rank.GENERIC, "the space is a discrete"), id="discrete"),
        pytest.param(
            THREE_FEATURES, Match(None, "takes discrete or multi_binary, not box"), id="box"
        ),
    ],
)
def test_model_may_be_for_kinds_of_observation(space, match):
    spec = ModelSpec("net", {"torch": "m:C"}, "", kinds=("discrete", "multi_binary"))

    assert spec.judge(Request(SpaceInfo.read(space))) == match


def test_declaration_survives_copy_and_pickle():
    spec = ModelSpec("net", {"torch": "m:C"}, "a net", reads=("max_seq_len",))

    assert copy.deepcopy(spec) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec


# --- several switches -----------------------------------------------------------------------------


@pytest.mark.parametrize("prefer", [[], ["acme"]], ids=["nothing-preferred", "acme-preferred"])
def test_memories_switched_on_together_error_names_switches(make_plugin, prefer):
    spec = declare_switched_memory("acme", "acme_gru", "acme_on")
    acme = make_plugin("acme", switches=["acme_on"], models=[spec])
    catalog = make_catalog(acme, prefer=prefer)
    config = {"use_lstm": True, "acme_on": True}

    with pytest.raises(AmbiguousChoiceError, match="are switched on together") as caught:
        catalog.explain(THREE_FEATURES, TWO_ACTIONS, config, "torch")

    message = str(caught.value)
    assert message.startswith("memory: ")
    assert "but there is only one memory." in message
    assert message.endswith("Remove one of acme_on and use_lstm from the config.")


# --- ties of distributions ------------------------------------------------------------------------


PUSH = Box(-2, 2, (7,), np.float32)


@pytest.fixture
def make_catalog_with_tie(make_plugin):
    """Return a catalog whose only distributions for boxes are one_dist and two_dist.

    They belong to the packages one and two.
    """

    def two_inputs(action_space, config):
        return 2

    def make(**options):
        plugins = []
        for package in ["one", "two"]:
            spec = ActionDistSpec(
                f"{package}_dist", {"torch": "m:C"}, "", match=match_box_actions, size=two_inputs
            )
            plugins.append(make_plugin(package, action_dists=[spec]))
        return make_catalog(*plugins, without="rlcatalog-gaussian", **options)

    return make


def test_tie_of_distributions_names_the_action_space(make_catalog_with_tie):
    with pytest.raises(AmbiguousChoiceError) as caught:
        make_catalog_with_tie().explain(Box(-1, 1, (3,)), Box(-2, 2, (7,)), {}, "torch")

    assert "Box(7,) float32" in str(caught.value)
    # The observation space has nothing to do with it.
    assert "Box(3,) float32" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "config"),
    [
        pytest.param({}, {"custom_action_dist": "one/one_dist"}, id="name"),
        pytest.param({"environ": {"RLCATALOG_PREFER_PLUGINS": "one"}}, {}, id="prefer-variable"),
        pytest.param({"prefer": ["one"]}, {}, id="prefer-argument"),
        pytest.param({"environ": {"RLCATALOG_DISABLE_PLUGINS": "two"}}, {}, id="disable-variable"),
    ],
)
def test_tie_of_distributions_is_resolved_by_each_option(make_catalog_with_tie, options, config):
    # Packages one and two have a distribution each that matches boxes.
    catalog = make_catalog_with_tie(**options)

    dist = explain_slot(catalog, "action_dist", config, action=PUSH)

    assert dist["chosen"] == "one_dist"


def test_tie_for_a_part_of_the_action_names_the_part(make_catalog_with_tie):
    action = Dict({"push": PUSH, "go": TWO_ACTIONS})

    with pytest.raises(AmbiguousChoiceError, match=r"match Box\(7,\) float32 equally") as caught:
        make_catalog_with_tie().explain(THREE_FEATURES, action, {}, "torch")

    assert "custom_action_dist={\"action['push']\": 'one/one_dist'}" in str(caught.value)


def test_tie_for_a_part_of_the_action_is_resolved_by_name(make_catalog_with_tie):
    action = Dict({"push": PUSH, "go": TWO_ACTIONS})
    config = {"custom_action_dist": {"action['push']": "one/one_dist"}}

    parts = explain_slot(make_catalog_with_tie(), "action_parts", config, action=action)

    chosen = {part["path"]: part["chosen"] for part in parts}
    assert chosen["action['push']"] == "one_dist"


def test_tie_of_registered_models_is_resolved_by_name_only():
    catalog = make_catalog()
    catalog.register(ModelSpec("mine", {"torch": "m:C"}, "", match=match_anything))
    catalog.register(ModelSpec("other", {"torch": "m:C"}, "", match=match_anything))

    with pytest.raises(AmbiguousChoiceError, match="registered in process") as caught:
        catalog.explain(THREE_FEATURES, TWO_ACTIONS, {}, "torch")

    options = "Options: name one in the config (custom_model='mine')."
    assert str(caught.value).endswith(options)
