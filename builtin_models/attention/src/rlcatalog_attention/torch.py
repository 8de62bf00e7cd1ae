"""The gated transformer (GTrXL) in PyTorch, around a trunk and standalone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlcatalog_attention.common import AroundTrunk, ByItself, Sequences, TransformerModel
from rlcatalog_attention.config import EPSILON, AttentionConfig, distances
from rlcatalog_torch import (
    OPS,
    DenseStack,
    OutputLayers,
    TorchModelV2,
    dense,
    features_of,
    initialize,
    sequence_mask,
    steps_of,
)


class Transformer(nn.Module):
    """Linear layer and gated transformer units, with a memory of the last steps.

    Args:
        inputs: Width of the input.
        sizes: Sizes of the transformer.
    """

    table: Tensor
    places: Tensor

    def __init__(self, inputs: int, sizes: AttentionConfig) -> None:
        super().__init__()
        self.sizes = sizes
        self.slots = sizes.slots
        self.input = dense(inputs, sizes.input)
        self.units = nn.ModuleList(
            Unit(sizes) for _ in range(sizes.attention_num_transformer_units)
        )
        # Constants, not weights: they move between devices with the model and are not saved.
        table = torch.from_numpy(distances(self.slots, sizes.attention_dim))
        table = table.to(self.input.weight.dtype)
        self.register_buffer("table", table, persistent=False)  # sinusoids, one row per distance
        # Indices of the slots and of one step, for acting.
        self.register_buffer("places", torch.arange(self.slots + 1), persistent=False)

    def initial_state(self) -> list[Tensor]:
        """Return the initial state of an episode: the memory `[units, slots, dim]` and the number
        of steps in it.
        """
        weight = self.input.weight
        memory = weight.new_zeros(len(self.units), self.slots, self.sizes.attention_dim)
        return [memory, weight.new_zeros((), dtype=torch.int32)]

    def forward(
        self,
        rows: Tensor,
        state: list[Tensor],
        seq_lens: Tensor | None,
        training: bool,
        outputs_only: bool,
    ) -> tuple[Tensor, list[Tensor]]:
        """Process sequences.

        Args:
            rows: Inputs `[S * T, inputs]`.
            state: Memory `[S, units, slots, dim]` with the newest step last, and the number of
                steps in it `[S]`; empty at the start of episodes. Unused slots have no influence,
                but must not contain NaN.
            seq_lens: Lengths `[S]`; None if each row is a sequence.
            training: Whether to use the training window instead of the acting window.
            outputs_only: Whether only the outputs are needed.

        Returns:
            Outputs `[S * T, dim]`, and the state at the end of each sequence, or nothing with
            `outputs_only`.
        """
        sequences = rows.shape[0] if seq_lens is None else seq_lens.shape[0]
        if not state:
            state = [initial.expand(sequences, *initial.shape) for initial in self.initial_state()]
        x = self.input(rows)
        memory = state[0].to(x.dtype).detach()
        used_slots = state[1].int()
        length = steps_of(rows.shape[0], sequences)
        # The keys are the memory's slots, then the steps.
        if length == 1:
            places = self.places
        else:
            places = torch.arange(self.slots + length, device=x.device)
        # Acting and training may show fewer past steps than the memory has slots: the last ones.
        start = self.slots - self.sizes.window(training)
        # At first, the oldest slots are empty: [S, 1, slots + T].
        is_used = used_slots.view(-1, 1, 1) + places >= self.slots
        # A mask is added to the scores of the keys: 0 shows a key, -inf hides it.
        mask = _from(_mask(is_used, x), axis=2, start=start)
        if length > 1:
            mask = mask + _mask(self._inside(places[start:] - start, length), x)
        # Sinusoids for the distances from `window` to 0.
        table = _from(self.table, axis=0, start=start)
        keys_of_units = []
        for index, unit in enumerate(self.units):
            keys = torch.cat([memory[:, index], x.view(sequences, length, x.shape[1])], dim=1)
            keys_of_units.append(keys)
            x = unit(x, _from(keys, axis=1, start=start), mask, table)
        if outputs_only:
            return x, []
        if len(keys_of_units) == 1:
            keys = keys_of_units[0][:, None]  # a view, which is faster than stacking
        else:
            keys = torch.stack(keys_of_units, dim=1)
        return x, self._new_state(keys.detach(), used_slots, seq_lens)

    def _inside(self, places: Tensor, length: int) -> Tensor:
        """Return which of the window's slots and steps a step sees, `[T, window + T]`.

        Step t sees the keys t, …, t + window, where the last key is step t itself.
        """
        later = places - places[:length, None]
        window = places.shape[0] - length
        return (later >= 0) & (later <= window)

    def _new_state(self, keys: Tensor, used_slots: Tensor, seq_lens: Tensor | None) -> list[Tensor]:
        """Return the state after the sequences: the last slots before the end of each sequence.

        Args:
            keys: The units' inputs, preceded by the memory: `[S, units, slots + T, dim]`.
            used_slots: Number of steps in the memory.
            seq_lens: Lengths.
        """
        if seq_lens is None or keys.shape[2] == self.slots + 1:
            # Single steps: every slot moves on by one, and the oldest falls out.
            return [keys[:, :, 1:], (used_slots + 1).clamp(max=self.slots)]
        sequences, units, places, width = keys.shape
        # In a table with a row for each sequence, unit and place, the memory of a sequence of
        # length n begins n rows after the first row of its unit.
        first_rows = torch.arange(0, sequences * units * places, places, device=keys.device)
        first_rows = first_rows.view(sequences, units, 1)
        rows = first_rows + seq_lens[:, None, None] + torch.arange(self.slots, device=keys.device)
        memory = keys.flatten(0, 2).index_select(0, rows.flatten())
        memory = memory.view(sequences, units, self.slots, width)
        return [memory, (used_slots + seq_lens).clamp(max=self.slots)]


class Unit(nn.Module):
    """Transformer unit: attention and dense layers, each with a gate."""

    def __init__(self, sizes: AttentionConfig) -> None:
        super().__init__()
        dim = sizes.attention_dim
        bias = sizes.attention_init_gru_gate_bias
        self.attention = Attention(sizes)
        self.attention_gate = Gate(dim, bias)
        self.norm = LayerNorm(dim, EPSILON)
        self.mlp = DenseStack(dim, sizes.mlp)
        self.mlp_gate = Gate(dim, bias)

    def forward(self, x: Tensor, context: Tensor, mask: Tensor, table: Tensor) -> Tensor:
        """Map the unit's input to its output, both of shape `[S * T, dim]`; see `Attention` for the
        other arguments.
        """
        x = self.attention_gate(x, self.attention(context, mask, table))
        return self.mlp_gate(x, self.mlp(self.norm(x)))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Multi-head attention with relative positions and without biases, between a layer
    normalisation and a ReLU.
    """

    def __init__(self, sizes: AttentionConfig) -> None:
        super().__init__()
        self.heads = sizes.attention_num_heads
        self.head_dim = sizes.attention_head_dim
        dim = sizes.attention_dim
        inner = self.heads * self.head_dim  # width of all heads
        self.query = _matrix(inner, dim)
        self.key = _matrix(inner, dim)
        self.value = _matrix(inner, dim)
        self.position = _matrix(inner, dim)
        self.output = _matrix(dim, inner)
        self.content_bias = _matrix(self.heads, self.head_dim)
        self.position_bias = _matrix(self.heads, self.head_dim)
        self.norm = LayerNorm(dim, EPSILON)
        self._scale = self.head_dim**-0.5

    def forward(self, context: Tensor, mask: Tensor, table: Tensor) -> Tensor:
        """Compute the attention for each step of the sequences.

        Args:
            context: The window's slots, followed by the steps, `[S, K, dim]`.
            mask: Added to the scores, `[S, T, K]`: 0 for the slots and steps that a step sees, -inf
                for the others.
            table: Sinusoids for the distances window, …, 0.

        Returns:
            `[S * T, dim]`.
        """
        if mask.shape[1] == 1:
            heads = self._step(context, mask, table)
        else:
            heads = self._sequences(context, mask, table)
        return F.linear(heads, self.output).relu()

    def _sequences(self, context: Tensor, mask: Tensor, table: Tensor) -> Tensor:
        """Return the heads' concatenated outputs."""
        sequences, keys, _ = context.shape
        length = mask.shape[1]
        normal = self.norm(context)
        query = F.linear(normal[:, keys - length :], self.query)
        # One product for both is faster than two.
        key, value = F.linear(normal, torch.cat([self.key, self.value])).chunk(2, dim=2)
        key = self._split(key)
        value = self._split(value)
        position = self._split(F.linear(table, self.position)[None])
        # Column c of a row stands for the distance window - c, and step t finds it at the key t +
        # c. Padding each row by T and reshaping to rows of K does this: it shifts each row one
        # place further than the row before.
        rows = self._split(query + self.position_bias.flatten())
        rows = rows.reshape(self.heads, sequences * length, self.head_dim)
        scores = F.pad(rows @ position.transpose(1, 2), (0, length))
        scores = scores.view(key.shape[0], -1)[:, : length * keys].view(-1, length, keys)
        content = self._split(query + self.content_bias.flatten())
        scores = torch.baddbmm(scores, content, key.transpose(1, 2))
        if self.heads > 1:
            mask = mask.repeat(self.heads, 1, 1)
        weights = torch.add(mask, scores, alpha=self._scale).softmax(dim=2)
        outputs: Tensor = weights @ value  # [heads * S, T, head_dim]
        if self.heads == 1:
            return outputs.flatten(0, 1)
        return outputs.view(self.heads, -1, self.head_dim).transpose(0, 1).flatten(1)

    def _step(self, context: Tensor, mask: Tensor, table: Tensor) -> Tensor:
        """Compute the same result for one step per sequence, but sum in a different order.

        With only one query, transforming the query, (K n)·q = n·(Kᵀ q), is cheaper than projecting
        each step of the window. No projections are stored between steps, because a weight update
        would make them outdated.
        """
        normal = self.norm(context)
        query = F.linear(normal[:, -1], self.query)
        if self.heads == 1:
            content = ((query + self.content_bias) @ self.key)[:, None]
            position = ((query + self.position_bias) @ self.position)[:, None]
        else:
            by_head = (self.heads, self.head_dim, -1)
            queries = query.view(-1, self.heads, self.head_dim).transpose(0, 1)
            content = (queries + self.content_bias[:, None]) @ self.key.view(by_head)
            position = (queries + self.position_bias[:, None]) @ self.position.view(by_head)
            content = content.transpose(0, 1)
            position = position.transpose(0, 1)
        scale = self._scale
        scores = torch.baddbmm(
            position @ table.t(), content, normal.transpose(1, 2), beta=scale, alpha=scale
        )
        averages: Tensor = (scores + mask).softmax(dim=2) @ normal  # [S, heads, dim]
        if self.heads == 1:
            return F.linear(averages[:, 0], self.value)
        outputs = averages.transpose(0, 1) @ self.value.view(by_head).transpose(1, 2)
        return outputs.transpose(0, 1).flatten(1)

    def _split(self, x: Tensor) -> Tensor:
        """Turn `[S, K, heads * head_dim]` into `[heads * S, K, head_dim]`."""
        if self.heads == 1:
            return x
        return x.reshape(*x.shape[:2], self.heads, self.head_dim).permute(2, 0, 1, 3).flatten(0, 1)


class LayerNorm(nn.LayerNorm):
    """Layer normalisation with less Python overhead than nn.LayerNorm for small batches."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise the last axis."""
        return torch.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class Gate(nn.Module):
    """GRU-style gate that combines the stream x with a sublayer's output y.

    `w` maps y to r, z and the candidate, with rows in this order. `u` maps x to r and z;
    `u_candidate` maps r·x.
    """

    def __init__(self, dim: int, bias: float) -> None:
        super().__init__()
        self.sizes = [2 * dim, dim]
        self.w = _matrices(3, dim)
        self.u = _matrices(2, dim)
        self.u_candidate = _matrix(dim, dim)
        self.bias = nn.Parameter(torch.full((dim,), float(bias)))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Combine two tensors `[B, dim]` into one."""
        gates, candidate = F.linear(y, self.w).split_with_sizes(self.sizes, 1)
        r, z = torch.addmm(gates, x, self.u.t()).chunk(2, dim=1)
        candidate = torch.addmm(candidate, r.sigmoid() * x, self.u_candidate.t()).tanh()
        return torch.lerp(x, candidate, (z - self.bias).sigmoid())


def _from(x: Tensor, axis: int, start: int) -> Tensor:
    """Return `x` from the entry `start` onwards; for 0, the usual case, `x` itself, which saves
    making a view.
    """
    if not start:
        return x
    return x.narrow(axis, start, x.shape[axis] - start)


def _mask(is_visible: Tensor, like: Tensor) -> Tensor:
    """Return 0 for True and -inf for False: unlike `masked_fill`, adding it costs little, and
    nothing in training.
    """
    return is_visible.to(like.dtype).log()


def _matrix(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(initialize(torch.empty(rows, columns), "xavier_uniform", config={}))


def _matrices(count: int, size: int) -> nn.Parameter:
    """Return square matrices, each initialised separately, as one parameter
    `[count * size, size]`.
    """
    return nn.Parameter(torch.cat([_matrix(size, size).detach() for _ in range(count)]))


class _Model(TransformerModel, TorchModelV2):
    ops = OPS
    transformer_class = Transformer
    outputs_class = OutputLayers
    features_of = staticmethod(features_of)

    def _sequences(  # type: ignore[override]
        self, x: Tensor, input_dict: Mapping[str, Any], seq_lens: Tensor | None
    ) -> Sequences:
        if seq_lens is None or seq_lens.shape[0] == x.shape[0]:
            return Sequences(seq_lens, real=None)
        # With "outputs_only", padded places hold copies of a sequence's last step.
        if input_dict.get("outputs_only") or input_dict.get("no_padding"):
            return Sequences(seq_lens, real=None)
        length = x.shape[0] // seq_lens.shape[0]
        return Sequences(seq_lens, real=sequence_mask(seq_lens, length))


class AttentionWrapper(AroundTrunk, _Model):
    """Gated transformer after a trunk, followed by logits and a value; see `AroundTrunk`."""


class GTrXLNet(ByItself, _Model):
    """The standalone gated transformer; see `ByItself`."""
