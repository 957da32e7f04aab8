"""The synchronous face: threads, forks, notebooks, interpreter exit, Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import aerobee
from aerobee.sync import Producer


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "aerobee-loop"]


@pytest.fixture
def cluster(served_cluster: Any) -> Any:
    return served_cluster


def test_the_same_calls_work_and_no_thread_is_left(cluster: Any) -> None:
    with Producer(cluster.namesrv, on_check=lambda half: True) as producer:
        receipt = producer.send("t", b"x", tags="T")
        assert receipt.broker == "a" and len(loop_threads()) == 1
        assert producer.send_nowait("t", b"x").result(60).broker == "a"
        producer.send_oneway("t", b"x")
        assert len(producer.send_batch([aerobee.Message("t", b"1"), aerobee.Message("t", b"2")])) == 2
        futures = [producer.send_nowait("t", b"x") for _ in range(50)]
        producer.flush()
        assert all(future.done() for future in futures)
        with producer.transaction("t", b"x") as tx:
            assert tx.message_id
        with pytest.raises(aerobee.InvalidArgumentError):
            producer.send("t", b"")
    assert not loop_threads()
    with pytest.raises(aerobee.ClientStateError, match="closed"):
        producer.send("t", b"x")


def test_two_clients_share_the_thread_and_the_last_ends_it(cluster: Any) -> None:
    one, two = Producer(cluster.namesrv).start(), Producer(cluster.namesrv).start()
    assert len(loop_threads()) == 1
    one.close()
    assert two.send("t", b"x").broker == "a"
    two.close()
    assert not loop_threads()


def test_many_threads_may_share_one(cluster: Any) -> None:
    with Producer(cluster.namesrv) as producer, ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda i: producer.send("t", b"%d" % i), range(100)))
    assert len({receipt.message_id for receipt in receipts}) == 100


def test_it_works_inside_a_running_loop(cluster: Any) -> None:
    async def cell() -> aerobee.SendReceipt:
        with Producer(cluster.namesrv) as producer:
            return producer.send("t", b"x")

    assert asyncio.run(cell()).broker == "a"


def test_a_callback_that_waits_for_its_own_client_is_told_so(cluster: Any) -> None:
    with Producer(cluster.namesrv) as producer:

        def selector(queues: Any, message: Any) -> Any:
            producer.send("t", b"inner")

        with pytest.raises(aerobee.SelectorError, match="from its own callback"):
            producer.send("t", b"x", selector=selector)


def script(text: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-c", textwrap.dedent(text), *arguments]


def test_a_forked_child_connects_anew_and_the_parent_goes_on(cluster: Any) -> None:
    text = """
        import os, sys
        from aerobee.sync import Producer
        producer = Producer(sys.argv[1]).start()
        producer.send("t", b"parent 1")
        child = os.fork()
        if child == 0:
            producer.send("t", b"child")
            producer.close()
            sys.exit(7)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        producer.send("t", b"parent 2")
        producer.close()
        print(status)
    """
    done = subprocess.run(script(text, cluster.namesrv), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")
    assert {stored.body for stored in cluster.brokers[0].stored} == {b"parent 1", b"child", b"parent 2"}
    ids = [stored.properties["UNIQ_KEY"] for stored in cluster.brokers[0].stored]
    assert len(set(ids)) == 3


def test_an_asyncio_producer_in_a_forked_child_says_what_to_do(cluster: Any) -> None:
    text = """
        import asyncio, os, sys, aerobee
        async def main():
            async with aerobee.Producer(sys.argv[1]) as producer:
                await producer.send("t", b"x")
                child = os.fork()
                if child == 0:
                    try:
                        await producer.send("t", b"x")
                    except aerobee.ClientStateError as error:
                        os._exit(7 if "fork" in str(error) else 8)
                    os._exit(9)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                await producer.send("t", b"x")
        asyncio.run(main())
    """
    done = subprocess.run(script(text, cluster.namesrv), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


def test_the_interpreter_ends_cleanly_when_nobody_closed(cluster: Any) -> None:
    text = """
        import sys
        from aerobee.sync import Producer
        producer = Producer(sys.argv[1]).start()
        future = producer.send_nowait("t", b"x")
    """
    done = subprocess.run(script(text, cluster.namesrv), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [stored.body for stored in cluster.brokers[0].stored] == [b"x"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_ends_a_wait_and_leaves_nothing(cluster: Any) -> None:
    cluster.brokers[0].answer_send = lambda channel, command, count: None
    text = """
        import sys
        from aerobee.sync import Producer
        with Producer(sys.argv[1], timeout=4) as producer:
            print("sending", flush=True)
            producer.send("t", b"x")
    """
    with subprocess.Popen(
        script(text, cluster.namesrv), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "sending\n"
        broker = cluster.brokers[0]
        asyncio.run_coroutine_threadsafe(broker.until(lambda: broker.stored), cluster.loop).result(60)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors


def test_importing_the_package_loads_no_client() -> None:
    text = """
        import sys, aerobee
        heavy = [name for name in sys.modules if name in ("asyncio", "ssl", "msgspec") or "aerobee.client" in name]
        print(heavy, "Producer" in dir(aerobee))
        aerobee.Producer, aerobee.Message
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("[] True\n", "")
