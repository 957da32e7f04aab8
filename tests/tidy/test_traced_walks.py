"""A send and a pull pass through few files: a profiler watches both on a broker in memory.

The walks of docs/ARCHITECTURE.md leave out small helpers. Here every file counts that has a function that runs.
"""

import os
import subprocess
import sys

import pytest

from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, encode_command, request
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.testing.brokerkit import BrokerKit, run_broker, settle
from aerobee.testing.sendkit import send

FILES_MAX = {"send": 20, "pull": 18}
# The seams of tests stand here for those of the operating system.
OUTSIDE = ("/aerobee/testing/", "/aerobee/runtime/")
SUSPEND_AND_SUBSCRIPTION = 6


def pull() -> Command:
    header = PullMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=SUSPEND_AND_SUBSCRIPTION,
        commit_offset=0, suspend_timeout_millis=15_000, subscription="*", sub_version=1, expression_type="TAG",
    )  # fmt: skip
    return request(RequestCode.PULL_MESSAGE, header, opaque=7)


def print_files(command: Command) -> None:
    """Print the files through which a request passes that came several times before."""
    files: set[str] = set()

    def watch(frame: object, event: str, argument: object) -> None:
        file = getattr(getattr(frame, "f_code", None), "co_filename", "")
        if event == "call" and "/src/aerobee/" in file and not any(room in file for room in OUTSIDE):
            files.add(file.partition("/src/")[2])

    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        client = kit.connect()
        assert (await client.call(send())).code == 0
        for _ in range(3):
            assert (await client.call(command)).code == 0
        data = encode_command(command)
        sys.setprofile(watch)
        client.channel.data_received(data)
        await settle()
        sys.setprofile(None)
        assert [answer.code for answer in await client.answers()] == [0]

    run_broker(main)
    print("\n".join(sorted(files)))


@pytest.mark.parametrize("walk", FILES_MAX)
def test_a_request_passes_through_few_files(walk: str) -> None:
    # The profiler does not see compiled functions.
    run = subprocess.run(
        [sys.executable, __file__, walk],
        env={**os.environ, "AEROBEE_PURE": "1"}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    files = run.stdout.split()
    assert 10 < len(files) <= FILES_MAX[walk], files


if __name__ == "__main__":
    print_files({"send": send, "pull": pull}[sys.argv[1]]())
