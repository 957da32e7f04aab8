"""The JSON header of a send, decoded in one typed step. Never compiled: msgspec reads the bounds of each field from
the annotations, which a compiled class does not keep."""

from __future__ import annotations

import msgspec

from aerobee.protocol.headers.base import Int32, Int64


class SendExt(msgspec.Struct, gc=False):
    """SEND_MESSAGE_V2's fields by their letters; absent optional ones as SendFields wants them."""

    a: str
    b: str
    e: Int32
    f: Int32
    g: Int64
    h: Int32
    c: str = ""
    d: Int32 = 0
    i: str = ""
    j: Int32 = 0
    k: bool = False
    l: Int32 = -1  # noqa: E741 - the wire's own name
    m: bool = False
    n: str = ""


class SendEnvelope(msgspec.Struct, gc=False):
    """What is needed of the header itself."""

    code: int
    ext: SendExt = msgspec.field(name="extFields")
    flag: int = 0
    opaque: int = 0


decode_envelope = msgspec.json.Decoder(SendEnvelope, strict=False).decode
