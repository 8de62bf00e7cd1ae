"""Parts made of the running program's classes: frameworks, fields, names and refusals."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import pytest

from rlcatalog import ActionDistribution, Filter, ModelV2, Preprocessor, SpaceInfo
from rlcatalog.choice import in_process as in_process_module
from rlcatalog.choice.in_process import in_process, path_of
from rlcatalog.errors import ModelContractError

THREE_ACTIONS = SpaceInfo.read(gym.spaces.Discrete(3), "action")


class Net(ModelV2):
    """A net.

    With more to say.
    """

    framework_of_class = "first"


class MemoryNet(Net):
    framework_of_class = "second"
    slot_of_class = "memory"


class Dist(ActionDistribution):
    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return action_space.n + model_config.get("more", 0)


class CompositeDist(Dist):
    framework_of_class = "second"
    composite = True


class LibraryDist:
    """A distribution of the library of framework "second", such as one of torch.distributions."""


class OtherClass:
    """A class of no framework."""


class ClassWithLogp:
    """A class of no framework, with one method of a distribution."""

    logp = None


class Codec(Preprocessor):
    pass


class Half(Filter):
    pass


def make_net():
    """Make a net."""


# --- the frameworks of these tests ----------------------------------------------------------------


def make_framework(name, *, is_installed=True, adapts=True):
    """Return a framework, which may have a function that adapts distributions of its library."""

    def adapt(source, num_inputs):
        def required_model_output_shape(action_space, model_config):
            return num_inputs

        members = {
            "adapted": (name, source, num_inputs),
            "framework_of_class": name,
            "logp": None,
            "required_model_output_shape": staticmethod(required_model_output_shape),
        }
        return type("Adapted", (), members)

    def target(what):
        return "m:f" if adapts else None

    def load(what):
        assert is_installed, f"{name} must not be loaded"
        assert adapts, f"{name} has no such function"
        assert what == "distribution"
        return adapt

    return SimpleNamespace(name=name, is_installed=is_installed, target=target, load=load)


@pytest.fixture(autouse=True)
def four_frameworks(monkeypatch):
    """Replace the installed frameworks. "first" and "second" adapt distributions."""
    frameworks = {
        "bare": make_framework("bare", adapts=False),
        "gone": make_framework("gone", is_installed=False),
        "first": make_framework("first"),
        "second": make_framework("second"),
    }
    framework_of_class = {LibraryDist: frameworks["second"], Dist: frameworks["second"]}
    plain_modules = {make_net: ["first"]}

    def frameworks_of_plain(source):
        return plain_modules.get(source, [])

    monkeypatch.setattr(in_process_module, "frameworks", lambda: frameworks)
    monkeypatch.setattr(in_process_module, "framework_of", framework_of_class.get)
    monkeypatch.setattr(in_process_module, "frameworks_of_plain", frameworks_of_plain)


# --- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "framework", "slot"), [(Net, "first", "trunk"), (MemoryNet, "second", "memory")]
)
def test_model_class_has_its_framework_and_slot(cls, framework, slot):
    part = in_process("model", cls)

    assert part.name == cls.__name__
    assert part.objects == {framework: cls}
    assert part.in_process
    assert part.declaration.slot == slot
    assert part.declaration.targets == {framework: f"{__name__}:{cls.__name__}"}
    assert not part.declaration.plain


def test_function_that_makes_a_module_is_a_plain_trunk():
    part = in_process("model", make_net)

    assert part.objects == {"first": make_net}
    assert part.declaration.plain
    assert part.declaration.slot == "trunk"


@pytest.mark.parametrize(
    ("source", "is_plain"),
    [
        pytest.param(make_net, True, id="function"),
        pytest.param(Net, False, id="class-of-a-trunk"),
        pytest.param(MemoryNet, False, id="class-of-a-memory"),
    ],
)
def test_memory_of_the_program_fills_the_memory_slot(source, is_plain):
    part = in_process("memory", source)

    assert part.kind == "model"
    assert part.slot == "memory"
    assert part.is_plain is is_plain


def test_name_and_fields_override_those_of_the_class():
    part = in_process("model", Net, "mine", switch="on", reads=("max_seq_len",))

    assert part.name == "mine"
    assert part.switch == "on"
    assert part.declaration.reads == ("max_seq_len",)


def test_slot_overrides_that_of_the_class():
    assert in_process("model", MemoryNet, slot="head").declaration.slot == "head"


def test_field_of_none_keeps_the_default():
    assert in_process("model", Net, slot=None).declaration.slot == "trunk"
    assert in_process("filter", Half, kinds=None).declaration.kinds == ()


def test_summary_is_the_first_line_of_the_docstring():
    assert in_process("model", Net).declaration.summary == "A net."
    assert in_process("model", make_net).declaration.summary == "Make a net."


def test_summary_without_docstring_names_the_class():
    assert in_process("model", MemoryNet).declaration.summary.startswith("MemoryNet")


# --- names ----------------------------------------------------------------------------------------


def test_path_of_class_is_its_place_in_a_module():
    assert path_of(Net) == f"{__name__}:Net"


def test_path_of_class_inside_a_function_is_a_valid_target():
    class Inner:
        pass

    # Without the "<locals>" of its qualified name.
    function = "test_path_of_class_inside_a_function_is_a_valid_target"
    assert path_of(Inner) == f"{__name__}:{function}.Inner"


def test_path_of_lambda_is_a_valid_target():
    assert path_of(lambda: None) == f"{__name__}:test_path_of_lambda_is_a_valid_target.lambda_"


def test_lambda_may_be_a_distribution_under_a_name():
    part = in_process("action_dist", lambda outputs: outputs, num_inputs=1, name="mine")

    assert part.name == "mine"


# --- distributions --------------------------------------------------------------------------------


def test_distribution_class_serves_all_frameworks():
    part = in_process("action_dist", Dist)

    # It has the methods of our distributions, so that no framework has to adapt it.
    assert part.objects == {"bare": Dist, "gone": Dist, "first": Dist, "second": Dist}
    assert not part.declaration.composite
    assert not part.declaration.wraps_default


def test_distribution_class_knows_its_number_of_inputs():
    size = in_process("action_dist", Dist).declaration.size

    assert size(THREE_ACTIONS, {}) == 3
    assert size(THREE_ACTIONS, {"more": 2}) == 5


def test_distribution_class_of_one_framework_serves_only_that():
    part = in_process("action_dist", CompositeDist)

    assert part.objects == {"second": CompositeDist}
    assert part.declaration.composite
    assert not part.declaration.wraps_default


@pytest.mark.parametrize(
    ("source", "num_inputs", "framework"),
    [
        # "first" comes before it, but the class belongs to "second".
        pytest.param(LibraryDist, None, "second", id="class-of-a-framework"),
        pytest.param(LibraryDist, 4, "second", id="class-of-a-framework-with-num-inputs"),
        # "first" is the first that is installed and adapts distributions.
        pytest.param(make_net, 4, "first", id="function"),
        pytest.param(OtherClass, 4, "first", id="class-of-no-framework"),
    ],
)
def test_distribution_of_a_library_is_adapted(source, num_inputs, framework):
    part = in_process("action_dist", source, num_inputs=num_inputs)

    [(adapting_framework, adapted_class)] = part.objects.items()
    assert adapting_framework == framework
    assert adapted_class.adapted == (framework, source, num_inputs)
    assert not part.declaration.composite
    assert not part.declaration.wraps_default


# --- preprocessors, filters and refusals ----------------------------------------------------------


def test_preprocessors_and_filters_need_no_framework():
    assert in_process("preprocessor", Codec).objects == {"numpy": Codec}
    assert in_process("filter", Half).objects == {"numpy": Half}


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        pytest.param("model", int, id="class-as-model"),
        pytest.param("model", Net.__new__(Net), id="instance-of-model-class"),
        pytest.param("memory", int, id="class-as-memory"),
        pytest.param("action_dist", int, id="class-as-distribution"),
        pytest.param("action_dist", make_net, id="function-without-num-inputs"),
        pytest.param("action_dist", OtherClass, id="class-without-num-inputs"),
        pytest.param("action_dist", ClassWithLogp, id="half-a-distribution"),
        pytest.param("action_dist", Dist.__new__(Dist), id="instance-of-distribution-class"),
        pytest.param("preprocessor", int, id="class-as-preprocessor"),
        pytest.param("preprocessor", 3, id="number-as-preprocessor"),
        pytest.param("preprocessor", Half, id="filter-as-preprocessor"),
    ],
)
def test_class_of_another_kind_is_rejected(kind, source):
    with pytest.raises(ModelContractError, match="registered name"):
        in_process(kind, source)


def test_number_of_inputs_does_not_make_a_number_a_distribution():
    with pytest.raises(ModelContractError, match="registered name"):
        in_process("action_dist", 3, num_inputs=2)


@pytest.mark.parametrize("source", [3, Codec], ids=["number", "preprocessor"])
def test_class_that_is_not_a_filter_is_rejected(source):
    with pytest.raises(ModelContractError) as caught:
        in_process("filter", source)

    # A filter in the config has only its registered name.
    assert "registered name" not in str(caught.value)
