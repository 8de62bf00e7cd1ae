"""The rule of choice: which of the parts that fit a slot the catalog chooses."""

from __future__ import annotations

import sys
from types import ModuleType

import gymnasium as gym
import msgspec
import numpy as np
import pytest
from faulty_functions import function_that_raises
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from rlcatalog import (
    ActionCodecSpec,
    ActionDistSpec,
    Catalog,
    EnvWrapperSpec,
    FilterSpec,
    Match,
    ModelSpec,
    PreprocessorSpec,
    Rank,
    Request,
    SpaceInfo,
)
from rlcatalog.errors import (
    ConfigError,
    MissingPluginError,
    NoMatchError,
    PartError,
    UnsupportedSpaceError,
)
from rlcatalog.plugins.discovery import scan
from rlcatalog.spaces.action_codecs import codec_class
from rlcatalog_testing import PluginEntryPoint, plugin_of

FOUR_FEATURES = Box(-1, 1, (4,), np.float32)
IMAGE = Box(0, 255, (84, 84, 3), np.uint8)
DICT = Dict({"a": FOUR_FEATURES, "b": Discrete(2)})
THREE_ACTIONS = Discrete(3)


def match_all(request):
    return Match(Rank.SPECIFIC, "takes anything")


def match_as_generic(request):
    return Match(Rank.GENERIC, "a vector")


match_and_fail = function_that_raises(ValueError("boom"))


def need_four_inputs(action_space, config):
    return 4


def declare_model(name, **fields):
    return ModelSpec(name, {"torch": "made_up:Net"}, "", **fields)


def declare_dist(name, **fields):
    return ActionDistSpec(name, {"torch": "acme_spaces:Dist"}, "", size=need_four_inputs, **fields)


def declare_preprocessor(name, target="rlcatalog_preprocessors.arrays:NoPreprocessor", **fields):
    return PreprocessorSpec(name, {"numpy": target}, "", **fields)


def make_plugin(distribution, **parts):
    """Return the plugin of a third-party package that declares these parts, by kind."""
    hooks = {f"rlcatalog_{kind}": specs for kind, specs in parts.items()}
    return PluginEntryPoint(plugin_of(**hooks), distribution)


def make_catalog(*plugins, environ=None, **options):
    """Return a catalog of all installed packages and of these plugins."""
    return Catalog((*scan(), *plugins), environ=environ or {}, **options)


def choose_part(
    catalog,
    slot="model",
    *,
    obs=FOUR_FEATURES,
    action=THREE_ACTIONS,
    config=None,
    framework="torch",
):
    """Return "package/part" for the part that fills the slot, "/part" for a registered one."""
    choice = catalog.explain(obs, action, config, framework).as_dict()[slot]
    if choice["chosen"] is None:
        return None
    return f"{choice['distribution']}/{choice['chosen']}"


@pytest.fixture(scope="module")
def installed():
    """A catalog of all installed packages."""
    return make_catalog()


# --- third-party packages beside built-in parts ---------------------------------------------------


@pytest.fixture(scope="module")
def with_greedy_plugin():
    """A catalog with a package whose parts match anything, with the best rank."""
    models = [
        declare_model("acme_trunk", slot="trunk", match=match_all),
        declare_model("acme_memory", slot="memory", match=match_all),
        declare_model("acme_head", slot="head", match=match_all),
    ]
    greedy = make_plugin(
        "acme",
        models=models,
        action_dists=[declare_dist("acme_dist", match=match_all)],
        preprocessors=[declare_preprocessor("acme_codec", match=match_all)],
    )
    return make_catalog(greedy)


@pytest.mark.parametrize(
    "obs",
    [
        pytest.param(FOUR_FEATURES, id="vector"),
        pytest.param(IMAGE, id="image"),
        pytest.param(DICT, id="dict"),
    ],
)
def test_greedy_plugin_does_not_change_any_choice(installed, with_greedy_plugin, obs):
    for slot in ("preprocessor", "model", "memory", "head", "action_dist"):
        part_without_plugin = choose_part(installed, slot, obs=obs)

        assert choose_part(with_greedy_plugin, slot, obs=obs) == part_without_plugin


def test_composite_distribution_ignores_greedy_plugin(with_greedy_plugin):
    actions = Tuple([Discrete(3), Box(-1, 1, (2,))])

    explanation = with_greedy_plugin.explain(FOUR_FEATURES, actions, {}, "torch").as_dict()

    built_in = ["categorical", "diag_gaussian"]
    assert [part["chosen"] for part in explanation["action_parts"]] == built_in


def test_match_function_is_not_called_after_a_choice():
    acme = make_plugin("acme", models=[declare_model("acme_net", match=match_and_fail)])

    # fcnet, which is built in, comes first.
    assert choose_part(make_catalog(acme)) == "rlcatalog-fcnet/fcnet"


def test_fcnet_is_chosen_for_a_video(installed):
    video = Box(0, 1, (4, 8, 8, 3), np.float32)

    assert choose_part(installed, obs=video) == "rlcatalog-fcnet/fcnet"


def test_failing_match_of_named_part_is_an_error():
    acme = make_plugin("acme", models=[declare_model("acme_net", match=match_and_fail)])

    with pytest.raises(PartError, match="acme_net"):
        choose_part(make_catalog(acme), config={"custom_model": "acme_net"})


def refuse(request):
    return Match(None, "takes two images")


@pytest.fixture(scope="module")
def with_picky_plugin():
    """A catalog with a package whose parts match nothing."""
    models = [
        declare_model("acme_trunk", slot="trunk", match=refuse),
        declare_model("acme_memory", slot="memory", match=refuse),
        declare_model("acme_head", slot="head", match=refuse),
    ]
    filters = [FilterSpec("acme_filter", {"numpy": "made_up:Filter"}, "", match=refuse)]
    picky = make_plugin(
        "acme",
        models=models,
        filters=filters,
        action_dists=[declare_dist("acme_dist", match=refuse)],
        preprocessors=[declare_preprocessor("acme_codec", match=refuse)],
    )
    return make_catalog(picky)


@pytest.mark.parametrize(
    ("config", "error_class"),
    [
        ({"custom_model": "acme_trunk"}, NoMatchError),
        ({"custom_model": "acme_head"}, NoMatchError),
        ({"memory": "acme_memory"}, NoMatchError),
        ({"observation_filter": "acme_filter"}, NoMatchError),
        ({"critic": {"custom_model": "acme_trunk"}}, NoMatchError),
        ({"custom_preprocessor": "acme_codec"}, UnsupportedSpaceError),
        ({"custom_action_dist": "acme_dist"}, UnsupportedSpaceError),
        ({"custom_action_dist": {"action": "acme_dist"}}, UnsupportedSpaceError),
    ],
)
def test_named_part_that_refuses_the_spaces_is_an_error(with_picky_plugin, config, error_class):
    with pytest.raises(error_class, match=r"acme_.* does not fit .*: takes two images"):
        with_picky_plugin.resolve(FOUR_FEATURES, THREE_ACTIONS, config, "torch")


def test_named_model_that_refuses_is_an_error_in_model_v2(with_picky_plugin):
    config = {"custom_model": "acme_trunk"}

    with pytest.raises(NoMatchError, match="takes two images"):
        with_picky_plugin.model_v2(FOUR_FEATURES, THREE_ACTIONS, 3, config, "torch")


# --- preferred packages ---------------------------------------------------------------------------


def test_preferred_plugin_wins_a_tie_with_built_in_part():
    # fcnet matches vectors as generic, too.
    acme = make_plugin("acme", models=[declare_model("acme_net", match=match_as_generic)])

    assert choose_part(make_catalog(acme, prefer=["acme"])) == "acme/acme_net"


def test_better_rank_wins_over_preferred_package():
    catalog = make_catalog(prefer=["rlcatalog-fcnet"])

    assert choose_part(catalog, obs=IMAGE) == "rlcatalog-visionnet/visionnet"


# --- switches -------------------------------------------------------------------------------------


def flatten(env, config):
    return gym.wrappers.FlattenObservation(env)


@pytest.fixture
def switch(monkeypatch):
    """Fields of a declaration: its switch `acme_on`, which the config struct of acme declares."""
    module = ModuleType("acme_config")
    key = ("acme_on", float | bool, False)
    module.Keys = msgspec.defstruct("Keys", [key], frozen=True, kw_only=True)
    monkeypatch.setitem(sys.modules, "acme_config", module)
    return {"switch": "acme_on", "config": "acme_config:Keys"}


@pytest.fixture
def with_switches(switch):
    """A catalog with a package that has a part with a switch for each slot."""
    wrapper = EnvWrapperSpec("acme_wrapper", {"numpy": f"{__name__}:flatten"}, "", **switch)
    acme = make_plugin(
        "acme",
        models=[
            declare_model("acme_net", **switch),
            declare_model("acme_head", slot="head", **switch),
        ],
        action_dists=[declare_dist("acme_dist", **switch)],
        preprocessors=[declare_preprocessor("acme_codec", **switch)],
        env_wrappers=[wrapper],
    )
    return make_catalog(acme)


@pytest.mark.parametrize(
    ("slot", "part"),
    [
        ("head", "acme/acme_head"),
        ("model", "acme/acme_net"),
        ("action_dist", "acme/acme_dist"),
        ("preprocessor", "acme/acme_codec"),
    ],
)
def test_switch_chooses_its_part_in_every_slot(installed, with_switches, slot, part):
    default_part = choose_part(installed, slot)

    assert choose_part(with_switches, slot, config={"acme_on": True}) == part
    assert choose_part(with_switches, slot, config={"acme_on": False}) == default_part


def test_switch_chooses_an_environment_wrapper(with_switches):
    env = gym.make("CartPole-v1")

    _, wrappers = with_switches.explain_wrapping(env, {"acme_on": True})

    assert [part.name for part, match in wrappers if match.rank is not None] == ["acme_wrapper"]


def test_wrapper_is_not_listed_while_its_switch_is_off(installed, with_switches):
    env = gym.make("CartPole-v1")
    _, wrappers_without_plugin = installed.explain_wrapping(env)

    _, wrappers = with_switches.explain_wrapping(env)

    assert wrappers == wrappers_without_plugin


def test_switch_of_part_without_code_for_framework_is_an_error(switch):
    # Its only target is for PyTorch.
    spec = declare_model("acme_head", slot="head", **switch)
    catalog = make_catalog(make_plugin("acme", models=[spec]))

    with pytest.raises(NoMatchError, match="has no code for framework 'tf'") as caught:
        choose_part(catalog, "head", config={"acme_on": True}, framework="tf")

    assert "acme_on=True selects 'acme_head'" in str(caught.value)


# --- parts that the program registers -------------------------------------------------------------


def test_registered_part_without_match_is_not_a_default():
    catalog = make_catalog()
    catalog.register(declare_model("mine"))

    assert choose_part(catalog) == "rlcatalog-fcnet/fcnet"


@pytest.mark.parametrize(
    ("custom_model", "part"),
    [
        # The part that was registered has no package.
        pytest.param("fcnet", "/fcnet", id="name"),
        pytest.param("rlcatalog-fcnet/fcnet", "rlcatalog-fcnet/fcnet", id="name-with-package"),
    ],
)
def test_registered_name_wins_over_a_plugin(custom_model, part):
    catalog = make_catalog()
    catalog.register(declare_model("fcnet"))

    assert choose_part(catalog, config={"custom_model": custom_model}) == part


# --- classes of spaces ----------------------------------------------------------------------------


@pytest.fixture
def acme_spaces(monkeypatch):
    """The module of package acme, with two classes of spaces and a class that encodes them."""
    module = ModuleType("acme_spaces")
    module.Angle = type("Angle", (Box,), {"__module__": "acme_spaces"})
    module.Dial = type("Dial", (gym.Space,), {"__module__": "acme_spaces"})
    module.Codec = type("Codec", (), {})
    monkeypatch.setitem(sys.modules, "acme_spaces", module)
    return module


@pytest.fixture
def angle(acme_spaces):
    """A space of a subclass of Box that package acme defines."""
    return acme_spaces.Angle(-1, 1, (2,), np.float32)


def choose_preprocessor(catalog, space):
    request = Request(SpaceInfo.read(space))
    return catalog.slots.choose_preprocessor(request, None).part.address


def test_subclass_of_box_has_the_preprocessor_of_box(installed, angle):
    assert choose_preprocessor(installed, angle) == "rlcatalog-preprocessors/none"


@pytest.fixture
def declare_codec():
    """Declare the action codec of a package for two classes of acme; forget it after the test."""
    specs = []

    def declare(distribution, target):
        kinds = ("acme_spaces.Angle", "acme_spaces.Dial")
        spec = ActionCodecSpec(f"{distribution}_codec", {"numpy": target}, "", kinds=kinds)
        specs.append(spec)
        # To load the plugin enters its codec in the process-wide table.
        make_catalog(make_plugin(distribution, action_codecs=[spec]))

    yield declare
    for spec in specs:
        spec.leave()


def test_subclass_of_box_has_the_action_codec_of_box(angle):
    assert codec_class(SpaceInfo.read(angle)).__name__ == "BoxCodec"


def test_action_codec_of_the_package_of_a_space_is_chosen(acme_spaces, angle, declare_codec):
    declare_codec("acme", "acme_spaces:Codec")

    assert codec_class(SpaceInfo.read(angle)) is acme_spaces.Codec
    assert codec_class(SpaceInfo.read(acme_spaces.Dial())) is acme_spaces.Codec


def test_action_codec_of_another_package_fills_gaps_only(acme_spaces, angle, declare_codec):
    declare_codec("emca", "rlcatalog_preprocessors.actions.kinds:DiscreteCodec")

    # An Angle is a Box, which has a built-in codec; a Dial is of no known kind.
    assert codec_class(SpaceInfo.read(angle)).__name__ == "BoxCodec"
    assert codec_class(SpaceInfo.read(acme_spaces.Dial())).__name__ == "DiscreteCodec"


def test_subclass_of_box_has_the_distribution_of_box(installed, angle):
    dist = choose_part(installed, "action_dist", action=angle)

    assert dist == "rlcatalog-gaussian/diag_gaussian"


def test_distribution_of_the_package_of_a_space_is_chosen(angle):
    # A distribution of acme for a space class of acme.
    dist = declare_dist("acme_angle", kinds=("acme_spaces.Angle",))
    catalog = make_catalog(make_plugin("acme", action_dists=[dist]))

    dist_of_angle = choose_part(catalog, "action_dist", action=angle)
    dist_of_box = choose_part(catalog, "action_dist", action=Box(-1, 1, (2,)))

    assert dist_of_angle == "acme/acme_angle"
    assert dist_of_box == "rlcatalog-gaussian/diag_gaussian"


# --- built-in packages that fail to load ----------------------------------------------------------


def make_catalog_with_broken(distribution):
    """Return a catalog in which this built-in package raises an error when it is loaded."""
    others = [point for point in scan() if point.dist.name != distribution]
    broken = PluginEntryPoint("no_such_module_at_all", distribution)
    with pytest.warns(match="no_such_module_at_all"):
        return Catalog((*others, broken), environ={})


def test_broken_package_is_an_error_if_its_part_would_fit():
    catalog = make_catalog_with_broken("rlcatalog-visionnet")

    with pytest.raises(MissingPluginError, match=r"rlcatalog-visionnet .* which has failed"):
        choose_part(catalog, obs=IMAGE)


def test_broken_package_is_an_error_if_its_switch_is_on():
    catalog = make_catalog_with_broken("rlcatalog-lstm")

    with pytest.raises(ConfigError, match=r"rlcatalog-lstm .* which has failed"):
        choose_part(catalog, config={"use_lstm": True})


def test_broken_package_does_not_matter_if_its_switch_is_off():
    catalog = make_catalog_with_broken("rlcatalog-lstm")

    assert choose_part(catalog, obs=IMAGE) == "rlcatalog-visionnet/visionnet"
