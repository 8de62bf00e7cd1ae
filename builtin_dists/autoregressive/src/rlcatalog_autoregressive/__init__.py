"""Autoregressive action distribution for rlcatalog: P(a₁) P(a₂ | a₁) … P(aₙ | a₁ … aₙ₋₁)."""
