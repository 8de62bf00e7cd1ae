"""Numbers at which the Gaussian distributions are cut, so that their densities stay finite."""

#: Log standard deviations are clipped to ± this number, because exp of much larger numbers is
#: infinite in float32.
MAX_LOG_STD = 40.0
#: The limits of the squashed Gaussian, as in RLlib: a wider one has nearly all its mass at the
#: bounds.
SQUASHED_LOG_STD = (-5.0, 2.0)
#: Means of the squashed Gaussian are clipped to ± this number: tanh is saturated there, and squares
#: stay finite.
MAX_SQUASHED_MEAN = 1e6

#: Limits on the terms of a divergence, by float size in bytes: exponents, and distances in standard
#: deviations. They keep the sum for one value finite.
DIVERGENCE_LIMITS = {4: (88.0, 1.8e19), 8: (709.0, 1.3e154)}
