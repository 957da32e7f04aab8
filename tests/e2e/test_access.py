"""Access control of running servers: every code, a right that is withdrawn, and secrets that must be nowhere."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import aerobee
from aerobee.access.brokertable import BROKER_ROWS
from aerobee.access.config import AccessConfig
from aerobee.access.directory import UserDirectory
from aerobee.access.door import Access
from aerobee.access.namesrvtable import NAMESRV_ROWS
from aerobee.access.refusal import AccessRefusedError
from aerobee.access.requests import ACCESS_ROWS
from aerobee.access.users import User, UserStatus
from aerobee.access.verdicts import AccessVerdict
from aerobee.net.client import RemotingClient, Sign
from aerobee.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from aerobee.protocol.codes import RequestCode, ResponseCode, request_codes
from aerobee.protocol.command import Command, encode_command, request
from aerobee.protocol.connection import Connection
from aerobee.protocol.signing import signer
from aerobee.sync import Admin
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.secrets import secret_for

_R = RequestCode
ROOT = ("root", secret_for("root"))
INNER = ("inner", secret_for("inner"))
BOB = ("bob", secret_for("bob"))
REFUSED = ResponseCode.NO_PERMISSION


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER[0], "secretKey": INNER[1]}),
        "authConfigPath": str(tmp_path / "users"),
        "auditLogPath": str(tmp_path / "audit.log"),
        "metricsExporterType": "PROM",
        "proxyProtocolTrustedAddresses": "127.0.0.1",
    }
    with LocalCluster(settings=settings) as found:
        yield found


class Asker:
    """Signed requests to one server."""

    def __init__(self, address: str, sign: Sign | None) -> None:
        self.address = address
        self.client = RemotingClient(sign=sign)

    async def __call__(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
        asked = request(code, body=body, opaque=self.client.next_opaque(), ext=ext or {})
        return await self.client.call(self.address, asked, 10)


async def with_bob(root: Asker) -> None:
    assert (await root(_R.AUTH_CREATE_USER, {"username": BOB[0]}, UserInfo(password=BOB[1]).encode())).code == 0


async def rule(root: Asker, resource: str, *actions: str, decision: str = "Allow") -> None:
    info = AclInfo((PolicyInfo((PolicyEntryInfo(actions, decision, resource),)),), "User:bob")
    assert (await root(_R.AUTH_CREATE_ACL, {"subject": "User:bob"}, info.encode())).code == 0


# Codes that end, fence or delete something are not sent with the right to do it.
_NOT_WITH_RIGHT = {_R.AUTH_DELETE_USER, _R.AUTH_UPDATE_USER}


# Fields that name something in each request, so that what is asked for is known.
FIELDS = {
    "topic": "t", "b": "t", "consumerGroup": "g", "group": "g", "groupName": "g", "srcGroup": "g", "destGroup": "g",
    "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "subVersion": "0",
    "suspendTimeoutMillis": "0", "subscription": "*", "clientID": "c", "clientId": "c", "parentTopic": "t",
    "compareGroup": "g", "queryId": "q", "producerGroup": "p", "tranStateTableOffset": "0", "commitOrRollback": "8",
    "delayLevel": "0", "originTopic": "t", "recallHandle": "none", "key": "k", "maxNum": "1", "beginTimestamp": "0",
    "endTimestamp": "9",
}  # fmt: skip
BODIES = {
    _R.LOCK_BATCH_MQ: b'{"consumerGroup":"g","clientId":"c","mqSet":[]}',
    _R.UNLOCK_BATCH_MQ: b'{"consumerGroup":"g","clientId":"c","mqSet":[]}',
    _R.CHECK_CLIENT_CONFIG: b'{"clientId":"c","group":"g"}',
    _R.QUERY_ASSIGNMENT: b'{"topic":"t","consumerGroup":"g","clientId":"c"}',
    _R.SET_MESSAGE_REQUEST_MODE: b'{"topic":"t","consumerGroup":"g"}',
    _R.UPDATE_AND_CREATE_TOPIC_LIST: b'{"topicConfigList":[{"topicName":"t"}]}',
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: b'{"groupName":"g"}',
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: b'{"groupConfigList":[{"groupName":"g"}]}',
    _R.LITE_SUBSCRIPTION_CTL: b'{"subscriptionSet":[{"group":"g","topic":"t"}]}',
    _R.BATCH_ACK_MESSAGE: b'{"brokerName":"b","acks":[{"c":"g","t":"t","r":"0","so":0,"q":0,"rq":0,"pt":0,"it":0,'
    b'"bn":"b","b":"AA=="}]}',
}
# What every user may ask: the lists of topics and groups that he may see (none), a heartbeat without groups, and what
# clients ask a name server before they know anything.
_BROKER_FOR_ALL = {_R.GET_ALL_TOPIC_CONFIG, _R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _R.HEART_BEAT}
_NAMESRV_FOR_ALL = {
    _R.GET_KV_CONFIG, _R.GET_BROKER_CLUSTER_INFO, _R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, _R.GET_KVLIST_BY_NAMESPACE,
    _R.GET_TOPICS_BY_CLUSTER, _R.GET_SYSTEM_TOPIC_LIST_FROM_NS, _R.GET_UNIT_TOPIC_LIST, _R.GET_HAS_UNIT_SUB_TOPIC_LIST,
    _R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
}  # fmt: skip
_CLAIM = re.compile(r"(Topic|Group|Cluster):(\S*) \(([A-Za-z|]+)\)")


async def strangers_answers(address: str, codes: list[int], sign: Sign | None, sources: Iterator[str]) -> list[Command]:
    """Ask all of this with wrong credentials. Ten wrong ones close a connection, so each eight have an address."""
    host, _, port = address.rpartition(":")
    found: list[Command] = []
    for at in range(0, len(codes), 8):
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(next(sources), 0))
        machine = Connection()
        part = codes[at : at + 8]
        for opaque, code in enumerate(part):
            command = request(code, body=BODIES.get(code, b""), opaque=opaque, ext=dict(FIELDS))
            if sign is not None:
                sign(command)
            writer.write(encode_command(command))
        answers: list[Command] = []
        async with asyncio.timeout(20):
            while len(answers) < len(part):
                data = await reader.read(1 << 16)
                assert data, f"closed after {len(answers)} answers"
                answers += machine.receive_data(data)
        writer.close()
        await writer.wait_closed()
        found += sorted(answers, key=lambda one: one.opaque)
    return found


async def rights_needed(
    user: Asker, root: Asker, code: int, ext: dict[str, str]
) -> tuple[dict[str, list[str]], Command]:
    """Give a user what each refusal names, one right after the other. Return the rights and the answer to who has
    them; a refusal if only a Super user may."""
    rights: dict[str, list[str]] = {}
    for _ in range(6):
        answer = await user(code, dict(ext), BODIES.get(code, b""))
        if answer.code != REFUSED or "no permission to access" not in (answer.remark or ""):
            break
        claim = _CLAIM.search(answer.remark or "")
        assert claim is not None and (answer.remark or "").startswith("User:bob has no permission to access "), answer
        if claim[3] == "Super":
            break
        resource, action = f"{claim[1]}:{claim[2] or '*'}", claim[3].partition("|")[0]
        actions = rights.setdefault(resource, [])
        assert action not in actions, (code, answer)
        actions.append(action)
        await rule(root, resource, *actions)
    if rights:
        assert (await root(_R.AUTH_DELETE_ACL, {"subject": "User:bob"})).code == 0
    return rights, answer


def test_every_code_of_running_servers(cluster: LocalCluster) -> None:
    """No credentials, an unknown user and a wrong key are refused in the same words. A user without rights is refused
    in words that name user, resource and action. With the rights that these words name, and no others, he passes.
    """
    sources = (f"127.{high}.{low}.7" for high in range(1, 200) for low in range(1, 200))

    async def main() -> None:
        async with aerobee.Producer(cluster.namesrv, access_key=ROOT[0], secret_key=ROOT[1]) as producer:
            receipt = await producer.send("t", b"secret words")
        place = str(int(receipt.offset_id[16:], 16))
        ext = {**FIELDS, "offset": place, "commitLogOffset": place, "msgId": receipt.offset_id}
        for address, rows, for_all in (
            (cluster.broker_address(0), {**BROKER_ROWS, **ACCESS_ROWS}, _BROKER_FOR_ALL),
            (cluster.namesrv, {**NAMESRV_ROWS, **ACCESS_ROWS}, _NAMESRV_FOR_ALL),
        ):
            root = Asker(address, signer(*ROOT))
            # The servers of this test share the file of users: the second one may know bob already.
            if (await root(_R.AUTH_GET_USER, {"username": BOB[0]})).body == b"":
                await with_bob(root)
            codes = sorted({*request_codes().values(), *rows})
            words = set()
            for sign in (None, signer("nobody", "wrong"), signer(ROOT[0], "wrong"), signer(BOB[0], ROOT[1])):
                for code, answer in zip(codes, await strangers_answers(address, codes, sign, sources), strict=True):
                    assert (answer.code, answer.body) == (REFUSED, b""), (address, code, answer)
                    words.add(answer.remark)
            assert len(words) == 1, words
            bob = Asker(address, signer(*BOB))
            free, only_super, unserved = set(), set(), set()
            for code in codes:
                rights, answer = await rights_needed(bob, root, code, ext)
                refused = answer.code == REFUSED and "no permission to access" in (answer.remark or "")
                assert code in rows or answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, (address, code)
                if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    # What a server does not serve it does not serve to Super users either.
                    unserved.add(code)
                    asked = await root(code, dict(ext), BODIES.get(code, b""))
                    assert asked.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, (address, code)
                elif refused:
                    assert "(Super)" in (answer.remark or ""), (address, code, answer)
                    only_super.add(code)
                elif not rights:
                    free.add(code)
                    assert b"secret words" not in answer.body
            assert free == for_all, (address, free ^ for_all)
            assert only_super == {code for code, row in rows.items() if row.super_only} - unserved, address
            await root.client.close()
            await bob.client.close()

    asyncio.run(main())


def proxied(source: str, version: int) -> bytes:
    """Return the header of a load balancer in front of a client at this address. Its versions are 1 and 2."""
    address = ipaddress.ip_address(source)
    here = ipaddress.ip_address("::1" if address.version == 6 else "127.0.0.1")
    if version == 1:
        return f"PROXY TCP{address.version} {address} {here} 4711 9\r\n".encode()
    packed = address.packed + here.packed + (4711).to_bytes(2, "big") + (9).to_bytes(2, "big")
    family = 0x21 if address.version == 6 else 0x11
    return b"\r\n\r\n\0\r\nQUIT\n" + bytes((0x21, family)) + len(packed).to_bytes(2, "big") + packed


def test_source_addresses_are_those_of_proxy_headers(cluster: LocalCluster) -> None:
    """The rest of test 13: policies see the address that a balancer tells, if the balancer is one of ours."""

    async def asked(local: str, header: bytes) -> Command:
        host, _, port = cluster.broker_address(0).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(local, 0))
        command = request(_R.GET_MAX_OFFSET, opaque=1, ext={"topic": "t", "queueId": "0"})
        signer(*BOB)(command)
        writer.write(header + encode_command(command))
        machine, found = Connection(), []
        async with asyncio.timeout(20):
            while not found:
                data = await reader.read(1 << 16)
                assert data, "closed"
                found = machine.receive_data(data)
        writer.close()
        await writer.wait_closed()
        return found[0]

    async def main() -> None:
        root = Asker(cluster.broker_address(0), signer(*ROOT))
        await with_bob(root)
        entry = PolicyEntryInfo(
            ("Get",),
            "Allow",
            "Topic:t",
            ("10.9.0.0/16", "[2001:db8::]/64", "[::1]", "198.51.100.7/32", "2001:db8:9::1/128", "127.0.0.9"),
        )
        info = AclInfo((PolicyInfo((entry,)),), "User:bob")
        assert (await root(_R.AUTH_CREATE_ACL, {"subject": "User:bob"}, info.encode())).code == 0
        for source, allowed in (
            ("10.9.8.7", True), ("10.8.0.1", False), ("::ffff:10.9.8.7", True), ("::ffff:10.8.0.1", False),
            ("2001:db8::7", True), ("2001:db8:1::7", False),
            ("::1", True), ("198.51.100.7", True), ("198.51.100.6", False), ("2001:db8:9::1", True),
            ("2001:db8:9::2", False),
        ):  # fmt: skip
            for version in (1, 2):
                answer = await asked("127.0.0.1", proxied(source, version))
                told = f"from {ipaddress.ip_address(source)!s}" in (answer.remark or "")
                assert (answer.code == REFUSED) is not allowed, (source, version, answer)
                assert allowed or told, (source, answer)
            # Of a balancer that nobody named, the header is passed over.
            answer = await asked("127.0.0.8", proxied(source, 1))
            assert answer.code == REFUSED and "from 127.0.0.8" in (answer.remark or ""), answer
            assert (await asked("127.0.0.9", proxied(source, 2))).code != REFUSED
        assert (await asked("127.0.0.1", b"")).code == REFUSED
        await root.client.close()

    asyncio.run(main())


def test_revocation_next_frame(cluster: LocalCluster) -> None:
    """Test 17: a right that is withdrawn while a producer runs ends its sends within a second."""

    async def main() -> None:
        root = Asker(cluster.broker_address(0), signer(*ROOT))
        await with_bob(root)
        await rule(root, "Topic:orders", "Pub", "Sub")
        await asyncio.sleep(1.5)  # the name server reads the files of this test once a second
        outcomes: list[tuple[float, bool]] = []
        enough = asyncio.Event()
        async with aerobee.Producer(cluster.namesrv, access_key=ROOT[0], secret_key=ROOT[1]) as producer:
            await producer.send("orders", b"the first one makes the topic")
        async with aerobee.Producer(cluster.namesrv, access_key=BOB[0], secret_key=BOB[1]) as producer:

            async def send_on() -> None:
                while True:
                    try:
                        await producer.send("orders", b"x", timeout=5)
                        outcomes.append((time.monotonic(), True))
                        if len(outcomes) >= 20:
                            enough.set()
                    except aerobee.NoPermissionError:
                        outcomes.append((time.monotonic(), False))
                        return

            running = asyncio.create_task(send_on())
            async with asyncio.timeout(30):
                await enough.wait()
            await rule(root, "Topic:orders", "Pub", "Sub", decision="Deny")
            denied_s = time.monotonic()
            async with asyncio.timeout(10):
                await running
        # The answer to the change came after it was in force: at most the send under way was good.
        assert sum(good and at > denied_s + 0.5 for at, good in outcomes) == 0
        assert outcomes[-1][0] - denied_s < 1.0
        await root.client.close()

    asyncio.run(main())


def test_a_right_is_withdrawn_on_all_brokers() -> None:
    """Test 17 on several brokers: within five seconds of the change none of them takes a send."""
    with LocalCluster(3, secure=True) as cluster:
        cluster.create_topic("orders", 1)
        bob = cluster.add_user("bob", {"Topic:orders": "Pub"})

        def deny() -> float:
            with Admin(cluster.namesrv, **cluster.client_options) as admin:
                admin.rights.grant("bob", "Topic:orders", ["Pub"], deny=True)
            return time.monotonic()

        async def main() -> None:
            async with aerobee.Producer(cluster.namesrv, retries=0, timeout=10, **bob) as producer:
                brokers = {(await producer.send("orders", b"x")).queue.broker_name for _ in range(12)}
                assert len(brokers) == 3
                since_s = await asyncio.to_thread(deny)
                refused = 0
                for _ in range(12):
                    try:
                        await producer.send("orders", b"x")
                    except aerobee.NoPermissionError:
                        refused += 1
                assert refused == 12
                assert time.monotonic() - since_s < 5

        asyncio.run(main())


def test_marker_secret_is_nowhere(cluster: LocalCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Test 15: after every kind of request, secrets are in no log, answer, setting or file but users.json."""
    seen: list[bytes] = []
    caplog.set_level(logging.DEBUG)
    logging.getLogger("aerobee").propagate = True

    async def main() -> None:
        root = Asker(cluster.broker_address(0), signer(*ROOT))
        await with_bob(root)
        await rule(root, "Topic:t", "Pub")
        names = Asker(cluster.namesrv, signer(*ROOT))
        bob = Asker(cluster.broker_address(0), signer(*BOB))
        for asker in (root, names, bob):
            for code in sorted(request_codes().values()):
                if code in (_R.AUTH_GET_USER, _R.AUTH_LIST_USER, *_NOT_WITH_RIGHT):
                    continue
                answer = await asker(code, {"topic": "t", "username": "x", "subject": "User:bob"})
                seen.append(answer.body + (answer.remark or "").encode() + repr(answer.ext).encode())
        for asker in (root, names, bob):
            await asker.client.close()
        async with aerobee.Producer(cluster.namesrv, access_key=ROOT[0], secret_key=ROOT[1]) as producer:
            await producer.send("t", b"words")
            seen.append(repr(producer).encode())

    asyncio.run(main())
    with urllib.request.urlopen(f"http://{cluster.metrics_address(0)}/metrics", timeout=20) as page:
        seen.append(page.read())
    assert b"rocketmq_" in seen[-1]
    markers = [pair[1].encode() for pair in (ROOT, INNER, BOB)]
    for marker in markers[:2]:
        assert not any(marker in one for one in seen)
    text = caplog.text.encode()
    holders = set()
    for path in tmp_path.rglob("*"):
        if path.is_file() and any(marker in path.read_bytes() for marker in markers):
            holders.add(path.name)
    assert holders == {"users.json"}
    assert not any(marker in text for marker in markers)
    assert (tmp_path / "audit.log").stat().st_size > 0


def test_unknown_user_and_wrong_key_take_the_same_time() -> None:
    """The second half of test 4: nobody learns from the time of a refusal whether a user exists."""

    class Deaf:
        def refused_login(self, name: str, source: str, code: object, reason: str) -> None: ...
        def refused(self, user: User, source: str, code: object, verdict: AccessVerdict) -> None: ...

    access = Access(AccessConfig(authentication_enabled=True), "c", Deaf())
    off = User("off", "s" * 20, status=UserStatus.DISABLE)
    access.take(UserDirectory({"bob": User("bob", "s" * 20), "off": off}))
    best: dict[str, float] = {}
    for _ in range(30):
        for name in ("bob", "off", "none"):
            fields = {"a": "P", "b": "orders", "AccessKey": name, "Signature": "A" * 27 + "="}
            began = time.process_time()
            for _ in range(300):
                with contextlib.suppress(AccessRefusedError):
                    access.authenticate(fields, b"x" * 128, 513, "10.0.0.1")
            best[name] = min(best.get(name, 9.0), time.process_time() - began)
    assert max(best.values()) <= 1.2 * min(best.values()), best
