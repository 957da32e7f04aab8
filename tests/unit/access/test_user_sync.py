"""A follower takes the users and rights of its master; a name server refuses strangers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aerobee.access.config import AccessConfig
from aerobee.app.broker import BrokerNode
from aerobee.app.identity import unique_ids
from aerobee.app.namesrv import NamesrvNode
from aerobee.broker.config import BrokerConfig
from aerobee.broker.slave import UserSync
from aerobee.namesrv.config import NamesrvConfig
from aerobee.net.client import RemotingClient
from aerobee.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.signing import signer
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.entropy import SystemEntropy
from aerobee.store.config import BrokerRole
from aerobee.testing.accesskit import INNER_USER, ROOT_USER, access_config
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.secrets import secret_for
from aerobee.testing.storekit import small_config

HOST = "127.0.0.1"
_R = RequestCode


def namesrv(access: AccessConfig | None) -> NamesrvNode:
    config = NamesrvConfig(listen_port=0, kv_config_path="/store/kv.json")
    return NamesrvNode(config, RecordingDisk(seed=1), SystemClock(), host=HOST, access=access)


def broker(names: NamesrvNode, access: AccessConfig | None, name: str = "a", broker_id: int = 0) -> BrokerNode:
    clock, entropy = SystemClock(), SystemEntropy()
    role = BrokerRole.SLAVE if broker_id else BrokerRole.ASYNC_MASTER
    return BrokerNode(
        BrokerConfig(
            broker_name=name, broker_id=broker_id, broker_ip1=HOST, listen_port=0, namesrv_addr=f"{HOST}:{names.port}"
        ),
        small_config(segment=1 << 20, broker_role=role, total_replicas=2, ha_listen_port=0),
        RecordingDisk(seed=2), clock, entropy, host=HOST, unique_id=unique_ids(HOST, clock, entropy), access=access,
    )  # fmt: skip


async def ask(
    client: RemotingClient, port: int, code: int, ext: dict[str, str] | None = None, body: bytes = b""
) -> Command:
    return await client.call(f"{HOST}:{port}", request(code, body=body, opaque=client.next_opaque(), ext=ext or {}))


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


def test_namesrv_refuses_strangers() -> None:
    """Test 22."""

    async def main() -> None:
        names = namesrv(access_config())
        await names.start()
        node = broker(names, access_config())
        await node.start()
        stranger, root = RemotingClient(), RemotingClient(sign=signer(*ROOT_USER))
        try:
            before = (await ask(root, names.port, _R.GET_BROKER_CLUSTER_INFO)).body
            assert b'"a"' in before  # the broker registered with the inner credentials
            for code, ext in (
                (
                    _R.REGISTER_BROKER,
                    {"brokerName": "x", "brokerAddr": "1.2.3.4:1", "clusterName": "c", "brokerId": "0"},
                ),
                (_R.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"}),
                (_R.UPDATE_NAMESRV_CONFIG, {}),
                (_R.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}),
                (_R.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}),
                (_R.GET_BROKER_CLUSTER_INFO, {}),
                (_R.AUTH_LIST_USER, {}),
            ):
                answer = await ask(stranger, names.port, code, ext, b"enableTopicList=false\n")
                assert (answer.code, answer.body) == (16, b""), code
            assert (await ask(root, names.port, _R.GET_BROKER_CLUSTER_INFO)).body == before
            assert (await ask(root, names.port, _R.GET_KV_CONFIG, {"namespace": "n", "key": "k"})).code != 0
            assert (await ask(root, names.port, _R.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})).code == 0
            # The name server has users of its own.
            user = UserInfo(password=secret_for("bob")).encode()
            assert (await ask(root, names.port, _R.AUTH_CREATE_USER, {"username": "bob"}, user)).code == 0
            bob = RemotingClient(sign=signer("bob", secret_for("bob")))
            assert (await ask(bob, names.port, _R.GET_BROKER_CLUSTER_INFO)).code == 0
            assert (await ask(bob, names.port, _R.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})).code == 16
            assert (await ask(bob, node.port, _R.GET_BROKER_CONFIG)).code == 16  # unknown at the broker
            # Who may change settings may not become a broker: what the inner user has signed would be sent there.
            entry = PolicyEntryInfo(("All",), "Allow", "*")
            acl = AclInfo((PolicyInfo((entry,)),), "User:bob").encode()
            assert (await ask(root, names.port, _R.AUTH_CREATE_ACL, {"subject": "User:bob"}, acl)).code == 0
            assert (await ask(bob, names.port, _R.GET_NAMESRV_CONFIG)).code == 0
            for code in (_R.REGISTER_BROKER, _R.UNREGISTER_BROKER, _R.REGISTER_TOPIC_IN_NAMESRV, _R.BROKER_HEARTBEAT):
                ext = {"brokerName": "a", "brokerAddr": "1.2.3.4:1", "clusterName": "c", "brokerId": "0", "topic": "t"}
                answer = await ask(bob, names.port, code, ext)
                assert (answer.code, "only a Super user may" in (answer.remark or "")) == (16, True), (code, answer)
            assert (await ask(root, names.port, _R.GET_BROKER_CLUSTER_INFO)).body == before
            await bob.close()
        finally:
            await stranger.close()
            await root.close()
            await node.stop()
            await names.stop()

    run(main)


def test_a_broker_without_inner_credentials_cannot_register() -> None:
    async def main() -> None:
        names = namesrv(access_config())
        await names.start()
        node = broker(names, access_config(inner_client_authentication_credentials=""))
        await node.start()
        root = RemotingClient(sign=signer(*ROOT_USER))
        try:
            assert b'"a"' not in (await ask(root, names.port, _R.GET_BROKER_CLUSTER_INFO)).body
        finally:
            await root.close()
            await node.stop()
            await names.stop()

    run(main)


def test_a_slave_takes_the_users_of_its_master() -> None:
    async def main() -> None:
        names = namesrv(access_config())
        await names.start()
        master = broker(names, access_config())
        await master.start()
        slave = broker(names, access_config(), broker_id=1)
        await slave.start()
        root, bob = RemotingClient(sign=signer(*ROOT_USER)), RemotingClient(sign=signer("bob", secret_for("bob")))
        try:
            assert slave.role.master_address == f"{HOST}:{master.port}"
            assert master.role.master_address == ""
            user = UserInfo(password=secret_for("bob")).encode()
            assert (await ask(root, master.port, _R.AUTH_CREATE_USER, {"username": "bob"}, user)).code == 0
            acl = AclInfo((PolicyInfo((PolicyEntryInfo(("Get",), "Allow", "Cluster:DefaultCluster"),)),), "User:bob")
            assert (await ask(root, master.port, _R.AUTH_CREATE_ACL, {"subject": "User:bob"}, acl.encode())).code == 0
            assert slave.access is not None
            inner = RemotingClient(sign=signer(*INNER_USER))
            sync = UserSync(slave.access.files, inner, SystemClock(), lambda: slave.role.master_address)
            assert await sync.once()
            assert (await ask(bob, slave.port, _R.GET_BROKER_RUNTIME_INFO)).code == 0
            assert (await ask(root, master.port, _R.AUTH_DELETE_USER, {"username": "bob"})).code == 0
            assert await sync.once()
            assert (await ask(bob, slave.port, _R.GET_BROKER_RUNTIME_INFO)).code == 16
            # Whoever may not see the passwords copies nothing.
            other = RemotingClient(sign=signer("nobody", "x"))
            assert not await UserSync(slave.access.files, other, SystemClock(), lambda: sync._master()).once()
            assert "root" in slave.access.access.tables.users
            await inner.close()
            await other.close()
        finally:
            await root.close()
            await bob.close()
            await slave.stop()
            await master.stop()
            await names.stop()

    run(main)
