"""The image: what the records of the state topic say, as far as they were written or learnt. A machine.

A leader compares its tables with the image and journals what differs. A follower applies records to the image and to
its tables. A replay of the records from the begin of a snapshot gives the image again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

_MISSING: Final = object()


class StateImage:
    """Entries by section and key. A value is never None: that stands for an entry that is gone."""

    def __init__(self, names: Iterable[str]) -> None:
        self.sections: dict[str, dict[str, Any]] = {name: {} for name in names}
        # While a snapshot is being learnt: the keys that were named since its begin.
        self._named: dict[str, set[str]] | None = None

    def changed(self, section: str, live: Mapping[str, Any]) -> dict[str, Any]:
        """Return what must be applied to make a section equal to a table: values, and None for what is gone."""
        known = self.sections[section]
        found = {key: value for key, value in live.items() if _differs(known.get(key, _MISSING), value)}
        found.update({key: None for key in known if key not in live})
        return found

    def put(self, section: str, key: str, value: Any) -> None:
        """Take an entry as it is now; None where it is gone."""
        if value is None:
            self.sections[section].pop(key, None)
        else:
            self.sections[section][key] = value
        if self._named is not None:
            self._named[section].add(key)

    def begin(self) -> None:
        """Note that a snapshot begins: what it does not name is gone at its end."""
        self._named = {section: set() for section in self.sections}

    def end(self) -> list[tuple[str, str]]:
        """Note that the snapshot is whole. Return the entries (section, key) that are gone."""
        if self._named is None:
            return []
        named, self._named = self._named, None
        gone = [(section, key) for section, keys in named.items() for key in self.sections[section].keys() - keys]
        for section, key in gone:
            del self.sections[section][key]
        return gone

    def forget_begin(self) -> None:
        """Note that the snapshot which began will never end: its master is gone."""
        self._named = None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the section and key of every entry there is now. Entries may come and go meanwhile."""
        return iter([(section, key) for section, found in self.sections.items() for key in found])


def _differs(known: object, value: object) -> bool:
    return known is not value and known != value
