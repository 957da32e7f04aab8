"""Randomness from the operating system."""

from __future__ import annotations

import secrets


class SystemEntropy:
    """Fit for tokens and keys as well as for jitter."""

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def below(self, limit: int) -> int:
        """An int in [0, limit)."""
        return secrets.randbelow(limit)

    def uniform(self) -> float:
        """A float in [0, 1)."""
        return secrets.randbits(53) / (1 << 53)
