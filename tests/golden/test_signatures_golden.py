"""Frames that the ACL hooks of Java clients 4.9.3, 4.9.8 and 5.5.0 have signed, in both header codecs."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from aerobee.access.config import AccessConfig
from aerobee.access.directory import UserDirectory
from aerobee.access.door import Access
from aerobee.access.refusal import AccessRefusedError
from aerobee.access.users import User
from aerobee.access.verdicts import AccessVerdict
from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.frame import scan_frames
from aerobee.hot.wire.signed import SigningKey, scan_signed
from aerobee.protocol.command import decode_command
from aerobee.protocol.signing import SIGNATURE, digest_of

LINES = (Path(__file__).parent / "data" / "signatures.txt").read_text().split("\n")[:-1]
SECRET = b"java-secret"
KEY = SigningKey(SECRET)


class NoWitness:
    """Hears of refusals and forgets them."""

    def refused_login(self, name: str, source: str, code: object, reason: str) -> None: ...
    def refused(self, user: User, source: str, code: object, verdict: AccessVerdict) -> None: ...


def door() -> Access:
    found = Access(AccessConfig(authentication_enabled=True), "c", NoWitness())
    found.take(UserDirectory({"java-user": User("java-user", SECRET.decode())}))
    return found


def frames() -> list[tuple[str, bytes]]:
    return [(version, bytes.fromhex(text)) for version, text in (line.split(" ") for line in LINES)]


def test_signature_golden_java_4_9_and_5_5() -> None:
    """Test 2: all pass, by the general way and by the short one."""
    access = door()
    seen: dict[str, int] = {}
    short = 0
    for version, data in frames():
        frame = scan_frames(data)[0][0]
        command = decode_command(frame)
        user = access.authenticate(command.ext, command.body, command.version, "10.0.0.1")
        assert user.name == "java-user"
        wanted = base64.b64decode(command.ext[SIGNATURE])
        assert digest_of(SECRET, command.ext, command.body, command.version) == wanted
        found = scan_signed(frame, True)
        if found is not None:
            assert found.is_by(KEY, frame), (version, data)
            short += 1
        seen[version] = seen.get(version, 0) + 1
    assert seen == {"4.9.3": 68, "4.9.8": 68, "5.5.0": 68}
    assert short > 60


@pytest.mark.parametrize("nth", range(0, len(LINES), 17))
def test_a_changed_value_is_refused(nth: int) -> None:
    """One bit of any value, of the signature or of the body changed: refused by both ways."""
    access = door()
    data = frames()[nth][1]
    command = decode_command(scan_frames(data)[0][0])
    unsigned = "_UNIQUE_KEY_QUERY" if command.version <= 399 else ""
    for name, value in command.ext.items():
        if name == unsigned or not value:
            continue
        for place in {0, len(value) - 1}:
            changed = value[:place] + chr(ord(value[place]) ^ 1) + value[place + 1 :]
            with pytest.raises(AccessRefusedError):
                access.authenticate({**command.ext, name: changed}, command.body, command.version, "10.0.0.1")
    if command.body:
        with pytest.raises(AccessRefusedError):
            wrong = bytes([command.body[0] ^ 1]) + command.body[1:]
            access.authenticate(command.ext, wrong, command.version, "10.0.0.1")


def test_no_flipped_bit_of_a_body_passes_the_short_way() -> None:
    for _, data in frames()[::29]:
        frame = scan_frames(data)[0][0]
        for bit in range(frame.body_pos * 8, len(data) * 8, 7):
            wrong = bytearray(data)
            wrong[bit // 8] ^= 1 << bit % 8
            try:
                other = scan_frames(bytes(wrong))[0][0]
            except RemoteProtocolError:
                continue
            found = scan_signed(other, True)
            assert found is None or not found.is_by(KEY, other)
