"""The short way of a signature says what the general way says, or leaves the frame to it."""

from __future__ import annotations

import hmac
import random

import pytest

from aerobee.access.gate import PassBook
from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.frame import Frame, scan_frames
from aerobee.hot.wire.signed import SigningKey, scan_signed
from aerobee.protocol.codes import BINARY, JSON, RequestCode
from aerobee.protocol.command import Command, encode_command
from aerobee.protocol.signing import SIGNATURE, digest_of, signed_text, signer
from aerobee.testing.accesskit import AccessClient, access_config, signed
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.secrets import secret_for

BOBS = secret_for("bob")
KEY = SigningKey(BOBS.encode())
SEND = {
    "a": "P", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
    "i": "UNIQ_KEY\x01C0000201\x02TAGS\x01a\"b\\c/d\x02", "j": "0", "k": "false", "m": "false", "topic": "other",
    "consumerGroup": "G",
}  # fmt: skip


def frame_of(command: Command, before: bytes = b"", after: bytes = b"") -> Frame:
    data = encode_command(command)
    return scan_frames(before + data + after, len(before))[0][0]


def made(ext: dict[str, str], body: bytes, codec: int) -> Command:
    command = Command(RequestCode.SEND_MESSAGE_V2, 7, 0, dict(ext), body, codec=codec)
    signer("bob", BOBS)(command)
    return command


@pytest.mark.parametrize("secret", [b"", b"s", b"s" * 63, b"s" * 64, b"s" * 65, b"s" * 500])
@pytest.mark.parametrize("body", [b"", b"x", b"x" * 100_000])
def test_a_key_signs_as_hmac_does(secret: bytes, body: bytes) -> None:
    assert SigningKey(secret).digest(b"content", body) == hmac.digest(secret, b"content" + body, "sha1")


@pytest.mark.parametrize("codec", [JSON, BINARY])
@pytest.mark.parametrize("body", [b"", b"words", b"w" * 100_000])
def test_a_signed_frame_is_known(codec: int, body: bytes) -> None:
    command = made(SEND, body, codec)
    for before, after in ((b"", b""), (encode_command(command), b""), (b"", encode_command(command))):
        frame = frame_of(command, before, after)
        for second, topic in ((True, "orders"), (False, "other")):
            found = scan_signed(frame, second)
            assert found is not None
            assert (found.access_key, found.topic, found.group) == ("bob", topic, "G")
            assert found.content == signed_text(command.ext, command.version)
            assert found.is_by(KEY, frame)
            assert not found.is_by(SigningKey(b"Secret"), frame)


@pytest.mark.parametrize("codec", [JSON, BINARY])
def test_the_short_way_agrees_with_the_general_one(codec: int) -> None:
    """Random fields: what the short way takes has the content and the digest of the general way."""
    chance = random.Random(3)
    words = [
        "",
        "a",
        "b",
        "Ab",
        "a.b",
        "x" * 40,
        "\x01",
        "\x02",
        "a\x01b\x02",
        '"',
        "\\",
        "/",
        "é",
        "日本",
        "a\nb",
        "\t",
        "😀",
    ]
    taken = 0
    for _ in range(3000):
        ext = {chance.choice(["b", "topic", "A", "z", "consumerGroup", "_x", "Z", "é"]): chance.choice(words)
               for _ in range(chance.randint(0, 6))}  # fmt: skip
        body = chance.choice([b"", b"body", b"\xff" * 20])
        command = made(ext, body, codec)
        frame = frame_of(command, chance.choice([b"", encode_command(command)]))
        found = scan_signed(frame, chance.random() < 0.5)
        if found is None:
            continue
        taken += 1
        assert found.content == signed_text(ext | {"AccessKey": "bob"}, 513)
        assert found.is_by(KEY, frame)
        assert found.topic in ("", ext.get("b"), ext.get("topic"))
    assert taken > 500


@pytest.mark.parametrize(
    "change",
    [
        lambda ext: ext.pop(SIGNATURE),
        lambda ext: ext.pop("AccessKey"),
        lambda ext: ext.update({SIGNATURE: "short"}),
        lambda ext: ext.update({SIGNATURE: "!" * 28}),
        lambda ext: ext.update({"_UNIQUE_KEY_QUERY": "true"}),
        lambda ext: ext.update({f"f{n}": "x" for n in range(80)}),
    ],
    ids=["no signature", "no key", "short", "no base64", "unique key query", "many fields"],
)
@pytest.mark.parametrize("codec", [JSON, BINARY])
def test_an_unusual_frame_is_left_to_the_general_way(change, codec: int) -> None:  # type: ignore[no-untyped-def]
    command = made(SEND, b"x", codec)
    change(command.ext)
    found = scan_signed(frame_of(command), True)
    assert found is None or not found.is_by(KEY, frame_of(command))


def test_a_name_that_comes_twice_is_left_to_the_general_way() -> None:
    data = encode_command(made(SEND, b"", JSON))
    for name in (b"b", b"AccessKey", b"zz"):
        head = data[8:].replace(b'"extFields":{', b'"extFields":{"%s":"x","zz":"1",' % name)
        twice = (len(head) + 4).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head
        assert scan_signed(scan_frames(twice)[0][0], True) is None


def test_mutated_frames_never_pass() -> None:
    """Every bit of a signed frame flipped: only bits that are not signed may change without a refusal."""
    for codec in (JSON, BINARY):
        command = made(SEND, b"words", codec)
        data = encode_command(command)
        good = digest_of(BOBS.encode(), command.ext, command.body, command.version)
        passed = 0
        for bit in range(64, len(data) * 8):
            wrong = bytearray(data)
            wrong[bit // 8] ^= 1 << bit % 8
            try:
                frames, _ = scan_frames(bytes(wrong))
                found = scan_signed(frames[0], True) if frames else None
            except RemoteProtocolError:
                continue  # not a frame any more
            if found is not None and found.is_by(KEY, frames[0]):
                passed += 1
                assert found.signature == good
                assert found.topic in ("orders", "")
        # By RocketMQ's rule opaque, flag, language and version are not signed, and neither are the names of fields, but
        # for their order.
        assert passed < 600


def test_repeated_sends_and_pulls_take_the_short_way() -> None:
    slow: list[int] = []

    async def main(kit: BrokerKit) -> None:
        root = AccessClient(kit)
        assert kit.access is not None
        learn = PassBook.allow_send
        ext = {**SEND, "i": "UNIQ_KEY\x01C0000201000000000000000000000001\x02"}
        for _ in range(4):
            assert (await root.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x")).code == 0
            slow.append(kit.access.guard(kit.broker.world).slow_frames)
        assert learn is PassBook.allow_send
        # Another connection of the same user is noted once.
        other = AccessClient(kit)
        for _ in range(2):
            assert (await other.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x")).code == 0
            slow.append(kit.access.guard(kit.broker.world).slow_frames)
        assert (await kit.connect().call(signed(RequestCode.SEND_MESSAGE_V2, ext, user=None))).code == 16

    run_broker(main, access=access_config())
    assert slow == [1, 1, 1, 1, 2, 2]
