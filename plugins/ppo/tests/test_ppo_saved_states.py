"""Saved training states: their bounds, their fit to the algorithm that resumes, their form as JSON
and in files.
"""

from __future__ import annotations

import copy
import json
from collections import deque
from types import SimpleNamespace

import gymnasium as gym
import msgspec
import numpy as np
import pytest

import rlcatalog
from rlcatalog.errors import ResumeWarning, SavedPolicyError
from rlcatalog_policy import Frozen, checksum_of
from rlcatalog_ppo import checkpoints
from rlcatalog_ppo.training_state import (
    check_fits,
    check_generators,
    check_like,
    check_state,
    numbers_of,
    warn_of_new_episodes,
    warn_of_other_draws,
)
from rlcatalog_ppo.trees import put_together, stack_steps, take_apart

MARKS = ("$array", "$tuple", "$deque", "$bytes", "$float")


def state_of(**changes):
    """Return the smallest valid state."""
    return {
        "algorithm": "PPO",
        "env": None,
        "config": {"num_envs": 1, "env_config": {}},
        "steps": 0,
        "iterations": 0,
        "seconds": 0.0,
        "generator": {},
        "randomness": {
            "python": (3, (1, 2), None),
            "numpy": ("MT19937", np.zeros(624, np.uint32), 624, 0, 0.0),
            "policy": {},
        },
        "learner": {
            "kl_coeff": 0.0,
            "optimizer": {"step": 0, "first": {}, "second": {}, "behind": {}},
        },
        "collector": {"episodes": {"returns": [], "lengths": [], "total": 0}, "state": None},
        "environments": [{"generator": {}}],
        "callbacks": {},
        **changes,
    }


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"steps": 2**53 - 1},
        {"iterations": 7, "seconds": 0.5},
        {"recorded": 3},
        {"frozen": True},
        {"env": "Walk-v0"},
    ],
)
def test_states_within_their_bounds_pass(changes):
    check_state(state_of(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 2**53},
        {"steps": -1},
        {"steps": 0.5},
        {"iterations": 2**53},
        {"seconds": -0.1},
        {"recorded": -1},
        {
            "learner": {
                "kl_coeff": -1.0,
                "optimizer": {"step": 0, "first": {}, "second": {}, "behind": {}},
            }
        },
        {
            "collector": {
                "episodes": {"returns": [0.0] * 101, "lengths": [], "total": 0},
                "state": None,
            }
        },
        {"randomness": {**state_of()["randomness"], "numpy": ("PCG64", np.zeros(4), 0, 0, 0.0)}},
        {"environments": {}},
    ],
    ids=str,
)
def test_states_beyond_their_bounds_are_refused(changes):
    with pytest.raises(msgspec.ValidationError):
        check_state(state_of(**changes))


def test_state_holds_as_many_environments_as_its_config_says():
    check_state(
        state_of(config={"num_envs": 2, "env_config": {}}, environments=[{"generator": {}}] * 2)
    )
    with pytest.raises(
        ValueError, match="its config has num_envs=3, but it contains the states of 1 environments"
    ):
        check_state(state_of(config={"num_envs": 3, "env_config": {}}))


def test_generators_of_a_state_are_checked_too():
    with pytest.raises(
        ValueError, match="the position of a generator MT19937 is 625; expected 0 to 624"
    ):
        check_state(state_of(generator={"bit_generator": "MT19937", "state": {"pos": 625}}))


@pytest.mark.parametrize(
    "tree",
    [
        {"bit_generator": "MT19937", "state": {"pos": 0}},
        {"bit_generator": "MT19937", "state": {"pos": 624}},
        {"bit_generator": "Philox", "buffer_pos": 0},
        {"bit_generator": "Philox", "buffer_pos": 4},
        {"bit_generator": "PCG64", "pos": 9999},
        {"bit_generator": ["MT19937"]},
        {"bit_generator": None},
        ("MT19937", 625),
        ("MT19937",),
        ["MT19937", [], 0],
        ["MT19937", [], 624, 0, 0.0],
        (["MT19937"], [], 625),
        ("Other", [], 625),
        "MT19937",
        3,
        None,
        np.arange(3),
        ("a", "MT19937", 625),
    ],
    ids=str,
)
def test_what_is_within_bounds_or_no_generator_passes(tree):
    check_generators({"a": [tree]})


@pytest.mark.parametrize(
    ("tree", "most"),
    [
        ({"bit_generator": "MT19937", "state": {"pos": 625}}, 624),
        ({"bit_generator": "Philox", "buffer_pos": 5}, 4),
        ({"bit_generator": "Philox", "buffer_pos": -1}, 4),
        ({"bit_generator": "MT19937", "state": {"pos": 1.0}}, 624),
        ({"bit_generator": "MT19937", "pos": 3}, 624),
        (["MT19937", [], 625], 624),
        (("Philox", [], 5, 1), 4),
        (("MT19937", [], True), 624),
        ({"bit_generator": "MT19937", "state": "pos"}, 624),
    ],
    ids=str,
)
def test_positions_out_of_bounds_are_found_at_any_depth(tree, most):
    for place in (
        tree,
        {"a": tree},
        [1, (tree,)],
        {"bit_generator": "PCG64", "inner": {"deep": [tree]}},
    ):
        with pytest.raises(
            ValueError, match=f"a generator (MT19937|Philox) is .*; expected 0 to {most}"
        ):
            check_generators(place)


# --- fit ------------------------------------------------------------------------------------------


def parts(weights=("w",), *, scale=None, state=None, **columns):
    """Return the parts of a state that hold arrays, of two environments."""
    moments = {name: np.zeros(3, np.float32) for name in weights}
    collector = {
        "episodes": {"returns": []},
        "returns": np.zeros(2),
        "encoded": np.zeros((2, 4), np.float32),
    }
    return {
        "learner": {"optimizer": {"first": dict(moments), "second": dict(moments)}},
        "collector": {**collector, "scale": scale, "state": state, **columns},
    }


def memory(rows=2, **changes):
    return {
        "memory": (np.zeros((rows, 5)),),
        "windows": {"obs": np.zeros((rows, 3))},
        "t": np.zeros(rows, int),
        "seen": {"obs": np.zeros((rows, 3, 1)), "t": np.zeros(rows)},
        "past": (np.zeros(rows),),
        **changes,
    }


SUMS = {"moments": np.zeros(3), "sums": np.zeros(2)}


@pytest.mark.parametrize(
    ("saved", "now"),
    [
        (parts(), parts()),
        (parts(episodes={"returns": [1.0, 2.0]}), parts()),
        (parts(other=np.zeros(9)), parts()),
        (parts(), parts(other=np.zeros(9))),
        (parts(scale=SUMS), parts(scale=SUMS)),
        (parts(scale=SUMS), parts()),
        (parts(), parts(scale=SUMS)),
        (parts(state=memory()), parts(state=memory())),
        (parts(state=memory()), parts()),
        (parts(state=memory(seen={})), parts(state=memory())),
        (parts(returns=np.zeros(2, np.float32)), parts()),
        (parts(state=memory(seen={"x": np.zeros((2, 9, 9))})), parts(state=memory())),
        (parts(("a", "b")), parts(("b", "a"))),
        # Written before masks in infos were read.
        (parts(mask=None), parts(mask=np.ones((2, 3), bool))),
    ],
)
def test_states_of_the_same_arrays_fit(saved, now):
    check_fits(saved, now)


def test_state_of_a_version_without_scaling_fits():
    saved = parts()
    del saved["collector"]["scale"]
    check_fits(saved, parts(scale=SUMS))


@pytest.mark.parametrize(
    ("saved", "now", "message"),
    [
        (
            parts(("w", "b", "x")),
            parts(("w", "a")),
            r"frozen there, or vice versa: a, b, x\. Freeze the same ones",
        ),
        (parts(()), parts(), "vice versa: w"),
        (parts(), parts(()), "vice versa: w"),
        (
            parts(returns=np.zeros(3)),
            parts(),
            r"collector/returns: expected float64 \[2\], found float64 \[3\]",
        ),
        (
            parts(encoded=np.zeros((2, 4), int)),
            parts(),
            r"/encoded: expected float32 \[2, 4\], found int64 \[2, 4\]",
        ),
        (
            parts(scale={**SUMS, "sums": np.zeros(3)}),
            parts(scale=SUMS),
            "collector/scale/sums: expected float64",
        ),
        (
            parts(scale={"moments": np.zeros(3)}),
            parts(scale=SUMS),
            "collector/scale: expected .*sums.*, found",
        ),
        *(
            (
                parts(state=memory(**{name: memory(3)[name]})),
                parts(state=memory()),
                f"/state/{name}[/a-z0]*: expected",
            )
            for name in ("memory", "windows", "t", "past")
        ),
        *(
            (
                parts(state=memory(seen=seen)),
                parts(state=memory()),
                "collector/state/seen: expected arrays of 2 rows, found",
            )
            for seen in (
                {"a": np.zeros(2), "b": np.zeros(3)},
                {"a": np.zeros(3)},
                {"a": None},
                1,
                np.zeros(3),
            )
        ),
    ],
    ids=lambda part: part[:40] if isinstance(part, str) else "",
)
def test_arrays_that_do_not_fit_are_named(saved, now, message):
    with pytest.raises(ValueError, match=message):
        check_fits(saved, now)


@pytest.mark.parametrize("name", ["first", "second"])
def test_moments_of_another_shape_are_named(name):
    saved = parts()
    saved["learner"]["optimizer"][name] = {"w": np.zeros(4, np.float32)}
    with pytest.raises(
        ValueError,
        match=rf"^learner/optimizer/{name}/w: expected float32 \[3\], found float32 \[4\]$",
    ):
        check_fits(saved, parts())


def test_structures_are_compared_by_names_lengths_shapes_and_kinds():
    like = {"a": [np.zeros(2), (np.zeros((1, 3), np.int32),)], "b": None}
    check_like(
        {"a": [np.ones(2, np.float32), (np.ones((1, 3), np.int8),)], "b": None}, like, "place"
    )
    with pytest.raises(ValueError, match=r"^place: expected .*, found "):
        check_like({"a": [np.zeros(2), np.zeros((1, 3), np.int32)], "b": None}, like, "place")
    with pytest.raises(
        ValueError, match=r"^place/a/1/0: expected int32 \[1, 3\], found uint8 \[1, 3\]$"
    ):
        check_like({"a": [np.zeros(2), (np.zeros((1, 3), np.uint8),)], "b": None}, like, "place")
    with pytest.raises(
        ValueError, match=r"^place/a/0: expected float64 \[2\], found float64 \[2, 1\]$"
    ):
        check_like(
            {"a": [np.zeros((2, 1)), (np.zeros((1, 3), np.int32),)], "b": None}, like, "place"
        )


def test_numbers_are_copies_of_weights_and_filter():
    weight, statistics = np.zeros(2), {"mean": np.ones(3)}
    model = SimpleNamespace(get_weights=lambda: {"w": weight})
    found = numbers_of(
        SimpleNamespace(model=model, filter=SimpleNamespace(saved_state=lambda: statistics))
    )
    weight += 1
    statistics["mean"] += 1
    assert found["weights"]["w"].tolist() == [0, 0]
    assert found["filter"]["mean"].tolist() == [1, 1, 1]
    assert numbers_of(SimpleNamespace(model=model, filter=None))["filter"] is None


# --- warnings -------------------------------------------------------------------------------------


def acting(frozen, names):
    if not frozen:
        return SimpleNamespace(random_state=lambda: dict.fromkeys(names))
    kind = type(
        "Acting",
        (Frozen,),
        {"random_state": lambda self: dict.fromkeys(names), "reason": "it has a loop"},
    )
    return object.__new__(kind)


@pytest.mark.parametrize(
    ("frozen", "names", "warns"),
    [
        (True, ("cpu",), True),
        (True, ("cpu", "frozen"), False),
        (False, ("cpu",), False),
        (True, (), True),
    ],
)
def test_other_draws_are_warned_of_where_a_frozen_policy_lost_its_generator(
    frozen, names, warns, recwarn
):
    warn_of_other_draws({"randomness": {"policy": {"cpu": 0, "frozen": 0}}}, acting(frozen, names))
    assert [warning.category for warning in recwarn] == [ResumeWarning] * warns
    if warns:
        assert "not possible here: it has a loop. It continues with the policy itself" in str(
            recwarn[0].message
        )


def test_new_episodes_are_warned_of_with_the_first_reason():
    with pytest.warns(
        ResumeWarning, match=r"^2 of 5 environments cannot .* Environment 1: it is mute\. Give"
    ):
        warn_of_new_episodes({1: "it is mute", 3: "another"}, 5)


# --- JSON -----------------------------------------------------------------------------------------


def test_each_type_has_its_form_and_arrays_are_named_by_their_place():
    tree = {
        "list": [1, np.zeros(1)],
        "tuple": (True, None),
        "deque": deque([2.5], 4),
        "bytes": b"\0\xff",
        "nan": float("nan"),
        "inf": float("-inf"),
        "one": 1.0,
        "text": "$array",
        "deep": {"x": (np.int8(3), [np.ones(2, bool)])},
    }
    arrays = {}
    assert take_apart(tree, arrays) == {
        "list": [1, {"$array": "list/1"}],
        "tuple": {"$tuple": [True, None]},
        "deque": {"$deque": [2.5]},
        "bytes": {"$bytes": "AP8="},
        "nan": {"$float": "nan"},
        "inf": {"$float": "-inf"},
        "one": 1.0,
        "text": "$array",
        "deep": {"x": {"$tuple": [{"$array": "deep/x/0"}, [{"$array": "deep/x/1/0"}]]}},
    }
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "list/1": [0.0],
        "deep/x/0": 3,
        "deep/x/1/0": [True, True],
    }
    named = {}
    assert take_apart([np.zeros(1), {"a": np.zeros(1)}], named, "at") == [
        {"$array": "at/0"},
        {"a": {"$array": "at/1/a"}},
    ]
    assert take_apart([np.zeros(1)], named) == [{"$array": "0"}]
    assert take_apart(np.zeros(1), named) == {"$array": "value"}
    assert take_apart(np.uint8(1), named, "here") == {"$array": "here"}
    assert named.keys() == {"at/0", "at/1/a", "0", "value", "here"}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({1: 2}, "the state: the key 1 cannot be saved"),
        ({"a": {("x",): 2}}, r"a: the key \('x',\) cannot be saved"),
        *(({"a": [{mark: 1}]}, rf"a/0: the key '\{mark}' cannot") for mark in MARKS),
        (np.array(["x"]), "the state: ndarray cannot be saved"),
        ({"a": np.array([1j])}, "a: ndarray cannot be saved"),
        (np.array([None]), "the state: ndarray cannot"),
        (np.str_("x"), "the state: str_ cannot"),
        ({1}, "the state: set cannot"),
        ([...], "0: ellipsis cannot be saved"),
    ],
    ids=str,
)
def test_what_cannot_be_saved_is_named_by_its_place(tree, message):
    with pytest.raises(TypeError, match=f"^{message}"):
        take_apart(tree, {})


def test_json_becomes_the_structure_again():
    array = np.arange(3)
    data = {
        "a": [{"$array": "x"}, {"$tuple": [1, {"$deque": [2]}]}],
        "b": {"$bytes": "AP8="},
        "c": {"$float": "inf"},
        "d": {},
        "e": {"$tuple": [1], "other": 2},
        "f": {"plain": {"$tuple": []}},
        "g": None,
    }
    found = put_together(data, {"x": array})
    assert found["a"][0] is array
    assert found["a"][1] == (1, deque([2]))
    rest = {name: part for name, part in found.items() if name != "a"}
    assert rest == {
        "b": b"\0\xff",
        "c": float("inf"),
        "d": {},
        "e": {"$tuple": [1], "other": 2},
        "f": {"plain": ()},
        "g": None,
    }
    for mark, held in (
        ("$array", "y"),
        ("$array", []),
        ("$bytes", "!!!!"),
        ("$bytes", "A"),
        ("$float", "x"),
        ("$tuple", 3),
    ):
        with pytest.raises(ValueError, match=rf"^\{mark}: "):
            put_together([{mark: held}], {"x": array})


def test_steps_are_stacked_in_their_structure():
    step = {"a": np.zeros(2), "b": (np.ones(2), {"c": np.zeros((2, 3))})}
    for count in (1, 4):
        found = stack_steps([step] * count)
        assert found["a"].shape == (count, 2)
        assert isinstance(found["b"], tuple)
        assert (found["b"][0].shape, found["b"][1]["c"].shape) == ((count, 2), (count, 2, 3))


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def policy():
    return rlcatalog.build(
        env=gym.make("CartPole-v1"), config={"fcnet_hiddens": [2]}, framework="torch"
    )


@pytest.fixture
def folder(policy, tmp_path):
    checkpoints.write(
        tmp_path / "checkpoint", policy, {**state_of(), "policy": {"weights": object()}}
    )
    return tmp_path / "checkpoint"


def test_checkpoint_is_a_policy_a_text_and_arrays(folder, policy):
    text = (folder / "training.json").read_text()
    about = json.loads(text)
    assert text.endswith("}\n")
    assert (about["format"], about["format_version"]) == ("rlcatalog-training", 1)
    assert about["checksum"] == checksum_of(about)
    [name] = about["files"]
    assert {path.name for path in folder.iterdir()} == {"policy", "training.json", name}
    assert "policy" not in about["state"]
    place, state = checkpoints.read(folder)
    assert place == folder
    assert state.keys() == state_of().keys()
    np.testing.assert_array_equal(state["randomness"]["numpy"][1], np.zeros(624))
    assert (
        rlcatalog.load(folder / "policy").model.get_weights().keys()
        == policy.model.get_weights().keys()
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: [], "no format 'rlcatalog-training' in it"),
        (lambda about: {**about, "format": "other"}, "no format 'rlcatalog-training' in it"),
        (lambda about: {**about, "format_version": 2}, "format version 2; this rlcatalog reads 1"),
        (lambda about: {**about, "state": {**about["state"], "steps": 7}}, "its checksum differs"),
        (lambda about: {**about, "files": {"../other": "0"}}, r"names the file '\.\./other'"),
        (lambda about: {**about, "state": {**about["state"], "steps": -7}}, "steps"),
    ],
)
def test_changed_text_is_refused(change, message, folder):
    about = change(json.loads((folder / "training.json").read_text()))
    if "checksum" not in message and isinstance(about, dict):
        about["checksum"] = checksum_of(about)
    (folder / "training.json").write_text(json.dumps(about))
    with pytest.raises(
        SavedPolicyError,
        match=rf"checkpoint/training\.json: not a checkpoint, or damaged: .*{message}",
    ):
        checkpoints.read(folder)


def test_links_and_long_texts_are_not_read(folder, tmp_path):
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(SavedPolicyError, match="link: a link, which is not followed"):
        checkpoints.read(folder)
    with (folder / "training.json").open("r+b") as file:
        file.truncate(2**25 + 1)  # most of it takes no space
    with pytest.raises(SavedPolicyError, match="at most 33554432"):
        checkpoints.read(folder)


def test_folder_without_a_checkpoint_differs_from_a_saved_policy(policy, tmp_path):
    with pytest.raises(
        SavedPolicyError, match=r"contains no checkpoint to resume from \(no training\.json\)"
    ):
        checkpoints.read(tmp_path)
    policy.save(tmp_path / "saved")
    with pytest.raises(SavedPolicyError, match="contains a saved policy, not a checkpoint"):
        checkpoints.read(tmp_path / "saved")


def test_actions_are_left_out_of_a_text_that_is_too_long_alone(policy, tmp_path, monkeypatch):
    told = {"generator": {"g": 1}, "levels": [1] * 30}
    places = [{"generator": {"g": 0}, "actions": [1] * 300}, told]
    state = state_of(environments=places, config={"num_envs": 2, "env_config": {}})
    checkpoints.write(tmp_path / "whole", policy, copy.deepcopy(state))
    size = (tmp_path / "whole" / "training.json").stat().st_size
    monkeypatch.setattr(checkpoints, "_LONGEST", size)
    checkpoints.write(tmp_path / str(size), policy, copy.deepcopy(state))
    monkeypatch.setattr(checkpoints, "_LONGEST", size - 1)
    with pytest.warns(ResumeWarning, match="need too much space to be saved"):
        checkpoints.write(tmp_path / str(size - 1), policy, copy.deepcopy(state))
    assert checkpoints.read(tmp_path / str(size - 1))[1]["environments"] == [
        {
            "generator": {"g": 0},
            "why": "the actions of its episode need too much space to be saved",
        },
        told,
    ]
    monkeypatch.setattr(checkpoints, "_LONGEST", size)
    assert checkpoints.read(tmp_path / str(size))[1]["environments"] == places


def test_what_does_not_fit_its_owner_is_blamed_on_the_state():
    with (
        pytest.raises(
            SavedPolicyError, match=r"^Evaluation: the saved state does not fit: KeyError: 'x'\."
        ),
        checkpoints.blamed("Evaluation"),
    ):
        raise KeyError("x")
    for error in (SavedPolicyError("as it is"), ResumeWarning("as it is")):
        with pytest.raises(type(error), match=r"^as it is$"), checkpoints.blamed("Evaluation"):
            raise error
