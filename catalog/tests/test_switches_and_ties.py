"""Parts that a switch turns on, and errors about parts that match equally well."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from types import ModuleType

import msgspec
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import rlcatalog
from rlcatalog import ActionDistSpec, Match, ModelSpec, PreprocessorSpec, Rank, Request, SpaceInfo
from rlcatalog.errors import AmbiguousChoiceError, PartError
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

BOX = Box(-1, 1, (3,), np.float32)
TWO = Discrete(2)
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


def explain_slot(catalog, slot, config=None, *, obs=BOX, action=TWO):
    return catalog.explain(obs, action, config or {}, "torch").as_dict()[slot]


# --- switches -------------------------------------------------------------------------------------


@pytest.fixture
def acme_gru(make_plugin):
    """A plugin with the memory acme_gru, which `acme_on` turns on. Its class does not exist."""
    spec = declare_switched_memory("acme", "acme_gru", "acme_on")
    return make_plugin("acme", switches=["acme_on"], models=[spec])


def test_part_with_a_switch_is_chosen_if_it_is_on(acme_gru):
    memory = explain_slot(make_catalog(acme_gru), "memory", {"acme_on": True})

    assert memory["chosen"] == "acme_gru"
    assert "acme_on" in memory["config_keys"]
    assert memory["candidates"][0] == {
        "name": "acme_gru",
        "distribution": "acme",
        "version": "1.0",
        "rank": "SPECIFIC",
        "reason": "acme_on is set",
    }


def test_part_with_a_switch_is_not_chosen_if_it_is_off(acme_gru):
    memory = explain_slot(make_catalog(acme_gru), "memory", {})

    assert memory["chosen"] is None
    [candidate] = [part for part in memory["candidates"] if part["name"] == "acme_gru"]
    assert candidate["rank"] is None
    assert candidate["reason"] == "acme_on is not set; to choose it: acme_on=True"


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
        rlcatalog.build(BOX, TWO, {"acme_on": True}, "torch", catalog=catalog)

    assert "model 'acme_gru' (acme 1.0)" in str(caught.value)


@each_match_function
def test_part_that_is_switched_off_cannot_fail(make_plugin, fields):
    spec = declare_switched_memory("acme", "acme_gru", "acme_on", **fields)
    catalog = make_catalog(make_plugin("acme", switches=["acme_on"], models=[spec]))

    policy = rlcatalog.build(BOX, TWO, {}, "torch", catalog=catalog)

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


def test_named_memory_overrides_the_switch_of_another():
    config = {"custom_model": "lstm", "use_attention": True}

    memory = explain_slot(make_catalog(), "memory", config)

    assert memory["chosen"] == "lstm"
    assert memory["reason"] == "named in the config"


# --- declarations ---------------------------------------------------------------------------------


def test_match_function_decides_beside_a_switch():
    spec = declare_switched_memory("acme", "acme_gru", "acme_on", match=match_as_generic)

    # The switch is off.
    assert spec.judge(Request(SpaceInfo.read(BOX))) == Match(Rank.GENERIC, "any time")


@pytest.mark.parametrize(
    ("space", "match"),
    [
        pytest.param(TWO, Match(Rank.GENERIC, "the space is a discrete"), id="discrete"),
        pytest.param(BOX, Match(None, "takes discrete or multi_binary, not box"), id="box"),
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


@pytest.fixture
def acme_and_zeta(make_plugin, acme_gru):
    """Two plugins with a memory each, which `acme_on` and `zeta_on` turn on.

    The one of zeta has a match function, too.
    """
    spec = declare_switched_memory("zeta", "zeta_gru", "zeta_on", match=match_as_generic)
    zeta_gru = make_plugin("zeta", switches=["zeta_on"], models=[spec])
    return acme_gru, zeta_gru


two_switches = pytest.mark.parametrize(
    "switches",
    [
        pytest.param(["use_lstm", "use_attention"], id="built-in-and-built-in"),
        pytest.param(["use_lstm", "acme_on"], id="built-in-and-plugin"),
        pytest.param(["acme_on", "zeta_on"], id="plugin-and-plugin"),
        pytest.param(["zeta_on", "use_attention"], id="plugin-with-match-and-built-in"),
    ],
)
#: Preferring a package does not help.
each_preference = pytest.mark.parametrize("prefer", [[], ["acme"]], ids=["", "acme-preferred"])


@two_switches
@each_preference
def test_memories_switched_on_together_error_names_switches(acme_and_zeta, switches, prefer):
    catalog = make_catalog(*acme_and_zeta, prefer=prefer)
    config = dict.fromkeys(switches, True)

    with pytest.raises(AmbiguousChoiceError, match="are switched on together") as caught:
        catalog.explain(BOX, TWO, config, "torch")

    message = str(caught.value)
    assert message.startswith("memory: ")
    assert "but there is only one memory." in message
    advice = re.search(r"Remove one of (\w+) and (\w+) from the config\.$", message)
    assert set(advice.groups()) == set(switches)


@two_switches
@pytest.mark.parametrize("removed", [0, 1], ids=["first-removed", "second-removed"])
def test_memories_switched_on_one_by_one_are_chosen(acme_and_zeta, switches, removed):
    config = dict.fromkeys(switches, True)
    config[switches[removed]] = False

    memory = explain_slot(make_catalog(*acme_and_zeta), "memory", config)

    assert memory["chosen"] is not None


def test_heads_switched_on_together_are_an_error():
    obs = Dict({"action_mask": MultiBinary(4), "x": BOX})
    config = {"use_autoregressive": True, "use_parametric": True}

    with pytest.raises(AmbiguousChoiceError, match="use_autoregressive and use_parametric from"):
        make_catalog().explain(obs, MultiDiscrete([2, 2]), config, "torch")


def test_memories_of_a_package_with_one_switch_are_an_error(make_plugin):
    specs = [
        declare_switched_memory("acme", "acme_one", "acme_on"),
        declare_switched_memory("acme", "acme_two", "acme_on"),
    ]
    catalog = make_catalog(make_plugin("acme", switches=["acme_on"], models=specs))

    with pytest.raises(AmbiguousChoiceError, match=r"Give each a separate switch\.$"):
        catalog.explain(BOX, TWO, {"acme_on": True}, "torch")


@pytest.fixture
def second_use_lstm(make_plugin):
    """A plugin with a memory that has the switch of the built-in LSTM."""
    return make_plugin("acme", models=[declare_memory("acme", "acme_gru", switch="use_lstm")])


@each_preference
def test_packages_with_one_switch_error_says_to_disable_one(second_use_lstm, prefer):
    catalog = make_catalog(second_use_lstm, prefer=prefer)

    with pytest.raises(AmbiguousChoiceError, match=r"RLCATALOG_DISABLE_PLUGINS=acme\.$"):
        catalog.explain(BOX, TWO, {"use_lstm": True}, "torch")


def test_packages_with_one_switch_can_be_told_apart(second_use_lstm):
    catalog = make_catalog(second_use_lstm, environ={"RLCATALOG_DISABLE_PLUGINS": "acme"})

    assert explain_slot(catalog, "memory", {"use_lstm": True})["chosen"] == "lstm"


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
        make_catalog_with_tie().explain(BOX, PUSH, {}, "torch")

    assert SpaceInfo.read(PUSH).describe() in str(caught.value)
    assert SpaceInfo.read(BOX).describe() not in str(caught.value)  # the observation space


def test_tie_of_distributions_names_all_options(make_catalog_with_tie):
    with pytest.raises(AmbiguousChoiceError) as caught:
        make_catalog_with_tie().explain(BOX, PUSH, {}, "torch")

    assert (
        "(custom_action_dist='one/one_dist'), or prefer one with RLCATALOG_PREFER_PLUGINS=one,"
        " or disable one with RLCATALOG_DISABLE_PLUGINS=two."
    ) in str(caught.value)


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
    action = Dict({"push": PUSH, "go": TWO})

    with pytest.raises(AmbiguousChoiceError, match=r"match Box\(7,\) float32 equally") as caught:
        make_catalog_with_tie().explain(BOX, action, {}, "torch")

    assert "custom_action_dist={\"action['push']\": 'one/one_dist'}" in str(caught.value)


def test_tie_for_a_part_of_the_action_is_resolved_by_name(make_catalog_with_tie):
    action = Dict({"push": PUSH, "go": TWO})
    config = {"custom_action_dist": {"action['push']": "one/one_dist"}}

    parts = explain_slot(make_catalog_with_tie(), "action_parts", config, action=action)

    chosen = {part["path"]: part["chosen"] for part in parts}
    assert chosen["action['push']"] == "one_dist"


# --- ties of models and preprocessors -------------------------------------------------------------


@pytest.fixture
def two_trunks_of_acme(make_plugin):
    """A catalog whose only trunks are acme_a and acme_b of one package."""
    specs = [
        ModelSpec("acme_a", {"torch": "made_up_acme:Net"}, "", match=match_anything),
        ModelSpec("acme_b", {"torch": "made_up_acme:Net"}, "", match=match_anything),
    ]
    return make_catalog(make_plugin("acme", models=specs), without="rlcatalog-fcnet")


def test_tie_within_one_package_offers_only_a_name(two_trunks_of_acme):
    with pytest.raises(AmbiguousChoiceError) as caught:
        two_trunks_of_acme.explain(BOX, TWO, {}, "torch")

    options = "Options: name one in the config (custom_model='acme/acme_a')."
    assert str(caught.value).endswith(options)


def test_tie_within_one_package_is_resolved_by_name(two_trunks_of_acme):
    trunk = explain_slot(two_trunks_of_acme, "model", {"custom_model": "acme/acme_a"})

    assert trunk["chosen"] == "acme_a"


@pytest.fixture
def two_memories_of_acme(make_plugin):
    """A catalog with the memories acme_one and acme_two, which match anything.

    Their package is preferred, because a memory is optional.
    """
    specs = [
        declare_memory("acme", "acme_one", match=match_anything),
        declare_memory("acme", "acme_two", match=match_anything),
    ]
    return make_catalog(make_plugin("acme", models=specs), prefer=["acme"])


def test_tie_error_offers_a_key_of_the_config(two_memories_of_acme):
    with pytest.raises(AmbiguousChoiceError, match="custom_model='acme/acme_one'"):
        two_memories_of_acme.explain(BOX, TWO, {}, "torch")


def test_tie_error_does_not_offer_a_key_that_is_taken(two_memories_of_acme):
    config = {"custom_model": "fcnet"}  # the trunk

    with pytest.raises(AmbiguousChoiceError, match=r"Let one of them match with a different rank"):
        two_memories_of_acme.explain(BOX, TWO, config, "torch")


def test_tie_of_memories_is_resolved_by_name(two_memories_of_acme):
    memory = explain_slot(two_memories_of_acme, "memory", {"custom_model": "acme/acme_one"})

    assert memory["chosen"] == "acme_one"


@pytest.fixture
def two_preprocessors_of_acme(make_plugin):
    """A catalog whose only preprocessors for boxes are acme_x and acme_y of one package."""
    targets = {"numpy": "rlcatalog_preprocessors.arrays:NoPreprocessor"}
    specs = [
        PreprocessorSpec("acme_x", targets, "", match=match_anything, kinds=("box",)),
        PreprocessorSpec("acme_y", targets, "", match=match_anything, kinds=("box",)),
    ]
    plugin = make_plugin("acme", preprocessors=specs)
    return make_catalog(plugin, without="rlcatalog-preprocessors")


def test_tie_of_preprocessors_offers_a_name(two_preprocessors_of_acme):
    with pytest.raises(AmbiguousChoiceError, match=r"custom_preprocessor='acme/acme_x'\)\.$"):
        two_preprocessors_of_acme.explain(BOX, TWO, {}, "torch")


def test_tie_of_preprocessors_of_an_entry_offers_no_key(two_preprocessors_of_acme):
    # No key of the config names the preprocessor of an entry.
    with pytest.raises(AmbiguousChoiceError, match=r"Let one of them match with a different rank"):
        two_preprocessors_of_acme.explain(Dict({"a": BOX}), TWO, {}, "torch")
