"""What is given to a policy: observations, masks and stored actions that are none are refused,
never taken for others.

A good observation comes first, so that under "first" the check of the whole has passed. What
follows is spoiled in one place, or is not; that it is known which is the truth that the refusals
are compared with.
"""

from __future__ import annotations

import datetime
from collections import Counter

import numpy as np
import pytest
from action_kinds import ACTIONS, DEPENDENT
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

import rlcatalog
from rlcatalog.errors import ActionError, ActionMaskError, CatalogError, ObservationError
from rlcatalog.spaces import Repeated, Simplex

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
attack = pytest.mark.attack

SMALL = {"fcnet_hiddens": [4]}

# --- observations ---------------------------------------------------------------------------------

#: What is no number, whatever the space: each makes a value of the given shape.
NO_NUMBERS = {
    "texts": lambda shape: np.full(shape, "1"),
    "bytes": lambda shape: np.full(shape, b"1"),
    "complex numbers": lambda shape: np.full(shape, 1 + 0j),
    "datetimes": lambda shape: np.full(shape, np.datetime64("2020-01-01")),
    "durations": lambda shape: np.full(shape, np.timedelta64(1, "s")),
    "nothing": lambda shape: np.full(shape, None),
    "objects": lambda shape: np.full(shape, datetime.date(2020, 1, 1)),
    "records": lambda shape: np.zeros(shape, [("a", "f4")]),
}
LEAVES = {
    "float": spaces.Box(-9, 9, (3,), np.float32),
    "double": spaces.Box(-9, 9, (2, 2), np.float64),
    "number": spaces.Box(-9, 9, (), np.float32),
    "byte": spaces.Box(0, 200, (3,), np.uint8),
    "whole": spaces.Box(-9, 9, (2,), np.int64),
    "flag": spaces.Box(0, 1, (2,), np.bool_),
    "choice": spaces.Discrete(4, start=-1),
    "choices": spaces.MultiDiscrete([[3, 2], [2, 5]]),
    "bits": spaces.MultiBinary(3),
    "simplex": Simplex((3,)),
}
WORLD = spaces.Dict(
    {**LEAVES, "more": spaces.Tuple([spaces.Discrete(3), LEAVES["float"]]), "word": spaces.Text(4)}
)
LISTS = spaces.Dict(
    {
        "list": Repeated(LEAVES["float"], 3),
        "pair": spaces.Tuple([LEAVES["number"], LEAVES["number"]]),
        "sequence": spaces.Sequence(LEAVES["choice"]),
        "texts": spaces.Sequence(spaces.Text(3)),
        "stacked": spaces.Sequence(LEAVES["float"], stack=True),
        "graph": spaces.Graph(LEAVES["float"], LEAVES["choice"]),
        "one": spaces.OneOf([LEAVES["float"], LEAVES["choice"]]),
    }
)
SIZES = {"sequence_max_len": 3, "graph_max_nodes": 4, "graph_max_edges": 4}


def codec_of(space, check="first"):
    options = rlcatalog.default_catalog().parse_config({**SIZES, "check_observations": check})
    return rlcatalog.default_catalog().preprocessor_for(space, options)


def batched(space, observations):
    return concatenate(space, observations, create_empty_array(space, len(observations)))


@pytest.mark.parametrize("kind", NO_NUMBERS)
@pytest.mark.parametrize("name", LEAVES)
def test_what_is_no_number_is_refused_after_the_first_observation(name, kind):
    space, make = LEAVES[name], NO_NUMBERS[kind]
    for whole, put in (
        (space, lambda value: value),
        (spaces.Dict({"a": space}), lambda value: {"a": value}),
    ):
        codec = codec_of(whole)
        codec.encode_batch([put(space.sample())])
        assert not codec._unchecked
        one, path = make(space.shape), "obs" if whole is space else r"obs\['a'\]"
        for spoiled in (put(one), put(one.tolist())):
            with pytest.raises(ObservationError, match=f"^{path}: expected"):
                codec.transform(spoiled)
            with pytest.raises(ObservationError, match=r"^obs"):
                codec.encode_batch([put(space.sample()), spoiled])
        for spoiled in (put(make((2, *space.shape))), put(make((2, *space.shape)).tolist())):
            with pytest.raises(ObservationError, match=r"^obs"):
                codec.encode_batch(tuple(spoiled) if isinstance(spoiled, list) else spoiled)
        assert np.isfinite(codec.encode_batch([put(space.sample())])).all()


@pytest.mark.grid
@pytest.mark.parametrize(
    "spoiled", ["text", b"text", None, 3, 1.5, 1j, {"a": 1}, {1, 2}, np.datetime64(1, "s")], ids=str
)
@pytest.mark.parametrize("name", LISTS.spaces)
def test_what_is_no_list_is_refused_after_the_first_observation(name, spoiled):
    codec = codec_of(LISTS)
    LISTS.seed(0)
    good = {key: within(LISTS[key]) for key in LISTS.spaces}
    codec.encode_batch([good])
    for refuse in (lambda obs: codec.transform(obs), lambda obs: codec.encode_batch([good, obs])):
        with pytest.raises(ObservationError):
            refuse({**good, name: spoiled})


def within(space):
    """Sample what is within the sizes above."""
    if isinstance(space, spaces.Graph):
        return space.sample(num_nodes=3, num_edges=2)
    while True:
        found = space.sample()
        if isinstance(space, spaces.OneOf) or len(found) <= 3:
            return found


def test_columns_and_rows_that_do_not_belong_are_refused_after_the_first_observation():
    codec = codec_of(WORLD)
    good = [WORLD.sample() for _ in range(3)]
    codec.encode_batch(good)
    batch = batched(WORLD, good)
    codec.encode_batch(batch)
    for spoiled in (
        {**batch, "extra": np.zeros(3)},
        {key: value for key, value in batch.items() if key != "bits"},
        {**batch, "bits": batch["bits"][:2]},
        {**batch, "float": batch["float"][:, :2]},
        {**batch, "byte": batch["byte"].astype(np.float32)},
        {**batch, "more": batch["more"][:1]},
    ):
        with pytest.raises(ObservationError):
            codec.encode_batch(spoiled)


def test_whole_numbers_that_a_dtype_cannot_hold_are_not_cut():
    codec = codec_of(LEAVES["byte"])
    codec.encode_batch([LEAVES["byte"].sample()])
    assert codec.encode_batch(np.full((2, 3), 7)).tolist() == [[7, 7, 7]] * 2
    for value in (-1, 256, 2**40):
        with pytest.raises(ObservationError):
            codec.encode_batch(np.full((2, 3), value))


def spoil(rng, obs):
    """Spoil one leaf of an observation of `WORLD`, so that it lies in the space no more; return
    what was done.
    """
    name = rng.choice([*LEAVES, "more", "word"])
    if name == "word":
        obs[name] = rng.choice(np.array(["toolong", "sp ce", "é"], object))
        return name, "text"
    target, value = (
        (LEAVES["float"], obs["more"][1]) if name == "more" else (LEAVES[name], obs[name])
    )
    ways = ["kind", "shape", "range", "NaN"]
    way = ways[rng.integers(4 if target.dtype.kind == "f" else 2 if name == "flag" else 3)]
    value = np.array(value)
    if way == "kind":
        value = NO_NUMBERS[rng.choice([*NO_NUMBERS])](target.shape)
    elif way == "shape":
        value = np.zeros((*target.shape, 1 + rng.integers(3)), target.dtype)
    else:
        place = tuple(rng.integers(n) for n in target.shape)
        wide = np.float64 if target.dtype.kind == "f" else np.int64
        value = value.astype(wide)
        value[place] = (
            rng.choice([np.nan, np.inf, -np.inf])
            if way == "NaN"
            else rng.choice([-50, 250, 1 << 30])
        )
    obs[name] = (obs["more"][0], value) if name == "more" else value
    return name, way


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=attack) for seed in range(1, 5))])
@pytest.mark.parametrize("check", ["always", "first"])
def test_no_observation_is_taken_for_another(check, seed, request):
    """Single ones and lists of some, a third of them spoiled: a refusal where and only where one
    is.

    Under "first" values out of range pass; kinds, shapes and texts do not, and what is no number
    fails in acting.
    """
    rng = np.random.default_rng(seed)
    WORLD.seed(seed)
    codec = codec_of(WORLD, check)
    codec.encode_batch([WORLD.sample()])
    pool = [WORLD.sample() for _ in range(64)]
    expected = [codec.transform(obs) for obs in pool]
    silent, alarms, seen = Counter(), Counter(), 0
    while seen < (100_000 if seed else 1_500):
        places = rng.integers(len(pool), size=rng.choice([1, 1, 1, 8]))
        chosen, done = [dict(pool[place]) for place in places], None
        if rng.random() < 1 / 3:
            done = spoil(rng, chosen[rng.integers(len(chosen))])
        if check == "first" and done is not None and done[1] in ("range", "NaN"):
            continue
        seen += len(chosen)
        try:
            found = (
                codec.transform(chosen[0])[None] if len(chosen) == 1 else codec.encode_batch(chosen)
            )
        except ObservationError:
            alarms[done] += done is None
        else:
            silent[done] += done is not None or not np.array_equal(
                found, np.stack([expected[i] for i in places])
            )
    assert not +silent
    assert not +alarms


# --- masks ----------------------------------------------------------------------------------------

MASKED = [
    name
    for name in ACTIONS
    if rlcatalog.actions.ActionMasks(rlcatalog.SpaceInfo.read(ACTIONS[name][0])).size
]
ODD = [np.nan, 0.3, -1, 3, np.inf, 1e-30, "0", b"1", None, 1j]


def policy_of(name, framework="torch", **config):
    space, keys = {**ACTIONS, **DEPENDENT}[name]
    return rlcatalog.build(
        spaces.Box(-1, 1, (2,), np.float32), space, {**SMALL, **keys, **config}, framework
    )


@pytest.mark.parametrize("name", MASKED)
def test_masks_hold_booleans_or_0_and_1(name):
    policy, rng = policy_of(name), np.random.default_rng(0)
    obs, size = np.zeros((4, 2), np.float32), policy.masks.size
    good = rng.random((4, size)) < 0.5
    for start, (_, count) in zip(
        np.cumsum([0] + [n for _, n in policy.masks.choices]), policy.masks.choices, strict=False
    ):
        good[:, start + rng.integers(count)] = True
    for dtype in (bool, np.int8, np.uint8, np.int64, np.float32, np.float64):
        np.testing.assert_array_equal(policy.masks.matrix(good.astype(dtype), 4), good)
    np.testing.assert_array_equal(policy.masks.matrix(good.tolist(), 4), good)
    for odd in ODD:
        bad = good.astype(
            object if isinstance(odd, str | bytes | None) else np.result_type(type(odd), np.float32)
        )
        bad[rng.integers(4), rng.integers(size)] = odd
        forms = [bad, bad.tolist()] + (
            [bad.astype(type(odd))] if isinstance(odd, str | bytes) else []
        )
        for mask in forms:
            with pytest.raises(ActionMaskError, match="expected booleans, or 0 and 1; found"):
                policy.act(obs, mask=mask)


def test_gymnasiums_masks_of_bits_hold_0_1_and_2():
    policy, obs = policy_of("multi_binary"), np.zeros((2, 2), np.float32)
    assert policy.act(obs, mask=np.array([[0, 1, 2], [1, 1, 0]], np.int8)).action[1].tolist() == [
        1,
        1,
        0,
    ]
    for odd in (3, -1, 0.5, np.nan):
        with pytest.raises(
            ActionMaskError, match="expected values 0, 1 or 2, where 2 means either; found"
        ):
            policy.act(obs, mask=np.array([[0, 1, odd], [1, 1, 0]]))


# --- stored actions -------------------------------------------------------------------------------


def tensors(framework, batch):
    if framework == "torch":
        import torch

        return {key: torch.from_numpy(value) for key, value in batch.items()}
    import tensorflow as tf

    return {key: tf.convert_to_tensor(value) for key, value in batch.items()}


def spoiled_batches(policy, batch, rng):
    """Yield what was done to a good batch, the batch, and the error it must be."""
    rows, width = batch["raw_action"].shape
    raw = batch["raw_action"]
    for name in ("obs", "raw_action", "dist_inputs", "mask"):
        if name in batch:
            error = ActionMaskError if name == "mask" else ActionError
            yield f"fewer {name}", {**batch, name: batch[name][:3]}, error
            yield f"more {name}", {**batch, name: np.concatenate([batch[name]] * 2)}, error
    yield "one row", {**batch, "raw_action": raw[:1]}, ActionError
    yield "no axis", {**batch, "raw_action": raw[0]}, ActionError
    yield (
        "a column more",
        {**batch, "raw_action": np.concatenate([raw, raw[:, :1]], 1)},
        ActionError,
    )
    yield "a column less", {**batch, "raw_action": raw[:, 1:]}, ActionError
    yield "an axis more", {**batch, "raw_action": raw[..., None]}, ActionError
    yield (
        "a wider observation",
        {**batch, "obs": np.concatenate([batch["obs"]] * 2, 1)},
        ObservationError,
    )
    for column, count in counted(policy.action_codec):
        for odd in (-1, count, count + 5, 2**40) + (
            (np.nan, np.inf, 0.5) if raw.dtype.kind == "f" else ()
        ):
            bad = raw.copy()
            bad[rng.integers(rows), column] = odd
            yield f"{odd} of {count}", {**batch, "raw_action": bad}, ActionError
    if raw.dtype.kind == "f":
        for odd in (np.nan, np.inf, -np.inf):
            bad = raw.copy()
            bad[rng.integers(rows), rng.integers(width)] = odd
            yield f"{odd}", {**batch, "raw_action": bad}, ActionError
    if "mask" in batch:
        mask = batch["mask"]
        nothing = mask.copy()
        nothing[rng.integers(rows)] = False
        yield "nothing allowed", {**batch, "mask": nothing}, ActionMaskError
        for odd in (np.nan, 0.3, 2.0):
            bad = mask.astype(np.float32)
            bad[rng.integers(rows), rng.integers(mask.shape[1])] = odd
            yield f"a mask of {odd}", {**batch, "mask": bad}, ActionMaskError


def refused(policy, batch):
    """Return the type of what evaluating a batch raises, or None."""
    try:
        policy.evaluate(batch)
    except Exception as error:
        return type(error)


def counted(codec):
    """Return the columns of raw actions that are whole numbers, and how many each can be."""
    if codec.children:
        found, start = [], 0
        for child in codec.children:
            found += [(start + column, count) for column, count in counted(child)]
            start += child.width
        return found
    return [] if codec.counts is None else list(enumerate(codec.counts))


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("name", [*ACTIONS, *DEPENDENT])
def test_stored_actions_that_are_none_are_refused(name, framework):
    policy, rng = policy_of(name, framework), np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (5, 2)).astype(np.float32)
    step = policy.act(obs, mask=np.ones((5, policy.masks.size), bool) if name in MASKED else None)
    batch = {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    if name in MASKED:
        batch["mask"] = np.ones((5, policy.masks.size), bool)
    if "relaxed" in name or "autoregressive" in name:
        del batch["dist_inputs"]
    np.testing.assert_allclose(
        np.asarray(
            policy.evaluate(batch).logp.tolist()
            if framework == "torch"
            else policy.evaluate(batch).logp
        ),
        step.logp,
        atol=1e-4,
    )
    for what, bad, error in spoiled_batches(policy, batch, rng):
        for given in (bad, tensors(framework, bad)):
            assert refused(policy, given) is error, what


@pytest.mark.parametrize("rows", [200, pytest.param(20_000, marks=attack)])
@pytest.mark.parametrize("name", [*ACTIONS, *DEPENDENT])
def test_every_action_lies_in_the_space_and_scores_as_it_was_drawn(name, rows):
    policy, rng = policy_of(name), np.random.default_rng(1)
    for _ in range(1 if rows < 1_000 else 2):
        obs = rng.uniform(-1, 1, (rows, 2)).astype(np.float32)
        step = policy.act(obs)
        found = list(iterate(batched_space(policy.action_space, rows), step.action))
        assert len(found) == rows
        box = isinstance(policy.action_space, spaces.Box)
        wrong = [
            one
            for one in found
            if not policy.action_space.contains(np.asarray(one) if box else one)
        ]
        assert not wrong
        scored = policy.evaluate({"obs": obs, "raw_action": step.raw_action})
        np.testing.assert_allclose(scored.logp.detach().numpy(), step.logp, atol=1e-3)


def batched_space(space, rows):
    """Return the space that Gymnasium iterates a batch of actions by; of its classes only the
    structure counts.
    """
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: batched_space(child, rows) for key, child in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([batched_space(child, rows) for child in space.spaces])
    return spaces.Box(-np.inf, np.inf, (rows, *(space.shape or ())))


def test_the_errors_are_ours():
    for error in (ActionError, ActionMaskError, ObservationError):
        assert issubclass(error, CatalogError)
        assert issubclass(error, ValueError)
