"""Frozen policies: acting as a graph that onnxruntime runs, recorded from what the policy does with one batch.

The graph is made operation by operation while the policy acts, which takes milliseconds where a whole export takes
seconds. It holds one number of rows, and the weights as inputs, so that it acts with those of now.
"""
