"""A space of the running program with a codec in RLlib's form, which says nothing of tensor
operations.
"""

import numpy as np
from gymnasium.spaces import Box

import rlcatalog
from rlcatalog import Match, Rank


class Headings(Box):
    def __init__(self):
        super().__init__(-3, 3, (1,), np.float32)


def is_heading(request):
    fits = "heading.Headings" in request.obs.classes
    return Match(Rank.SPECIFIC, "a heading") if fits else Match(None, "takes headings")


class Heading(rlcatalog.Preprocessor):
    def _init_shape(self, obs_space, options):
        return (2,)

    def transform(self, observation):
        self.check_shape(observation)
        return np.array([np.cos(observation[0]), np.sin(observation[0])], np.float32)


def prepare():
    """Register the codec with the default catalog of now: other tests may have made that anew."""
    rlcatalog.register_preprocessor("heading", match=is_heading)(Heading)
