"""Files: named tensors and a JSON header, written whole or not at all, and read back exactly or refused."""

from __future__ import annotations

from nescio.store.tensors import read, write

__all__ = ["read", "write"]
