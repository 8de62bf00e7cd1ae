"""Components made from the running program's classes: their frameworks, fields, names, and what is
refused.
"""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import pytest

import rlcatalog
from rlcatalog import Filter, ModelV2, Preprocessor, SpaceInfo
from rlcatalog.choice import in_process as module
from rlcatalog.choice.in_process import in_process, path_of
from rlcatalog.errors import ModelContractError

FLAT = SpaceInfo.read(gym.spaces.Discrete(3), "action")


class Net(ModelV2):
    """A net.

    With more to say.
    """

    framework_of_class = "first"


class Memory(Net):
    framework_of_class = "second"
    slot_of_class = "memory"


class Dist(rlcatalog.ActionDistribution):
    @staticmethod
    def required_model_output_shape(action_space, model_config):
        return action_space.n + model_config.get("more", 0)


class Joint(Dist):
    framework_of_class = "second"
    composite = True


class Normal:
    """A distribution of the framework 'second'."""


class Codec(Preprocessor):
    pass


class Half(Filter):
    pass


def factory():
    """Make a net."""


def adapter(name, loads=True):
    """Return a framework's function that makes an action distribution of a class or function."""

    def load(what):
        assert loads, f"{name} must not be asked"
        assert what == "distribution"

        def adapt(source, num_inputs):
            fields = {
                "adapted": (name, source, num_inputs),
                "framework_of_class": name,
                "logp": None,
            }
            return type(
                "Adapted",
                (),
                {**fields, "required_model_output_shape": staticmethod(lambda s, c: num_inputs)},
            )

        return adapt

    return load


@pytest.fixture(autouse=True)
def table(monkeypatch):
    """Four frameworks: two adapt distributions, one of which is not the first; one cannot, one is
    not installed.
    """
    specs = [
        SimpleNamespace(
            name="bare",
            is_installed=True,
            target=lambda what: None,
            load=adapter("bare", loads=False),
        ),
        SimpleNamespace(
            name="gone",
            is_installed=False,
            target=lambda what: "m:f",
            load=adapter("gone", loads=False),
        ),
        SimpleNamespace(
            name="first", is_installed=True, target=lambda what: "m:f", load=adapter("first")
        ),
        SimpleNamespace(
            name="second", is_installed=True, target=lambda what: "m:f", load=adapter("second")
        ),
    ]
    of_class = {Normal: specs[3], Dist: specs[3]}
    monkeypatch.setattr(module, "frameworks", lambda: {spec.name: spec for spec in specs})
    monkeypatch.setattr(module, "framework_of", lambda cls: of_class.get(cls.__mro__[0]))
    monkeypatch.setattr(
        module, "frameworks_of_plain", lambda source: ["first"] if source is factory else []
    )


# --- models ---------------------------------------------------------------------------------------


def test_model_class_has_its_framework_and_slot():
    for cls, framework, slot in ((Net, "first", "trunk"), (Memory, "second", "memory")):
        made = in_process("model", cls)
        assert (made.objects, made.declaration.slot, made.name) == (
            {framework: cls},
            slot,
            cls.__name__,
        )
        assert made.declaration.targets == {framework: f"{__name__}:{cls.__name__}"}
        assert not made.declaration.plain
        assert made.in_process


def test_plain_module_is_a_trunk_of_its_framework():
    made = in_process("model", factory)
    assert (made.objects, made.declaration.plain, made.declaration.slot) == (
        {"first": factory},
        True,
        "trunk",
    )


def test_name_and_fields_override_those_of_the_class():
    made = in_process("model", Net, "mine", slot=None, switch="on", reads=("max_seq_len",))
    assert (made.name, made.declaration.slot, made.switch) == ("mine", "trunk", "on")
    assert made.declaration.reads == ("max_seq_len",)
    assert in_process("model", Memory, slot="head").declaration.slot == "head"
    assert in_process("filter", Half, kinds=None).declaration.kinds == ()


def test_summary_is_the_docstring_or_names_the_class():
    assert in_process("model", Net).declaration.summary == "A net."
    assert in_process("model", factory).declaration.summary == "Make a net."
    assert in_process("model", Memory).declaration.summary.startswith("Memory")
    assert in_process("action_dist", lambda x: x, num_inputs=1, name="mine").name == "mine"


def test_path_of_class_is_a_valid_target():
    class Inner:
        pass

    own = "test_path_of_class_is_a_valid_target"
    assert path_of(Inner) == f"{__name__}:{own}.Inner"
    assert path_of(lambda: None) == f"{__name__}:{own}.lambda_"
    assert path_of(Net) == f"{__name__}:Net"


# --- distributions --------------------------------------------------------------------------------


def test_distribution_class_serves_its_framework_or_all():
    made = in_process("action_dist", Dist)
    # It is not adapted.
    assert made.objects == dict.fromkeys(("bare", "gone", "first", "second"), Dist)
    assert (made.declaration.composite, made.declaration.wraps_default) == (False, False)
    assert made.declaration.size(FLAT, {}) == 3
    assert made.declaration.size(FLAT, {"more": 2}) == 5
    joint = in_process("action_dist", Joint)
    assert joint.objects == {"second": Joint}
    assert (joint.declaration.composite, joint.declaration.wraps_default) == (True, False)


@pytest.mark.parametrize(
    ("source", "num_inputs", "by"),
    [
        (Normal, None, "second"),  # its own framework adapts it, though another one comes first
        (Normal, 4, "second"),
        (factory, 4, "first"),  # of no framework: the first that is installed and can
        (type("Other", (), {}), 4, "first"),
    ],
)
def test_distribution_of_a_framework_is_adapted(source, num_inputs, by):
    made = in_process("action_dist", source, num_inputs=num_inputs)
    assert (made.declaration.composite, made.declaration.wraps_default) == (False, False)
    (framework, cls), *more = made.objects.items()
    assert more == []
    assert framework == by
    assert cls.adapted == (by, source, num_inputs)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "source", "fields"),
    [
        ("model", int, {}),
        ("model", Net.__new__(Net), {}),  # an object of a model class
        ("action_dist", int, {}),
        ("action_dist", factory, {}),  # without num_inputs
        ("action_dist", type("Other", (), {}), {}),
        ("action_dist", type("Half", (), {"logp": None}), {}),
        ("action_dist", Dist.__new__(Dist), {}),
        ("action_dist", 3, {"num_inputs": 2}),
        ("preprocessor", int, {}),
        ("preprocessor", 3, {}),
        ("preprocessor", Half, {}),
        ("filter", 3, {}),
        ("filter", Codec, {}),
    ],
)
def test_class_of_another_kind_is_rejected(kind, source, fields):
    with pytest.raises(ModelContractError) as raised:
        in_process(kind, source, **fields)
    # a filter has only its registered name.
    assert ("registered name" in str(raised.value)) == (kind != "filter")


def test_preprocessors_and_filters_need_no_framework():
    assert in_process("preprocessor", Codec).objects == {"numpy": Codec}
    assert in_process("filter", Half).objects == {"numpy": Half}
