"""Adapter for parallel games of PettingZoo, whose agents share one policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog.frameworks import Array
from rlcatalog.spaces import read_attribute

#: The entry of an agent's info with its action mask.
_MASK = "action_mask"


def adapt(game: Any) -> ParallelGames:
    """Return a parallel game as a vector environment with a row for each agent.

    Args:
        game: A `pettingzoo.ParallelEnv`.

    Raises:
        NotServedError: The agents take turns, or their spaces differ.
    """
    return ParallelGames([game])


class ParallelGames(VectorEnv[Any, Any, Any]):
    """Vector environment of parallel games, with a row for each agent of each game.

    All agents share one policy, so they have the same spaces. The rows of a game follow each other,
    in the order of `possible_agents`.

    The step that ends a game also begins the next one (SAME_STEP). The last observation of each
    agent is then in `infos["final_obs"]`. All agents of a game must end together, because the rows
    of an agent that leaves earlier would belong to no environment.

    Args:
        games: The games: `pettingzoo.ParallelEnv`s with the same agents.

    Raises:
        NotServedError: Agents take turns, their spaces differ, or there is no game.

    Example:
        >>> games = [simple_spread_v3.parallel_env() for _ in range(8)]  # doctest: +SKIP
        >>> algo = PPO(ParallelGames(games))  # doctest: +SKIP
    """

    def __init__(self, games: Sequence[Any]) -> None:
        if not games:
            raise NotServedError("ParallelGames: expected at least one game; found none.")
        self._games = list(games)
        #: Each row's game, by its index, and agent.
        self._rows: list[tuple[int, Any]] = []
        for index, game in enumerate(self._games):
            if hasattr(game, "agent_iter"):  # a method of PettingZoo's games in turns alone
                raise NotServedError(
                    f"{_name_of(game)}: its agents take turns (AECEnv). Pass its parallel form, if"
                    " it has one: parallel_env(), or pettingzoo.utils.aec_to_parallel(env)."
                )
            for agent in game.possible_agents:
                self._rows.append((index, agent))
        first_game = self._games[0]
        first_agent = self._rows[0][1]
        self.num_envs = len(self._rows)
        self.single_observation_space = first_game.observation_space(first_agent)
        self.single_action_space = first_game.action_space(first_agent)
        self._refuse_other_spaces(first_agent)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {
            "autoreset_mode": AutoresetMode.SAME_STEP,
            "name": _name_of(first_game),
        }
        #: The last observation and info of each row.
        self._obs: list[Any] = [None] * self.num_envs
        self._infos: list[Mapping[str, Any]] = [{} for _ in self._rows]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin every game.

        Args:
            seed: Seed of the first game, from which those of the others are derived.
            options: Options for the games.

        Raises:
            ConfigError: The options select some of the rows (`reset_mask`); a game has one reset
                for all its agents.
        """
        if options is not None and "reset_mask" in options:
            raise ConfigError(
                "reset: found the option 'reset_mask', but the agents of a game begin together."
                " Reset without it. The step that ends a game begins the next one."
            )
        seeds: list[int | None] = [None] * len(self._games)
        if seed is not None:
            # The first game gets the seed itself, so that one game plays as it does alone.
            others = np.random.SeedSequence(seed).generate_state(len(self._games) - 1)
            seeds = [seed, *(int(one) >> 1 for one in others)]
        for index, game_seed in enumerate(seeds):
            self._begin(index, seed=game_seed, options=options)
        return self._batch_obs(), self._mask_infos()

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Take a step in every game.

        Raises:
            NotServedError: An agent leaves a game that goes on.
        """
        actions_of_games: list[dict[Any, Any]] = [{} for _ in self._games]
        rows_of_actions = zip(self._rows, iterate(self.action_space, actions), strict=True)
        for (index, agent), action in rows_of_actions:
            actions_of_games[index][agent] = action
        rewards = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, np.bool_)
        truncated = np.zeros(self.num_envs, np.bool_)
        final_obs = np.full(self.num_envs, None, object)
        results = [
            game.step(its_actions)
            for game, its_actions in zip(self._games, actions_of_games, strict=True)
        ]
        for row, (index, agent) in enumerate(self._rows):
            obs, reward, terminations, truncations, infos = results[index]
            self._obs[row] = obs[agent]
            self._infos[row] = infos.get(agent, {})
            rewards[row] = reward[agent]
            terminated[row] = terminations[agent]
            truncated[row] = truncations[agent]
        ended = terminated | truncated
        for index, game in enumerate(self._games):
            rows = [row for row, (of_game, _) in enumerate(self._rows) if of_game == index]
            self._check_together(game, rows, ended)
            if ended[rows[0]]:
                for row in rows:
                    final_obs[row] = self._obs[row]
                self._begin(index)
        infos = self._mask_infos()
        if ended.any():
            infos["final_obs"] = final_obs
            infos["_final_obs"] = ended
        return self._batch_obs(), rewards, terminated, truncated, infos

    def close(self, **_: Any) -> None:
        """Close the games."""
        for game in self._games:
            game.close()

    def _begin(self, index: int, **arguments: Any) -> None:
        """Begin a game, and keep the first observation of each of its agents."""
        obs, infos = self._games[index].reset(**arguments)
        for row, (of_game, agent) in enumerate(self._rows):
            if of_game == index:
                self._obs[row] = obs[agent]
                self._infos[row] = infos.get(agent, {})

    def _batch_obs(self) -> Any:
        """Return the last observations of all rows, in new arrays."""
        # Any, because Gymnasium declares more types than the two functions share.
        empty: Any = create_empty_array(self.single_observation_space, self.num_envs)
        return concatenate(self.single_observation_space, self._obs, empty)

    def _mask_infos(self) -> dict[str, Any]:
        """Return the action masks in the agents' infos, as rows of an array; empty without any."""
        has_mask = np.array([_MASK in info for info in self._infos])
        if not has_mask.any():
            return {}
        first_mask = next(info[_MASK] for info in self._infos if _MASK in info)
        masks = np.zeros((self.num_envs, *np.shape(first_mask)), np.int8)
        for row in np.flatnonzero(has_mask):
            masks[row] = self._infos[row][_MASK]
        return {_MASK: masks, f"_{_MASK}": has_mask}

    def _check_together(self, game: Any, rows: Sequence[int], ended: Array) -> None:
        """Check that no agent has left a game that goes on.

        Raises:
            NotServedError: One has.
        """
        of_game = ended[list(rows)]
        is_over = not game.agents
        if of_game.all() == of_game.any() and is_over == of_game.all():
            return
        left = [self._rows[row][1] for row in rows if self._rows[row][1] not in game.agents]
        raise NotServedError(
            f"{_name_of(game)}: {', '.join(map(repr, left)) or 'an agent'} left while others play"
            " on, but the agents share the rows of one vector environment. Keep agents that have"
            " left in the game: supersuit.black_death_v3(game)."
        )

    def _refuse_other_spaces(self, first_agent: Any) -> None:
        """Check that all agents have the same spaces.

        Raises:
            NotServedError: One has others.
        """
        for index, agent in self._rows:
            game = self._games[index]
            pairs = {
                "observation space": (
                    game.observation_space(agent),
                    self.single_observation_space,
                ),
                "action space": (game.action_space(agent), self.single_action_space),
            }
            for kind, (space, first_space) in pairs.items():
                if space != first_space:
                    raise NotServedError(
                        f"{_name_of(game)}: agent {agent!r} has the {kind} {space}, and"
                        f" {first_agent!r} has {first_space}, but the agents share one policy."
                        " Train a policy for each kind of agent with RLlib: rlcatalog_rllib."
                    )


def _name_of(game: Any) -> str:
    """Return the game's name, as PettingZoo's metadata has it."""
    metadata: Mapping[str, Any] = read_attribute(game, "metadata") or {}
    return str(metadata.get("name", type(game).__name__))
