"""The header of a pull, decoded in one typed step. Never compiled, as `sendjson`."""

from __future__ import annotations

import msgspec

from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.extfields import ext_fields
from aerobee.hot.wire.frame import CODEC_JSON, Frame
from aerobee.protocol.headers.pull import PullMessageRequestHeader


class PullEnvelope(msgspec.Struct, gc=False):
    """What is needed of the header itself."""

    code: int
    ext: PullMessageRequestHeader = msgspec.field(name="extFields")
    flag: int = 0
    opaque: int = 0


_decode = msgspec.json.Decoder(PullEnvelope, strict=False).decode


def decode_pull(frame: Frame) -> PullMessageRequestHeader | None:
    """None where the header is not as clients usually write it: the slow decode then says what is wrong, if anything.

    Raises RemoteProtocolError for a broken frame.
    """
    if frame.codec != CODEC_JSON:
        try:
            return msgspec.convert(ext_fields(frame), PullMessageRequestHeader, strict=False)
        except msgspec.ValidationError:
            return None
    try:
        envelope = _decode(frame.header())
    except (ValueError, RecursionError):
        return None
    if envelope.code != frame.code:
        raise RemoteProtocolError(f"the header names two codes, {frame.code} and {envelope.code}")
    frame.opaque = envelope.opaque
    frame.flag = envelope.flag
    return envelope.ext
