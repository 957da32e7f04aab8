"""Header compression of HTTP/2 (RFC 7541): a decoder with its dynamic table, and literals for the encoder.

What a peer can make the decoder do is bounded. The table holds what the settings allow. Fields of a block beyond
`list_max` bytes (the sum that SETTINGS_MAX_HEADER_LIST_SIZE names) are read and dropped, so that the table stays that
of the peer, and `is_too_large` is set. A block that breaks a rule raises RemoteProtocolError: the connection cannot go
on, because the tables of both sides differ from then on.
"""

from typing import Final

from mypy_extensions import i64

from aerobee.errors import RemoteProtocolError
from aerobee.hot.h2.huffman import decode_huffman

TABLE_SIZE: Final = 4096
ENTRY_OVERHEAD: Final = 32

# What a field is to the rules of RFC 9113, section 8.
ORDINARY: Final = 0
METHOD: Final = 1
SCHEME: Final = 2
PATH: Final = 3
AUTHORITY: Final = 4
STATUS: Final = 5
# The name has a capital letter or a character that no name has, or is a pseudo-header that is none.
BAD_NAME: Final = 6
# About the connection, which HTTP/1 says in headers and HTTP/2 does not.
OF_CONNECTION: Final = 7
TE: Final = 8
CONTENT_LENGTH: Final = 9

_KINDS: Final = {
    b":method": METHOD, b":scheme": SCHEME, b":path": PATH, b":authority": AUTHORITY, b":status": STATUS,
    b"connection": OF_CONNECTION, b"proxy-connection": OF_CONNECTION, b"keep-alive": OF_CONNECTION,
    b"transfer-encoding": OF_CONNECTION, b"upgrade": OF_CONNECTION, b"te": TE, b"content-length": CONTENT_LENGTH,
}  # fmt: skip
_NAME_CHARACTERS: Final = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"

_STATIC_TEXT: Final = (
    b":authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200|"
    b":status 204|:status 206|:status 304|:status 400|:status 404|:status 500|accept-charset|"
    b"accept-encoding gzip, deflate|accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|"
    b"authorization|cache-control|content-disposition|content-encoding|content-language|content-length|"
    b"content-location|content-range|content-type|cookie|date|etag|expect|expires|from|host|if-match|"
    b"if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|link|location|max-forwards|"
    b"proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|server|set-cookie|"
    b"strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"
)


# Names of fields that were read, as they came, by their bytes on the wire. Clients send the same few with each call.
_NAMES_MAX: Final = 1_024
_NAME_SIZE_MAX: Final = 64
_names: dict[bytes, "Field"] = {}


class Field:
    """One header field. `kind` is what its name is to the rules."""

    def __init__(self, name: bytes, value: bytes, kind: int) -> None:
        self.name: bytes = name
        self.value: bytes = value
        self.kind: int = kind


def field_of(name: bytes, value: bytes) -> Field:
    """Return the field of a name that was not read before."""
    return Field(name, value, _kind_of(name))


def _kind_of(name: bytes) -> int:
    kind = _KINDS.get(name)
    if kind is not None:
        return kind
    return ORDINARY if name and not name.translate(None, _NAME_CHARACTERS) else BAD_NAME


def _static_table() -> list[Field]:
    table = [field_of(b"", b"")]
    for text in _STATIC_TEXT.split(b"|"):
        name, _, value = text.partition(b" ")
        table.append(field_of(name, value))
    return table


_STATIC: Final = _static_table()
_STATIC_SIZE: Final = 61


class HpackDecoder:
    """The decoder of one direction of a connection."""

    def __init__(self, list_max: int, table_max: int = TABLE_SIZE) -> None:
        self._list_max: i64 = list_max
        # The size that our settings allow, and the one that the peer chose below it.
        self._allowed: i64 = table_max
        self._table_max: i64 = table_max
        # The oldest entry first. Those before `_first` are gone.
        self._table: list[Field] = []
        self._first: i64 = 0
        self._size: i64 = 0
        self.is_too_large: bool = False
        self._data: bytes = b""
        self._at: i64 = 0

    @property
    def table_size(self) -> int:
        """Return the size of the dynamic table as the specification counts it."""
        return self._size

    def decode(self, data: bytes) -> list[Field]:
        """Return the fields of one header block. Those that do not fit `list_max` are left out."""
        self._data = data
        self._at = 0
        fields: list[Field] = []
        total: i64 = 0
        size: i64 = len(data)
        is_first = True
        while self._at < size:
            byte: i64 = data[self._at]
            if byte >= 0x80:
                field = self._entry(self._number(7))
            elif byte >= 0x40:
                field = self._literal(6)
                self._add(field)
            elif byte >= 0x20:
                if not is_first:
                    raise RemoteProtocolError("HPACK: the table size changes in the middle of a header block")
                self._resize(self._number(5))
                continue
            else:
                field = self._literal(4)
            is_first = False
            total += len(field.name) + len(field.value) + 32
            if total <= self._list_max:
                fields.append(field)
        self._data = b""
        self.is_too_large = total > self._list_max
        return fields

    def _number(self, bits: i64) -> i64:
        """Read a number whose first part has so many bits."""
        data = self._data
        size: i64 = len(data)
        full: i64 = (1 << bits) - 1
        at: i64 = self._at
        number: i64 = i64(data[at]) & full
        at += 1
        if number == full:
            shift: i64 = 0
            while True:
                if at >= size:
                    raise RemoteProtocolError("HPACK: a number does not end")
                byte: i64 = data[at]
                at += 1
                number += (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 28:
                    raise RemoteProtocolError("HPACK: a number is too large")
        self._at = at
        return number

    def _text(self) -> bytes:
        data = self._data
        size: i64 = len(data)
        if self._at >= size:
            raise RemoteProtocolError("HPACK: a text is missing")
        is_huffman = i64(data[self._at]) >= 0x80
        length = self._number(7)
        start: i64 = self._at
        end: i64 = start + length
        if end > size:
            raise RemoteProtocolError("HPACK: a text is longer than its block")
        self._at = end
        return decode_huffman(data, int(start), int(end)) if is_huffman else data[int(start) : int(end)]

    def _literal(self, bits: i64) -> Field:
        index = self._number(bits)
        named = self._entry(index) if index else self._name()
        return Field(named.name, self._text(), named.kind)

    def _name(self) -> Field:
        """Read a name; return a field that has it."""
        start: i64 = self._at
        data = self._data
        # A length below 127 is in the first byte.
        size: i64 = i64(data[start]) & 0x7F if start < len(data) else 0
        if size > _NAME_SIZE_MAX:
            return field_of(self._text(), b"")
        written = data[int(start) : int(start + 1 + size)]
        found = _names.get(written)
        if found is None:
            found = field_of(self._text(), b"")
            if len(_names) >= _NAMES_MAX:
                _names.clear()
            _names[written] = found
        else:
            self._at = start + 1 + size
        return found

    def _entry(self, index: i64) -> Field:
        if 0 < index <= _STATIC_SIZE:
            return _STATIC[index]
        at: i64 = i64(len(self._table)) - (index - _STATIC_SIZE)
        if index <= 0 or at < self._first:
            raise RemoteProtocolError(f"HPACK: there is no entry {index}")
        return self._table[at]

    def _add(self, field: Field) -> None:
        size: i64 = len(field.name) + len(field.value) + ENTRY_OVERHEAD
        self._evict(self._table_max - size)
        if size <= self._table_max:
            self._table.append(field)
            self._size += size

    def _resize(self, size: i64) -> None:
        if size > self._allowed:
            raise RemoteProtocolError(f"HPACK: a table of {size} bytes is larger than the settings allow")
        self._table_max = size
        self._evict(size)

    def _evict(self, room: i64) -> None:
        """Drop the oldest entries until the table has at most `room` bytes."""
        table = self._table
        first: i64 = self._first
        count: i64 = len(table)
        while self._size > room and first < count:
            old = table[first]
            self._size -= len(old.name) + len(old.value) + ENTRY_OVERHEAD
            first += 1
        if first == count or first > 64:
            del table[: int(first)]
            first = 0
        self._first = first


def literal(name: bytes, value: bytes) -> bytes:
    """Return a field that no table remembers, with both texts as they are."""
    return b"\x00" + text_of(name) + text_of(value)


def text_of(text: bytes) -> bytes:
    """Return a text as it is, with its length before it."""
    return number_of(len(text), 7, 0) + text


def number_of(number: int, bits: int, first: int) -> bytes:
    """Return a number whose first part has so many bits; `first` are the bits beside it."""
    full = (1 << bits) - 1
    if number < full:
        return bytes((first | number,))
    out = bytearray((first | full,))
    number -= full
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
