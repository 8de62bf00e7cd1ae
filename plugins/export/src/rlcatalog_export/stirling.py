"""Stirling's series of log Γ, which ONNX has no operation for."""

#: How far the argument is moved up, to where a few terms are as exact as float64 holds.
SHIFT = 8
#: log Γ(z) = (z - 1/2) log z - z + log(2π)/2 + (t₀ + t₁/z² + t₂/z⁴ + …)/z
TERMS = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)
