"""gRPC with users: nobody is let in without a signature, and nobody beyond his rights, by a broker or by a proxy."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import ssl
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.hot.h2 import frames
from aerobee.hot.h2.hpack import literal
from aerobee.hot.log.layout import TRANSACTION_PREPARED
from aerobee.model.ids import decode_offset_message_id
from aerobee.model.numbers import parse_int
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.grpc import prefixed
from aerobee.protocol.headers.send import SendMessageRequestHeaderV2
from aerobee.protocol.signing import signer
from aerobee.protocol.v2 import calls, enums
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.fields import encode
from aerobee.protocol.v2.values import PbBroker, PbDuration, PbMessageQueue
from aerobee.proxy.backend import ClusterBackend
from aerobee.proxy.clients import GrpcClient
from aerobee.proxy.sending import send_header
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.net import RealNet
from aerobee.testing.clustersecurity import ClusterSecurity
from aerobee.testing.commands import Up, aerobee, proxy_of, up
from aerobee.testing.grpckit import GrpcPeer, consumer_settings, message, producer_settings, signed, topic_named
from aerobee.testing.secrets import secret_for
from aerobee.testing.waiting import wait_until

_numbers = itertools.count(1)
GRANTS = (("writer", "Topic:mine", "Pub"), ("reader", "Topic:mine", "Sub"), ("reader", "Group:readers", "Sub"),
          ("both", "Topic:mine", "Pub"), ("both", "Topic:foreign", "Pub"))  # fmt: skip


class Secured:
    """A running cluster with users."""

    def __init__(self, running: Up, data: Path, passwords: dict[str, str], address: str) -> None:
        self.running = running
        self.address = address
        self.broker: str = running.ready["broker"]
        self.data = data
        self.authority = (data / "secure" / "ca.pem").read_bytes()
        profile = tomllib.loads((data / "secure" / "credentials.toml").read_text())
        self.admin_secret: str = profile["admin"]["secret_key"]
        self.passwords = passwords

    def run(self, *words: str) -> None:
        """Run a command as the administrator."""
        told = self.running.ready["secured"]
        done = aerobee(*words, AEROBEE_CREDENTIALS=told["credentials"], AEROBEE_PROFILE=told["profile"])
        assert done.returncode == 0, done.stderr

    def add_user(self, name: str) -> None:
        """Make a user."""
        file = self.data / "password.txt"
        file.touch(0o600)
        file.write_text(secret_for(name))
        self.run("user", "create", name, "--password-file", str(file))
        self.passwords[name] = secret_for(name)

    def peer(self, user: str | None, *, password: str = "", date: str = "", client_id: str = "") -> GrpcPeer:
        """Return a client that signs as the official ones do."""
        headers = {}
        if user is not None:
            headers = signed(user, password or self.passwords.get(user, "none-such"), date)
        tls = grpc.ssl_channel_credentials(self.authority)
        return GrpcPeer(self.address, client_id or f"peer@{next(_numbers)}", tls, **headers)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    data = tmp_path_factory.mktemp("secured") / "data"
    data.mkdir()
    ClusterSecurity(data, "127.0.0.1")  # `up` finds what it would make, with secrets that the search for leaks knows
    with up("--secure", "--data", str(data)) as running:
        found = Secured(running, data, {}, running.ready["grpc"])
        found.run("topic", "create", "-t", "mine", "-q", "1")
        found.run("topic", "create", "-t", "foreign", "-q", "1")
        for name in ("writer", "reader", "stranger", "both"):
            found.add_user(name)
        for words in GRANTS:
            found.run("acl", "grant", *words)
        yield found


@pytest.fixture(scope="module", params=("broker", "proxy"))
def secured(request: pytest.FixtureRequest, cluster: Secured) -> Iterator[Secured]:
    """The service in the broker's process, and in a proxy, which has the settings of every server."""
    if request.param == "broker":
        yield cluster
        return
    with proxy_of("-n", cluster.running.namesrv, "-c", str(cluster.data / "secure" / "server.conf")) as address:
        yield Secured(cluster.running, cluster.data, cluster.passwords, address)


def code_of(answer: Any) -> int:
    return int(answer.status.code)


def requests_about(topic: str, group: str, peer: GrpcPeer) -> dict[str, Any]:
    """Return a request of each unary call, and of each that answers with a stream, about a topic and a group."""
    t, g = topic_named(topic), topic_named(group)
    queue = PbMessageQueue(t, 0, enums.READ, PbBroker("broker-a", 0, peer.endpoints), [])
    c = calls
    return {
        "SendMessage": c.PbSendMessageRequest([message(topic, b"x", f"id-{next(_numbers)}")]),
        "EndTransaction": c.PbEndTransactionRequest(t, "", "1@2@id@broker-a", enums.COMMIT),
        "RecallMessage": c.PbRecallMessageRequest(t, "garbage"),
        "QueryRoute": c.PbQueryRouteRequest(t, peer.endpoints),
        "QueryAssignment": c.PbQueryAssignmentRequest(t, g, peer.endpoints),
        "Heartbeat": c.PbHeartbeatRequest(g, enums.SIMPLE_CONSUMER),
        "NotifyClientTermination": c.PbNotifyClientTerminationRequest(g),
        "ReceiveMessage": c.PbReceiveMessageRequest(
            group=g, message_queue=queue, batch_size=1, invisible_duration=PbDuration(1)
        ),
        "AckMessage": c.PbAckMessageRequest(g, t, [c.PbAckMessageEntry("id", "garbage")]),
        "ForwardMessageToDeadLetterQueue": c.PbForwardMessageToDeadLetterQueueRequest(g, t, "garbage", "id", 1, 1),
        "ChangeInvisibleDuration": c.PbChangeInvisibleDurationRequest(g, t, "garbage", PbDuration(20), "id"),
        "PullMessage": c.PbPullMessageRequest(group=g, message_queue=queue, offset=-1, batch_size=1),
        "UpdateOffset": c.PbUpdateOffsetRequest(g, queue, -1),
        "GetOffset": c.PbGetOffsetRequest(g, queue),
        "QueryOffset": c.PbQueryOffsetRequest(queue, enums.BEGINNING),
        "SyncLiteSubscription": c.PbSyncLiteSubscriptionRequest(topic=t, group=g),
    }  # fmt: skip


STREAMS = ("ReceiveMessage", "PullMessage")
OF_PRODUCERS = ("SendMessage", "EndTransaction", "RecallMessage")


def made(peer: GrpcPeer, request: Any) -> int:
    """Make a call; return its code."""
    name = type(request).__name__.removeprefix("Pb").removesuffix("Request")
    answer = getattr(calls, f"Pb{name}Response")
    found = peer.stream(request, answer)[0] if name in STREAMS else peer.call(request, answer)
    return code_of(found)


def telemetry_code(peer: GrpcPeer, settings: Any) -> int:
    stream = peer.telemetry()
    stream.put(calls.PbTelemetryCommand(settings=settings))
    answer = stream.next()
    stream.close()
    return code_of(answer)


def test_grpc_matrix(secured: Secured) -> None:
    """Each of the 17 calls: refused to nobody, to who has no rights and to a wrong secret; let in for the right user.

    What is let in fails later where the names are made up, with any other code."""
    refused: list[Callable[[], GrpcPeer]] = [
        lambda: secured.peer(None),
        lambda: secured.peer("stranger"),
        lambda: secured.peer("nobody"),
        lambda: secured.peer("writer", password="wrong"),
        lambda: secured.peer("reader", password="wrong"),
    ]
    for make in refused:
        with make() as peer:
            found = {name: made(peer, one) for name, one in requests_about("mine", "readers", peer).items()}
            assert len(found) == 16 and set(found.values()) == {Code.UNAUTHORIZED}, found
            for settings in (producer_settings("mine"), consumer_settings("readers", ["mine"])):
                assert telemetry_code(peer, settings) == Code.UNAUTHORIZED
    with secured.peer("writer") as writer, secured.peer("reader") as reader:
        for name, one in requests_about("mine", "readers", reader).items():
            right, wrong = (writer, reader) if name in OF_PRODUCERS else (reader, writer)
            assert made(right, one) != Code.UNAUTHORIZED, name
            if name != "QueryRoute":
                assert made(wrong, one) == Code.UNAUTHORIZED, name
        for peer in (writer, reader):
            for name, one in requests_about("foreign", "readers", peer).items():
                if name not in ("Heartbeat", "NotifyClientTermination"):
                    assert made(peer, one) == Code.UNAUTHORIZED, name
        for name, one in requests_about("mine", "others", reader).items():
            if name not in (*OF_PRODUCERS, "QueryRoute", "QueryOffset"):
                assert made(reader, one) == Code.UNAUTHORIZED, name
        assert telemetry_code(writer, producer_settings("mine")) == Code.OK
        assert telemetry_code(writer, producer_settings("mine", "foreign")) == Code.UNAUTHORIZED
        assert telemetry_code(reader, consumer_settings("readers", ["mine"])) == Code.OK
        assert telemetry_code(reader, consumer_settings("readers", ["mine", "foreign"])) == Code.UNAUTHORIZED
        both = calls.PbSendMessageRequest([message("mine", b"x", "1"), message("foreign", b"x", "2")])
        assert made(writer, both) == Code.UNAUTHORIZED


def test_a_message_goes_through(secured: Secured) -> None:
    with secured.peer("writer") as writer, secured.peer("reader") as reader:
        reader.messages("mine", "readers")
        assert code_of(writer.send(message("mine", b"secured", "id-secured"))) == Code.OK
        found = {one.body: one for one in reader.messages("mine", "readers")}
        system = found[b"secured"].system_properties
        assert system is not None and system.receipt_handle is not None
        assert code_of(reader.ack("mine", "readers", system.receipt_handle)) == Code.OK


@pytest.mark.parametrize(
    ("hours", "minutes", "code"), [(8, 0, Code.OK), (-5.5, 0, Code.OK), (0, 7, Code.UNAUTHORIZED), (24, 0, 40100)]
)
def test_the_date_is_local_time_and_not_old(secured: Secured, hours: float, minutes: float, code: int) -> None:
    at = datetime.now(UTC) + timedelta(hours=hours, minutes=-minutes)
    with secured.peer("writer", date=at.strftime("%Y%m%dT%H%M%SZ")) as peer:
        assert made(peer, requests_about("mine", "readers", peer)["QueryRoute"]) == code


def test_a_client_id_does_not_let_one_act_as_another_user(secured: Secured) -> None:
    with secured.peer("writer", client_id="same@1") as writer, secured.peer("stranger", client_id="same@1") as other:
        stream = writer.telemetry()
        stream.settle(producer_settings("mine"))
        end = calls.PbNotifyClientTerminationRequest()
        assert made(other, end) == Code.UNRECOGNIZED_CLIENT_TYPE, "the stranger has told no settings"
        assert made(writer, calls.PbHeartbeatRequest(client_type=enums.PRODUCER)) == Code.OK
        stream.close()


def stored(secured: Secured, topic: str, properties: str, *, is_half: bool = False) -> tuple[int, int]:
    """Store a message as an older client of the administrator does; return its place in its queue and in the log."""

    async def main() -> Command:
        client = RemotingClient(
            sign=signer("admin", secured.admin_secret),
            tls=ssl.create_default_context(cafile=secured.data / "secure/ca.pem"),
        )
        header = SendMessageRequestHeaderV2(
            producer_group="mine", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
            sys_flag=TRANSACTION_PREPARED if is_half else 0, born_timestamp=1, flag=0, properties=properties,
            reconsume_times=0, unit_mode=False, batch=False,
        )  # fmt: skip
        asked = request(RequestCode.SEND_MESSAGE_V2, header, b"theirs", opaque=client.next_opaque())
        try:
            while True:
                answer = await client.call(secured.broker, asked, 20)
                # A busy machine may be too slow for a moment.
                if answer.code != ResponseCode.SYSTEM_BUSY:
                    return answer
        finally:
            await client.close()

    answer = asyncio.run(main())
    assert answer.code == 0, answer
    return int(answer.ext["queueOffset"]), decode_offset_message_id(answer.ext["msgId"]).physical_offset


def test_an_end_needs_the_right_for_the_topic_of_the_half_message(secured: Secured) -> None:
    """A producer group of a remoting client may have the name of a topic. The right for that topic ends nothing."""
    unique = "C0000201000000000000000000000077"
    properties = f"UNIQ_KEY\x01{unique}\x02TRAN_MSG\x01true\x02PGROUP\x01mine\x02"
    queue_offset, place = stored(secured, "foreign", properties, is_half=True)

    def ended(user: str, resolution: int) -> tuple[int, str]:
        end = calls.PbEndTransactionRequest(
            topic_named("mine"), unique, f"{queue_offset}@{place}@{unique}@broker-a", resolution
        )
        with secured.peer(user) as peer:
            status = peer.call(end, calls.PbEndTransactionResponse).status
        return status.code, status.message

    for resolution in (enums.COMMIT, enums.ROLLBACK, 0):
        code, words = ended("writer", resolution)
        assert (code, "User:writer" in words, "Topic:foreign (Pub)" in words) == (Code.FORBIDDEN, True, True), words
    # It is still a half message: whoever has both rights ends it.
    assert ended("both", enums.COMMIT)[0] == Code.OK


def test_no_foreign_message_is_copied_to_dead_letters(secured: Secured) -> None:
    """A handle tells where the message is. One that names another topic's gets no copy of it."""
    _, place = stored(secured, "foreign", "UNIQ_KEY\x01C0000201000000000000000000000078\x02")
    with secured.peer("writer") as writer, secured.peer("reader") as reader:
        reader.messages("mine", "readers")
        assert code_of(writer.send(message("mine", b"own", "id-own"))) == Code.OK
        system = {one.body: one for one in reader.messages("mine", "readers")}[b"own"].system_properties
        assert system is not None and system.receipt_handle is not None
        own = system.receipt_handle
        theirs = f"{own.rpartition(' ')[0]} {place}"
        codes = []
        for handle in (theirs, own):
            asked = calls.PbForwardMessageToDeadLetterQueueRequest(
                topic_named("readers"), topic_named("mine"), handle, "id-own", 1, 1
            )
            codes.append(reader.call(asked, calls.PbForwardMessageToDeadLetterQueueResponse).status)
        assert (codes[0].code, "Topic:foreign (Sub)" in codes[0].message) == (Code.FORBIDDEN, True), codes
        assert codes[1].code == Code.OK, codes


def test_the_port_takes_tls_only(secured: Secured) -> None:
    host, _, port = secured.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        try:
            assert plain.recv(1) == b""
        except ConnectionResetError:
            pass


def test_tls_after_a_proxy_header(secured: Secured) -> None:
    """A load balancer passes TLS on, and says before it for whom: ALPN names h2, and a call is served."""
    context = ssl.create_default_context(cadata=secured.authority.decode())
    context.set_alpn_protocols(["h2"])
    fields = [(b":path", b"/apache.rocketmq.v2.MessagingService/QueryRoute"), (b"content-type", b"application/grpc")]
    with secured.peer("writer") as peer:
        fields += [(name.encode(), value.encode()) for name, value in peer.metadata]
        asked = prefixed(encode(calls.PbQueryRouteRequest(topic_named("mine"), peer.endpoints)))
    call = frames.frame(frames.HEADERS, 4, 1, b"\x83\x87" + b"".join(literal(*field) for field in fields))
    call += frames.frame(frames.DATA, frames.END_STREAM, 1, asked)
    for address in dict.fromkeys((secured.address, secured.broker)):
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, parse_int(port)), timeout=20) as plain:
            plain.sendall(b"PROXY TCP4 127.0.0.1 127.0.0.1 1000 2000\r\n")
            with context.wrap_socket(plain, server_hostname=host) as line:
                assert line.selected_alpn_protocol() == "h2"
                line.sendall(frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0) + call)
                found = b""
                while b"grpc-status" not in found:
                    more = line.recv(65_536)
                    assert more, found
                    found += more
        assert b"broker-a" in found, found


def wait_for_route(peer: Callable[[], GrpcPeer], code: int) -> None:
    """Wait until a route is answered with this code."""

    def answered() -> int:
        with peer() as one:
            return made(one, requests_about("mine", "readers", one)["QueryRoute"])

    wait_until(lambda: answered() == code, lambda: f"the answer is {answered()}")


def test_a_new_user_is_known_soon_and_one_who_is_gone_is_not(secured: Secured) -> None:
    """A proxy copies users every second."""
    secured.add_user("late")
    secured.run("acl", "grant", "late", "Topic:mine", "Pub")
    wait_for_route(lambda: secured.peer("late"), Code.OK)
    secured.run("user", "delete", "late", "--yes")
    wait_for_route(lambda: secured.peer("late"), Code.UNAUTHORIZED)


def test_brokers_ask_once_more_for_what_a_proxy_sends(cluster: Secured) -> None:
    """The copy of a proxy may be old. What it lets pass needs the rights of the client's user at the broker, too."""

    async def main() -> list[int]:
        inner = json.loads(inner_credentials(cluster))
        authority = ssl.create_default_context(cafile=cluster.data / "secure/ca.pem")
        backend = ClusterBackend(
            list, SystemClock().monotonic, lambda peer: RealNet(), tls=authority,
            sign=signer(inner["accessKey"], inner["secretKey"]),
        )  # fmt: skip
        codes = []
        for user, topic in (("writer", "mine"), ("writer", "foreign"), ("stranger", "mine"), ("nobody", "mine")):
            client = GrpcClient("id", ("127.0.0.1", 1), backend, "", 0.0, user)
            sent = message(topic, b"x", f"id-{next(_numbers)}")
            assert sent.system_properties is not None
            header = send_header(topic, 0, sent, sent.system_properties, 1)
            codes.append((await client.ask(cluster.broker, RequestCode.SEND_MESSAGE_V2, header, b"x")).code)
            await client.remoting.close()
        await backend.close()
        return codes

    refused = ResponseCode.NO_PERMISSION
    assert asyncio.run(main()) == [0, refused, refused, refused]


def inner_credentials(cluster: Secured) -> str:
    lines = (cluster.data / "secure" / "server.conf").read_text().splitlines()
    return next(line for line in lines if line.startswith("innerClient")).partition("=")[2].replace("\\", "")


def test_a_proxy_that_cannot_read_the_users_lets_nobody_in(cluster: Secured) -> None:
    wrong = json.dumps({"accessKey": "writer", "secretKey": secret_for("writer")})
    settings = ("-c", str(cluster.data / "secure" / "server.conf"), "-n", cluster.running.namesrv)
    with proxy_of(*settings, "--set", f"innerClientAuthenticationCredentials={wrong}") as address:
        locked = Secured(cluster.running, cluster.data, cluster.passwords, address)
        for user in ("writer", "both", None):
            with locked.peer(user) as peer:
                found = {name: made(peer, one) for name, one in requests_about("mine", "readers", peer).items()}
                assert set(found.values()) == {Code.INTERNAL_SERVER_ERROR}, found
                assert telemetry_code(peer, producer_settings("mine")) == Code.INTERNAL_SERVER_ERROR


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["authenticationEnabled=true"], "needs innerClientAuthenticationCredentials"),
        (['innerClientAuthenticationCredentials={"accessKey":"a","secretKey":"b"}'], "needs authenticationEnabled"),
    ],
)
def test_a_proxy_that_would_be_open_or_useless_does_not_start(settings: list[str], words: str) -> None:
    done = aerobee("proxy", "-n", "127.0.0.1:9", "--set", "grpcServerPort=0", *(f"--set={one}" for one in settings))
    assert done.returncode != 0 and words in done.stderr, done.stderr
