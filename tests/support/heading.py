"""A codec of the running program in RLlib's form, which says nothing of tensor operations."""

import numpy as np

import rlcatalog


class Heading(rlcatalog.Preprocessor):
    def _init_shape(self, obs_space, options):
        return (2,)

    def transform(self, observation):
        self.check_shape(observation)
        return np.array([np.cos(observation[0]), np.sin(observation[0])], np.float32)


rlcatalog.register_preprocessor("heading")(Heading)
