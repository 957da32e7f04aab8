"""docs/compat.md says of every request code what becomes of it; here a broker and a name server are asked."""

import asyncio
import re
from pathlib import Path

from aerobee.app.broker import BrokerNode
from aerobee.app.identity import unique_ids
from aerobee.app.namesrv import NamesrvNode
from aerobee.app.process import disk_of_this_loop
from aerobee.broker.config import BrokerConfig
from aerobee.namesrv.config import NamesrvConfig
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import ResponseCode, request_codes
from aerobee.protocol.command import request
from aerobee.protocol.signing import signer
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.entropy import SystemEntropy
from aerobee.store.config import StoreConfig
from aerobee.testing.accesskit import ROOT_USER, access_config

PAGE = Path(__file__).parents[2] / "docs" / "compat.md"
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (\w+) \| ([\w ]*) \| (.*) \|$", re.MULTILINE)
HOST = "127.0.0.1"


def rows() -> list[tuple[int, str, str, str, str]]:
    text = PAGE.read_text()
    return [(int(code), name, status, by.strip(), note.strip()) for code, name, status, by, note in ROW.findall(text)]


def test_the_page_lists_every_code_once_in_order() -> None:
    listed = [(code, name) for code, name, *_ in rows()]
    assert listed == sorted((code, name) for name, code in request_codes().items())


def test_the_page_is_well_formed() -> None:
    for code, _, status, by, note in rows():
        assert status in ("done", "pushed", "later", "refused", "unused"), code
        assert (by in ("broker", "name server", "both")) == (status == "done"), code
        assert note or status in ("done", "unused"), f"{code}: later or refused needs its reason"


def test_the_page_is_true(tmp_path: Path) -> None:
    served: dict[str, set[int]] = {"broker": set(), "name server": set()}
    refused = {code: note for code, _, status, _, note in rows() if status == "refused"}

    async def ask(client: RemotingClient, address: str, server: str) -> None:
        for code in request_codes().values():
            answer = await client.call(address, request(code, opaque=client.next_opaque()))
            if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                served[server].add(code)
            elif server == "broker" and code in refused:
                assert answer.remark == f"request type {code} not supported: {refused[code]}"
            else:
                assert answer.remark == f" request type {code} not supported"

    async def main() -> None:
        disk, clock, entropy = disk_of_this_loop(), SystemClock(), SystemEntropy()
        access = access_config(auth_config_path=str(tmp_path / "users"))
        namesrv = NamesrvNode(NamesrvConfig(listen_port=0), disk, clock, host=HOST, access=access)
        await namesrv.start()
        config = BrokerConfig(broker_name="b", broker_ip1=HOST, listen_port=0, namesrv_addr=f"{HOST}:{namesrv.port}")
        store = StoreConfig(
            store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=1 << 20, max_message_size=1 << 16
        )
        ids = unique_ids(HOST, clock, entropy)
        broker = BrokerNode(config, store, disk, clock, entropy, host=HOST, unique_id=ids, access=access)
        await broker.start()
        client = RemotingClient(sign=signer(*ROOT_USER))
        try:
            await ask(client, f"{HOST}:{broker.port}", "broker")
            await ask(client, f"{HOST}:{namesrv.port}", "name server")
        finally:
            await client.close()
            await broker.stop()
            await namesrv.stop()
            disk.close()

    asyncio.run(main())
    told = {server: {code for code, _, _, by, _ in rows() if by in (server, "both")} for server in served}
    assert told == served
