"""Actions whose parts depend on each other: P(a₁) P(a₂ | a₁) … P(aₙ | a₁ … aₙ₋₁), for rlcatalog."""
