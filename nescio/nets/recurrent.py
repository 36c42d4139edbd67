"""A recurrent classifier of token sequences.

The recurrence is written out in Linear layers: `nn.LSTM` has no batching rule under `torch.func.vmap`, and its two
biases that only ever appear as a sum would give a posterior a direction that the data cannot see.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from nescio.errors import InputError
from nescio.nets.sizes import require_sizes


@final
class _LSTMClassifier(nn.Module):
    """Tokens (sequences, steps) to logits (sequences, classes), from the state after the last token."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, classes: int, padding: int) -> None:
        super().__init__()
        self.padding, self.hidden = padding, hidden
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.from_input = nn.Linear(embedding, 4 * hidden)  # gates in torch's order: input, forget, cell, output
        self.from_state = nn.Linear(hidden, 4 * hidden, bias=False)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.ndim != 2 or tokens.is_floating_point():
            raise InputError(
                "lstm_classifier takes whole-numbered tokens (sequences, steps)",
                f"{tokens.dtype} of shape {tuple(tokens.shape)}",
                "pad the sequences into one integer tensor",
            )
        if not tokens.shape[1]:
            raise InputError("a sequence must have at least one token", "length zero", "leave empty sequences out")
        valid = (tokens != self.padding).unsqueeze(-1)  # (sequences, steps, 1)
        drive = self.from_input(self.embedding(tokens))  # (sequences, steps, 4 hidden)
        state = cell = drive.new_zeros(tokens.shape[0], self.hidden)
        # unbind, not an index at each step: the gradient of an index is a whole tensor of zeros
        for here, push in zip(valid.unbind(1), drive.unbind(1), strict=True):
            enter, forget, write, leave = (push + self.from_state(state)).chunk(4, dim=-1)
            new = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(write)
            # Padding leaves the state as it was, wherever it stands: before, after or between the tokens.
            cell = torch.where(here, new, cell)
            state = torch.where(here, torch.sigmoid(leave) * torch.tanh(new), state)
        return self.head(state)


def lstm_classifier(vocabulary: int, embedding: int, hidden: int, classes: int, padding: int = 0) -> nn.Module:
    """Embedding, one LSTM, and a Linear head on the state after the last token that is not `padding`."""
    require_sizes(("vocabulary", vocabulary), ("embedding", embedding), ("hidden", hidden), ("classes", classes))
    if isinstance(padding, bool) or not isinstance(padding, int) or not 0 <= padding < vocabulary:
        raise InputError(
            "padding must be a token of the vocabulary",
            f"padding={padding!r} for a vocabulary of {vocabulary}",
            f"use a whole number from 0 to {vocabulary - 1}",
        )
    return _LSTMClassifier(vocabulary, embedding, hidden, classes, padding)
