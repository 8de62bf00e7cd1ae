"""A collector with a scripted vector environment and a policy that takes notes: each step against a
script by hand.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rlcatalog.errors import NonFiniteError
from rlcatalog_policy import Frozen, History, State
from rlcatalog_ppo.reward_scale import RewardScale
from rlcatalog_ppo.rollout import Collector
from rlcatalog_runs.seeds import SeedStream, derive_seed

N, SHAPE = 3, (2, 4)  # neither axis of an observation is as long as the batch
MODES = {mode.name.lower(): mode for mode in AutoresetMode}


def seen(number):
    """Return the observations of all environments at a time; no two are equal."""
    return np.full((N, *SHAPE), number, np.float32) + np.arange(N).reshape(N, 1, 1) / 10


class Script(VectorEnv):
    """Returns the steps that it is given, and notes its resets.

    Args:
        steps: Rewards, which episodes ended by themselves, which were cut; one triple for each
            step.
        mode: When it resets its environments.
    """

    def __init__(self, steps=(), mode="disabled"):
        self.num_envs, self.metadata = N, {"autoreset_mode": MODES[mode]}
        self.single_observation_space = spaces.Box(-99, 99, SHAPE)
        self.single_action_space = spaces.Discrete(2)
        self.steps, self.count, self.resets = list(steps), 0, []

    def reset(self, *, seed=None, options=None):
        self.resets.append((seed, options))
        return seen(100 * len(self.resets)), {}

    def step(self, actions):
        rewards, *ends = self.steps[self.count]
        self.count += 1
        terminated, truncated = (np.isin(np.arange(N), end) for end in ends)
        final = {"final_obs": list(seen(50 + self.count))}
        return seen(self.count), np.asarray(rewards), terminated, truncated, final


class Noting:
    """A policy without a model; the value of an observation is its first number.

    Args:
        masked: Whether the environments have masks.
        loss: Whether its model defines a loss.
    """

    memory, device = (), "cpu"

    def __init__(self, masked=False, loss=False):
        self.views, self.loss, self.masked = SimpleNamespace(ahead=[]), loss, masked
        self.updates, self.idles, self.restarts, self.rewards, self.valued = [], [], [], [], []

    def overrides(self, name):
        return self.loss and name == "custom_loss"

    def preprocess(self, observed, update=False):
        self.updates.append(update if isinstance(update, bool) else update.tolist())
        return np.array(observed)

    def action_mask(self, observed, idle=None):
        self.idles.append(None if idle is None else idle.tolist())
        return np.full((N, 2), np.asarray(observed)[0, 0, 0] > 99) if self.masked else None

    def initial_state(self, n):
        return None

    def restart(self, state, rows):
        self.restarts.append(rows.tolist())
        return state

    def act_encoded(self, encoded, state, *, prev_reward, mask):
        self.rewards.append(prev_reward.tolist())
        zeros = np.zeros(N, np.float32)
        return SimpleNamespace(
            raw_action=zeros[:, None],
            logp=zeros,
            value=encoded[:, 0, 0],
            dist_inputs=zeros[:, None],
            state=None,
            action=zeros,
        )

    def values(self, encoded, state, *, prev_reward):
        assert len(encoded), "nothing to value"
        self.valued.append((encoded[:, 0, 0].tolist(), prev_reward.tolist()))
        return encoded[:, 0, 0]


GO = ([1.0, 2.0, 3.0], [], [])
STEPS = [GO, ([1.0, 2.0, 3.0], [0], [1]), ([4.0, 5.0, 6.0], [2], [2]), GO]


def collected(mode, policy=None, steps=STEPS, **options):
    policy, envs = policy or Noting(), Script(steps, mode)
    collector = Collector(policy, envs, 7, 0.5, **options)
    return collector, collector.collect(len(steps)), policy, envs


@pytest.mark.parametrize("mode", MODES)
def test_rewards_ends_and_values_of_cut_episodes_are_those_of_the_script(mode):
    collector, rollout, policy, envs = collected(mode)
    np.testing.assert_array_equal(rollout.reward, np.float32([step[0] for step in STEPS]))
    assert rollout.done.tolist() == [
        [False] * 3,
        [True, True, False],
        [False, False, True],
        [False] * 3,
    ]
    # The second environment is cut at the second step. What ended by itself at the same time has no
    # value.
    last = np.float32(52.1) if mode == "same_step" else np.float32(2.1)
    expected = np.zeros((4, 3), np.float32)
    expected[1, 1] = 0.5 * last
    np.testing.assert_allclose(rollout.bootstrap, expected, rtol=1e-6)
    assert policy.valued[0] == ([pytest.approx(last)], [2.0])
    assert len(policy.valued) == 2  # and the values after the last step
    np.testing.assert_array_equal(rollout.last_value, collector.get_state()["encoded"][:, 0, 0])
    assert policy.rewards == [[0, 0, 0], *rollout.reward[:3].tolist()]
    masks = [options["reset_mask"].tolist() for _, options in envs.resets[1:]]
    assert masks == ([[True, True, False], [False, False, True]] if mode == "disabled" else [])
    assert envs.resets[0] == (derive_seed(7, SeedStream.ENVIRONMENTS), None)


def test_idle_steps_count_for_no_episode_and_no_filter():
    collector, rollout, policy, _ = collected("next_step")
    assert rollout.idle.tolist() == [
        [False] * 3,
        [False] * 3,
        [True, True, False],
        [False, False, True],
    ]
    # `False`: the last observation of the episode that was cut is encoded for its value alone.
    assert policy.updates == [True, True, False, [False, False, True], [True, True, False], True]
    assert collector.episodes.get_state() == {
        "returns": [2.0, 4.0, 12.0],
        "lengths": [2, 2, 3],
        "total": 3,
    }
    # An observation after the end belongs to no step: the one before is kept.
    np.testing.assert_array_equal(rollout.obs[2, :2], rollout.obs[1, :2])
    np.testing.assert_array_equal(rollout.obs[2, 2], seen(2)[2])
    np.testing.assert_array_equal(rollout.obs[3, 2], rollout.obs[2, 2])
    assert policy.restarts == [[True, True, False], [False, False, True]]
    state = collector.get_state()
    assert (state["lengths"].tolist(), state["idle"].tolist()) == ([1, 1, 0], [False] * 3)


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_episodes_are_counted_where_their_end_resets_them(mode):
    collector, rollout, policy, _ = collected(mode)
    assert rollout.idle is None
    assert collector.episodes.get_state() == {
        "returns": [2.0, 4.0, 12.0],
        "lengths": [2, 2, 3],
        "total": 3,
    }
    assert policy.restarts == [[True, True, False], [False, False, True]]
    state = collector.get_state()
    assert (state["lengths"].tolist(), state["returns"].tolist()) == ([2, 2, 1], [5.0, 7.0, 3.0])
    assert (rollout.obs[0, 0, 0, 0], rollout.obs[2, 2, 0, 0]) == (
        100,
        pytest.approx(2.2 if mode == "same_step" else 200.2),
    )


@pytest.mark.parametrize("mode", MODES)
def test_without_values_none_is_computed(mode):
    _, rollout, policy, _ = collected(mode, values=False)
    assert policy.valued == []
    assert not rollout.value.any()
    assert not rollout.bootstrap.any()
    assert not rollout.last_value.any()
    assert collected(mode)[1].value[1:].all()


@pytest.mark.parametrize("ends", [([0], []), ([0, 1, 2], [])])
def test_episode_that_ended_by_itself_has_no_value_afterwards(ends):
    for options in ({}, {"postprocess": lambda policy, batch, others, episode: batch}):
        policy = Noting()
        policy.views.look_ahead, policy.action_codec = (
            lambda later, done: {},
            SimpleNamespace(scalar=True),
        )
        _, rollout, _, _ = collected("disabled", policy, [([1.0] * 3, *ends)], **options)
        assert not rollout.bootstrap.any()
        assert len(policy.valued) == 1


@pytest.mark.parametrize("loss", [True, False])
@pytest.mark.parametrize("adds", [True, False])
def test_losses_and_postprocessing_are_given_all_columns(loss, adds):
    policy, given = Noting(loss=loss), []
    policy.views.look_ahead = lambda later, done: given.append(set(later)) or {}
    policy.action_codec = SimpleNamespace(scalar=True)

    def postprocess(policy, batch, others, episode):
        return {**batch, "new": batch["rewards"] * 2}

    _, rollout, _, _ = collected("disabled", policy, postprocess=postprocess if adds else None)
    own = {"terminateds", "truncateds", "action_dist_inputs", "vf_preds", "new_obs"} | (
        {"new"} if adds else set()
    )
    assert rollout.columns.keys() == ({*own, "dones"} if loss else set())
    assert given == ([{*own, "obs", "actions", "rewards", "action_logp"}] if loss or adds else [])
    if loss:
        np.testing.assert_array_equal(rollout.columns["dones"], rollout.done)
        # Each episode's last observation, also of one that ended by itself; the script resets all
        # environments.
        following = np.float32([[1, 1.1, 1.2], [2, 2.1, 200.2], [300, 300.1, 3.2], [4, 4.1, 4.2]])
        np.testing.assert_allclose(rollout.columns["new_obs"][..., 0, 0], following, rtol=1e-6)
        assert not adds or rollout.columns["new"].tolist() == (rollout.reward * 2).tolist()


def test_masks_and_scaled_rewards_are_columns():
    assert collected("disabled")[1].mask is None
    _, rollout, policy, _ = collected(
        "same_step", Noting(masked=True), scale=RewardScale(N, 0.5, False, 2.5)
    )
    assert rollout.mask[:, 0, 0].tolist() == [True, False, False, False]
    np.testing.assert_array_equal(rollout.scaled, np.minimum(rollout.reward, 2.5))
    assert set(map(str, policy.idles)) == {"None"}
    collected("next_step", policy)
    assert [True, True, False] in policy.idles


def test_watchers_are_shown_each_step():
    collector, shown = Collector(Noting(), Script(STEPS), 7, 0.5), []
    collector.collect(
        3,
        [
            lambda row: shown.append(("a", row["reward"].tolist())),
            lambda row: shown.append(("b", row)),
        ],
    )
    assert [name for name, _ in shown] == ["a", "b"] * 3
    assert [row for name, row in shown if name == "a"] == [list(step[0]) for step in STEPS[:3]]


@pytest.mark.parametrize(
    ("dtype", "wrong"),
    [(dtype, wrong) for dtype in (np.float64, object) for wrong in (np.nan, np.inf, -np.inf, 1e300)]
    + [(np.float32, np.nan), (np.float32, np.inf)],
)
def test_reward_that_is_not_a_finite_float32_is_named(dtype, wrong):
    steps = [GO, ([1.0, 2.0, 3.0], [1], []), (np.array([1.0, wrong, wrong], dtype), [], [])]
    with pytest.raises(NonFiniteError) as caught:
        collected("same_step", steps=steps)
    assert caught.value.row == 1
    assert str(caught.value).startswith(
        f"environment 1 of 3, step 1 of its episode: the reward is {wrong}, which is"
    )


@pytest.mark.parametrize(
    "rewards", [[1, 2, 3], [True, False, True], [3e38, -3e38, 0.0], np.float32([0.5, 1, 2])]
)
def test_finite_rewards_become_float32(rewards):
    _, rollout, _, _ = collected("disabled", steps=[(rewards, [], [])])
    assert rollout.reward.dtype == np.float32
    np.testing.assert_array_equal(rollout.reward[0], np.asarray(rewards, np.float32))


# --- states ---------------------------------------------------------------------------------------


def test_state_is_a_copy_and_restores_the_collector():
    collector, *_ = collected("same_step", Noting(masked=True), scale=RewardScale(N, 0.5))
    collector.episodes.returns.extend(range(98))
    state = collector.get_state()
    assert state["state"] is None
    # Discounted; the third has just begun.
    assert state["scale"]["sums"].tolist() == [3.0, 4.5, 3.0]
    other = Collector(
        Noting(masked=True), Script(STEPS, "same_step"), 7, 0.5, scale=RewardScale(N, 0.5)
    )
    other.set_state(state)
    restored = other.get_state()
    assert restored["episodes"] == state["episodes"]
    for name in ("returns", "lengths", "encoded", "mask", "rewards", "idle"):
        np.testing.assert_array_equal(restored[name], state[name], err_msg=name)
    np.testing.assert_array_equal(restored["scale"]["sums"], state["scale"]["sums"])
    assert (other.episodes.returns.maxlen, other.episodes.lengths.maxlen) == (100, 100)
    state["returns"] += 1
    assert other.get_state()["returns"].tolist() == restored["returns"].tolist()
    plain = Collector(Noting(), Script(STEPS), 7, 0.5)
    assert plain.get_state()["scale"] is None
    plain.set_state({**state, "mask": None})  # it scales no more
    scaled = Collector(Noting(), Script(STEPS), 7, 0.5, scale=RewardScale(N, 0.5))
    for without in (
        {**state, "scale": None},
        {name: part for name, part in state.items() if name != "scale"},
    ):
        scaled.set_state(without)  # it begins to scale
        assert scaled.get_state()["scale"]["sums"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("rows", [[True, False, True], [True, True, True]])
@pytest.mark.parametrize("masked", [True, False])
def test_some_environments_begin_new_episodes_and_the_others_go_on(rows, masked):
    collector, _, policy, envs = collected("same_step", Noting(masked), scale=RewardScale(N, 0.5))
    before, rows = collector.get_state(), np.array(rows)
    policy.updates.clear(), policy.idles.clear(), policy.restarts.clear()
    collector.begin_anew(rows)
    seed, options = envs.resets[-1]
    assert seed is None
    assert options is None if rows.all() else options["reset_mask"].tolist() == rows.tolist()
    after = collector.get_state()
    fresh = rows.reshape(N, 1, 1)
    np.testing.assert_array_equal(after["encoded"], np.where(fresh, seen(200), before["encoded"]))
    for name in ("returns", "lengths", "rewards"):
        assert before[name].all()
        np.testing.assert_array_equal(after[name], np.where(rows, 0, before[name]), err_msg=name)
    np.testing.assert_array_equal(
        after["scale"]["sums"], np.where(rows, 0, before["scale"]["sums"])
    )
    assert (policy.updates, policy.idles, policy.restarts) == (
        [rows.tolist()],
        [(~rows).tolist()],
        [rows.tolist()],
    )
    if masked:
        np.testing.assert_array_equal(after["mask"], np.repeat(rows[:, None], 2, 1))
    else:
        assert after["mask"] is None
    plain = collected("same_step")[0]
    plain.begin_anew(rows)
    assert plain.get_state()["lengths"].tolist() == np.where(rows, 0, before["lengths"]).tolist()


# --- memory ---------------------------------------------------------------------------------------


class Remembering(Noting):
    """A policy whose memory counts the steps of each episode, and shows it as a view."""

    memory, config = ("count",), {"max_seq_len": 2}

    def __init__(self):
        super().__init__()
        self.counts = []

    def initial_state(self, n):
        return State(
            (np.zeros((n, 1)),),
            History({"obs": np.zeros((n, 1))}, np.zeros(n, int)),
            {},
            (np.zeros((n, 1)),),
        )

    def restart(self, state, rows):
        super().restart(state, rows)
        return state._replace(memory=(np.where(rows[:, None], 0, state.memory[0]),))

    def act_encoded(self, encoded, state, **given):
        step = super().act_encoded(encoded, state, **given)
        history = History({"obs": state.history.windows["obs"] + 2}, state.history.t + 1)
        step.state = State(
            (state.memory[0] + 1,), history, {"count": state.memory[0]}, (state.past[0] + 3,)
        )
        return step

    def values(self, encoded, state, **given):
        self.counts.append(state.memory[0][:, 0].tolist())
        return super().values(encoded, state, **given)


@pytest.mark.parametrize("mode", MODES)
def test_sequences_and_values_have_the_memory_of_their_episodes(mode):
    _, rollout, policy, _ = collected(mode, Remembering())
    # Sequences of up to two steps. Where an idle step follows an episode's end, the next sequence
    # begins after it.
    if mode == "next_step":
        starts, memory, counts = (
            [[1, 0, 0, 1], [1, 0, 0, 1], [1, 0, 1, 0]],
            [0, 0, 0, 0, 0, 2],
            [1, 1, 0],
        )
    else:
        starts, memory, counts = (
            [[1, 0, 1, 0], [1, 0, 1, 0], [1, 0, 1, 1]],
            [0, 0, 0, 0, 0, 2, 0],
            [2, 2, 1],
        )
    assert rollout.starts.T.tolist() == np.array(starts, bool).tolist()
    assert rollout.memory[0][:, 0].tolist() == memory
    assert policy.counts == [[2], counts]  # of the episode that was cut, and after the last step
    assert rollout.views["count"][:2, :, 0].tolist() == [[0] * 3, [1] * 3]


def test_memory_is_a_part_of_the_state():
    collector, *_ = collected("same_step", Remembering())
    state = collector.get_state()
    found = state["state"]
    assert found.keys() == {"memory", "windows", "t", "seen", "past"}
    assert (found["memory"][0][:, 0].tolist(), found["t"].tolist()) == ([2, 2, 1], [4] * 3)
    assert (found["windows"]["obs"][:, 0].tolist(), found["past"][0][:, 0].tolist()) == (
        [8] * 3,
        [12] * 3,
    )
    other = Collector(Remembering(), Script(STEPS, "same_step"), 7, 0.5)
    other.set_state(state)
    for name, parts in other.get_state()["state"].items():
        np.testing.assert_equal(parts, found[name], err_msg=name)
    other.begin_anew(np.array([True, False, False]))
    assert other.get_state()["state"]["memory"][0][:, 0].tolist() == [0, 2, 1]
    assert "views" not in other.get_state()
    plain = collected("same_step")[1]
    assert (plain.views, plain.starts, plain.memory) == ({}, None, ())


# --- a frozen policy ------------------------------------------------------------------------------


class Thawed(Noting):
    """A policy whose frozen form notes its updates."""

    def freeze(self, count, seed):
        kind = type("Acting", (Frozen,), {"update": lambda frozen: self.updates.append("update")})
        frozen = object.__new__(kind)
        self.frozen_with = (count, seed)
        return frozen


@pytest.mark.parametrize(
    ("total", "given", "expected"),
    [(None, 500, 500), (300, 500, 300), (300, None, 300), (None, None, None)],
)
@pytest.mark.parametrize("frozen", [True, False])
def test_whether_it_is_frozen_is_decided_once_for_the_whole_run(total, given, expected, frozen):
    asked = []
    config = SimpleNamespace(
        total_steps=total, collects_frozen=lambda *arguments: asked.append(arguments) or frozen
    )
    policy = Thawed()
    collector = Collector(policy, Script(), 7, 0.5)
    assert collector.frozen is None
    for _ in range(2):
        collector.decide_frozen(config, given)
    assert asked == [(expected, "cpu")]
    assert collector.frozen is frozen
    assert (collector.policy is policy) is not frozen
    policy.updates.clear()
    collector.take_over()
    assert policy.updates == ["update"] * frozen
    if frozen:
        assert policy.frozen_with == (N, derive_seed(7, SeedStream.FROZEN))
        collector.freeze(False)
        assert collector.policy is policy
