"""What symmetric matrices allow, on the CPU by numpy: its product of a matrix with itself does half of the work (BLAS' syrk, which torch
does not call), and its LAPACK is the faster one on processors that torch's library was not made for.

Torch's own where there is a gradient to take, on a GPU, and of halves.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def gram(rows: Tensor) -> Tensor:
    """rowsᵀ rows, of a matrix."""
    if not by_numpy(rows):
        return rows.mT @ rows
    known = rows.numpy()
    return torch.from_numpy(known.T @ known)


def eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues of a symmetric matrix, ascending, and its eigenvectors as columns."""
    if not by_numpy(matrix):
        values, vectors = torch.linalg.eigh(matrix)
        return values, vectors
    found = np.linalg.eigh(matrix.numpy())
    return torch.from_numpy(found.eigenvalues), torch.from_numpy(found.eigenvectors)


def by_numpy(matrix: Tensor) -> bool:
    return matrix.is_cpu and not matrix.requires_grad and matrix.dtype in (torch.float32, torch.float64)
