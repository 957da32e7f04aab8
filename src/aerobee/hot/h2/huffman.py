"""The Huffman code of HPACK (RFC 7541, appendix B): text of header fields in fewer bytes.

The code is canonical: codes of one length follow each other in the order of their symbols, so the symbols of each
length are all that is written here. The decoder walks an automaton that reads four bits in a step.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_le
from mypy_extensions import i64, u8

from aerobee.errors import RemoteProtocolError

_EOS: Final = 256

# Symbols by the length of their code. A tuple stands for a range, both ends included.
_SYMBOLS: Final[dict[int, tuple[int | tuple[int, int], ...]]] = {
    5: ((48, 50), 97, 99, 101, 105, 111, (115, 116)),
    6: (32, 37, (45, 47), (51, 57), 61, 65, 95, 98, 100, (102, 104), (108, 110), 112, 114, 117),
    7: (58, (66, 87), 89, (106, 107), 113, (118, 122)),
    8: (38, 42, 44, 59, 88, 90),
    10: ((33, 34), (40, 41), 63),
    11: (39, 43, 124),
    12: (35, 62),
    13: (0, 36, 64, 91, 93, 126),
    14: (94, 125),
    15: (60, 96, 123),
    19: (92, 195, 208),
    20: (128, (130, 131), 162, 184, 194, 224, 226),
    21: (153, 161, 167, 172, (176, 177), 179, 209, (216, 217), 227, (229, 230)),
    22: (129, (132, 134), 136, 146, 154, 156, 160, (163, 164), (169, 170), 173, 178, 181, (185, 187), (189, 190), 196,
         198, 228, (232, 233)),
    23: (1, 135, (137, 141), 143, 147, (149, 152), 155, (157, 158), (165, 166), 168, (174, 175), 180, (182, 183), 188,
         191, 197, 231, 239),
    24: (9, 142, (144, 145), 148, 159, 171, 206, 215, 225, (236, 237)),
    25: (199, 207, (234, 235)),
    26: ((192, 193), (200, 202), 205, 210, 213, (218, 219), 238, 240, (242, 243), 255),
    27: ((203, 204), (211, 212), 214, (221, 223), 241, (244, 248), (250, 254)),
    28: ((2, 8), (11, 12), (14, 21), (23, 31), 127, 220, 249),
    30: (10, 13, 22, _EOS),
}  # fmt: skip

# A step of the automaton: the next state above bit 16, flags, and the symbol that was completed.
_STATE_SHIFT: Final = 16
_EMITS: Final = 0x100
# The text may end here: what is left of the last byte are the first bits of the end symbol, at most seven.
_MAY_END: Final = 0x200
_FAILS: Final = 0x400


def _codes() -> list[tuple[int, int]]:
    """Return code and length by symbol."""
    found = [(0, 0)] * (_EOS + 1)
    code = length = 0
    for size, symbols in _SYMBOLS.items():
        code <<= size - length
        length = size
        for one in symbols:
            first, last = one if isinstance(one, tuple) else (one, one)
            for symbol in range(first, last + 1):
                found[symbol] = (code, size)
                code += 1
    return found


def _automaton(codes: list[tuple[int, int]]) -> list[int]:
    """Return the steps: 16 for each inner node of the code tree, one for each value of four bits."""
    # By node: the child for 0 and for 1. A leaf is -1 - symbol.
    children: list[list[int]] = [[0, 0]]
    for symbol in range(_EOS + 1):
        code, size = codes[symbol]
        node = 0
        for bit in range(size - 1, 0, -1):
            side = (code >> bit) & 1
            if not children[node][side]:
                children.append([0, 0])
                children[node][side] = len(children) - 1
            node = children[node][side]
        children[node][code & 1] = -1 - symbol
    may_end = {0}
    node = 0
    for _ in range(7):
        node = children[node][1]
        may_end.add(node)
    steps: list[int] = []
    for start in range(len(children)):
        for nibble in range(16):
            node, emitted, fails = start, -1, False
            for bit in (3, 2, 1, 0):
                node = children[node][(nibble >> bit) & 1]
                if node < 0:
                    symbol, node = -1 - node, 0
                    fails = fails or symbol == _EOS
                    emitted = symbol
            step = node << _STATE_SHIFT
            if fails:
                step |= _FAILS
            elif emitted >= 0:
                step |= _EMITS | emitted
            if node in may_end:
                step |= _MAY_END
            steps.append(step)
    return steps


_CODES: Final = _codes()
# Four bytes a step: compiled code reads them without an object for each number.
_STEPS: Final = b"".join(step.to_bytes(4, "little") for step in _automaton(_CODES))


def decode_huffman(data: bytes, start: int, end: int) -> bytes:
    """Return the text of `data[start:end]`. Raise RemoteProtocolError where it is not of this code, or padded with
    anything but the first bits of the end symbol."""
    steps = _STEPS
    out = BytesWriter()
    state: i64 = 0
    step: i64 = _MAY_END
    at: i64 = start
    stop: i64 = end
    while at < stop:
        byte: i64 = data[at]
        at += 1
        step = i64(read_i32_le(steps, (state * 16 + (byte >> 4)) * 4))
        if step & 0x500:
            if step & 0x400:
                raise RemoteProtocolError("HPACK: the end symbol stands inside a Huffman text")
            out.append(u8(step & 0xFF))
        state = step >> 16
        step = i64(read_i32_le(steps, (state * 16 + (byte & 15)) * 4))
        if step & 0x500:
            if step & 0x400:
                raise RemoteProtocolError("HPACK: the end symbol stands inside a Huffman text")
            out.append(u8(step & 0xFF))
        state = step >> 16
    if not step & 0x200:
        raise RemoteProtocolError("HPACK: wrong padding of a Huffman text")
    return out.getvalue()


def encode_huffman(text: bytes) -> bytes:
    """Return the text in the code."""
    bits = size = 0
    for byte in text:
        code, length = _CODES[byte]
        bits = (bits << length) | code
        size += length
    padding = -size % 8
    return ((bits << padding) | ((1 << padding) - 1)).to_bytes((size + padding) // 8, "big")
