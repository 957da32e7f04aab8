"""Unique message ids. RocketMQ: MessageClientIDSetter.createUniqID. model/ids.py has their layout."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address


class UniqueIds:
    """A maker of unique ids: address, process, a random word, milliseconds of the month, a counter."""

    def __init__(self, ip: str, pid: int, word: bytes, month_bounds_ms: Callable[[int], tuple[int, int]]) -> None:
        self._fixed = f"{ip_address(ip).packed.hex().upper()}{pid & 0xFFFF:04X}{word[:4].hex().upper()}"
        self._month_bounds_ms = month_bounds_ms
        self._start_ms = 0
        self._end_ms = 0
        self._counter = 0

    def next(self, now_ms: int) -> str:
        """Return the next id. Ids are unique as long as fewer than 65,536 are made in a millisecond."""
        if now_ms >= self._end_ms:
            self._start_ms, self._end_ms = self._month_bounds_ms(now_ms)
        since = now_ms - self._start_ms
        # A clock that was set back by less than 1,000 s counts as the start of the month, as in Java.
        since = 0 if -1_000_000 < since < 0 else since & 0xFFFFFFFF
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._fixed}{since:08X}{counter:04X}"
