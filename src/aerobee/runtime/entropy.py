"""Randomness from the operating system."""

from __future__ import annotations

import secrets


class SystemEntropy:
    """Randomness of the operating system. It is fit for tokens and keys as well as for jitter."""

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def below(self, limit: int) -> int:
        """Return an int in [0, limit)."""
        return secrets.randbelow(limit)

    def uniform(self) -> float:
        """Return a float in [0, 1)."""
        return secrets.randbits(53) / (1 << 53)
