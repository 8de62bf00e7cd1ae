"""Plugin declarations: how Atari environments are prepared, and the codecs for their pixels and
RAM.
"""

from __future__ import annotations

from rlcatalog import EnvWrapperSpec, Match, PreprocessorSpec, Rank, Request, hookimpl

_CONFIG = "rlcatalog_atari.config:AtariConfig"


def match(request: Request) -> Match:
    """Match Atari environments, recognised by their class and never by the shape of their
    observations.
    """
    from rlcatalog_atari.recognition import DEFAULT_PREFERENCE, reason_to_leave_unchanged

    reason = reason_to_leave_unchanged(request.env, request.config)
    if reason is not None:
        return Match(rank=None, why=reason)
    preference = request.config.get("preprocessor_pref", DEFAULT_PREFERENCE)
    return Match(
        Rank.SPECIFIC,
        f"the environment is ale_py's AtariEnv and preprocessor_pref is {preference!r}",
    )


def ignores(request: Request) -> dict[str, str]:
    """Return the wrapper's keys that do not affect the environment, or all of them if it cannot
    have been wrapped.
    """
    from rlcatalog_atari.recognition import ignored_keys

    return ignored_keys(request.obs, request.config)


def ignores_stacking(_request: Request) -> dict[str, str]:
    """Return the wrapper's keys that the pixel codec does not use."""
    keys = ("framestack", "atari_terminal_on_life_loss")
    return dict.fromkeys(keys, "Atari environments without custom_preprocessor")


@hookimpl
def rlcatalog_env_wrappers() -> list[EnvWrapperSpec]:
    return [
        EnvWrapperSpec(
            "atari",
            {"numpy": "rlcatalog_atari.wrapper:wrap"},
            "Atari games: stacked gray frames, or RLlib's codecs for pixels and RAM",
            match=match,
            config=_CONFIG,
            reads=("custom_preprocessor",),
            ignores=ignores,
            examples="rlcatalog_atari.examples:environments",
        )
    ]


@hookimpl
def rlcatalog_preprocessors() -> list[PreprocessorSpec]:
    return [
        PreprocessorSpec(
            "generic_pixel",
            {"numpy": "rlcatalog_atari.preprocessors:GenericPixelPreprocessor"},
            "uint8 images, converted on request to cropped, resized and scaled floats",
            config=_CONFIG,
            reads=("check_observations",),
            ignores=ignores_stacking,
            examples="rlcatalog_atari.examples:pixels",
        ),
        PreprocessorSpec(
            "atari_ram",
            {"numpy": "rlcatalog_atari.preprocessors:AtariRamPreprocessor"},
            "byte vectors, converted on request to floats from -1 to 1",
            reads=("check_observations",),
            examples="rlcatalog_atari.examples:memory",
        ),
    ]
