"""The command lines with which our mqadmin is compared with Apache's, and the cluster that they are about.

The same cases make the golden files (tests/golden/mqadmin) and run live (tests/interop/test_mqadmin_twins.py).
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from aerobee import ClientOptions, sync
from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue
from aerobee.runtime.clock import SystemClock
from aerobee.sync import Admin
from aerobee.testing.cluster import LocalCluster

_PATIENCE_S: Final = 60.0
COUNT: Final = 8


@dataclass(frozen=True, slots=True)
class Case:
    """One command line, its words separated by `|`. `again` restores the state before the second tool's turn.

    `loose` says that numbers depend on the moment. `kept` says whether there is a golden file: not where the text grows
    with our settings.
    """

    words: str
    again: tuple[str, ...] = ()
    loose: bool = False
    kept: bool = True

    @property
    def file(self) -> str:
        """Return the name of the golden file."""
        words = (re.sub(r"\W", "", word) for word in self.words.split("|"))
        return "-".join(word for word in words if word)[:60] + ".txt"


@dataclass(frozen=True, slots=True)
class CaseValues:
    """The values that the command lines name."""

    a: str
    name: str
    id: str
    off: str
    queue: int
    at: int

    def words(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CaseClients:
    """The clients that are connected, and the messages that the consumer saw."""

    consumer: sync.PushConsumer
    producer: sync.Producer
    seen: list[Message]


@contextlib.contextmanager
def prepare(cluster: LocalCluster) -> Iterator[CaseClients]:
    """Make topics, groups and messages; connect a consumer and a producer."""
    cluster.create_topic("Orders", 4)
    cluster.create_topic("Quiet", 1)
    first = cluster.broker_name(0)
    with Admin(cluster.namesrv) as admin:
        admin.groups.create("audit")
    with sync.LitePullConsumer(cluster.namesrv, group="audit") as puller:
        for index in range(COUNT):
            with sync.Producer(cluster.namesrv, group="once") as producer:
                queue = MessageQueue("Orders", first, index % 4)
                tags = "ab"[index % 2]
                producer.send("Orders", b"body %d" % index, tags=tags, keys=f"k{index}", queue=queue)
        puller.commit({queue: 1 for queue in puller.queues("Orders") if queue.broker_name == first})
    seen: list[Message] = []
    whole = threading.Event()
    # A client id that every machine and every run has.
    named: ClientOptions = {"client_ip": "10.1.2.3", "instance_name": "twin"}
    consumer = sync.PushConsumer(cluster.namesrv, group="billing", consume_from="first", **named)

    @consumer.listener("Orders")
    def handle(message: Message) -> None:
        seen.append(message)
        if len(seen) == COUNT:
            whole.set()

    with consumer, sync.Producer(cluster.namesrv, group="shop", **named) as producer:
        producer.send("Quiet", b"x")
        if not whole.wait(_PATIENCE_S):
            raise TimeoutError(f"the consumer saw {len(seen)} of {COUNT} messages")
        _wait_for_commits(cluster)
        yield CaseClients(consumer, producer, seen)


def _wait_for_commits(cluster: LocalCluster) -> None:
    """Wait until the consumer has saved its offsets, and its client has beaten at every broker."""
    clock = SystemClock()
    limit_s = clock.monotonic() + _PATIENCE_S
    pause = threading.Event()
    with Admin(cluster.namesrv) as admin:
        while clock.monotonic() < limit_s:
            queues = admin.groups.lag("billing", topic="Orders").queues
            if queues and all(queue.lag == 0 for queue in queues):
                return
            pause.wait(0.1)
    raise TimeoutError("the consumer has not saved its offsets")


def place_of(cluster: LocalCluster, prepared: CaseClients) -> CaseValues:
    """Return the values of the command lines for a cluster."""
    one = next(message for message in prepared.seen if message.keys == "k5")
    return CaseValues(
        cluster.broker_address(0), cluster.broker_name(0), one.message_id, one.offset_id, one.queue_id, one.queue_offset
    )


# Marks that two runs do not share. Digits become 0, so that columns keep their widths.
_MASKS: Final = (
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?",
    r"127\.0\.0\.1:\d+",
    r"\b[0-9A-F]{32,}\b",
    r"\b\d+(\.\d+){3}@\S+",
    r"lastUpdateTimestamp=\d+",
    r"__CRC32#=\d+",
    r"(born|store)Timestamp=\d+",
    r"\d{13}@",
    r"^\d+  +\S+ +V5_5_0 +\d{13}/\S+",
    r"TPS: [\d.]+",
    r"\d+ms",
)


def masked(text: str, *, loose: bool = False) -> str:
    """Return the text with masked marks. The values of brokerStatus are masked: they move between two requests."""
    lines = []
    for line in text.splitlines():
        for mask in _MASKS:
            line = re.sub(mask, lambda found: re.sub(r"[0-9A-Fa-f]", "0", found.group()), line)
        # The id of a message that the command itself sent: its length is that of the machine's address.
        line = re.sub(r"(SEND_OK +)\S+$", r"\1ID", line)
        state = re.match(r"^(\d\S+ +)?(\w+ +|\w{32,}): ", line)
        if state is not None:
            line = state.group()
        # Apache's pull consumer has a retry topic made, which is one topic more.
        line = re.sub(r" OK, \d+$", " OK, 0", line)
        if loose:
            line = re.sub(r"[ \t]+\d+(\.\d+)?(?=[ (]|$)", " 0", line)
        lines.append(line)
    return "\n".join(lines) + "\n"


CASES: Final = (
    Case("updateTopic|-c|C|-t|Made|-r|3|-w|2|-a|+message.type=FIFO"),
    Case("updateTopic|-b|{a}|-t|Made2|-o|true"),
    Case("updateTopic|-c|C|-t|Made3|-o|true"),
    Case("updateTopicPerm|-b|{a}|-t|Made|-p|4", ("updateTopic|-b|{a}|-t|Made|-r|3|-w|2|-p|6",)),
    Case("updateTopicPerm|-t|Made|-b|{a}|-p|4"),
    Case("updateTopicPerm|-b|127.0.0.1:1|-t|Made|-p|4"),
    Case("updateTopicPerm|-c|C|-t|Quiet|-p|6"),
    Case("topicList"),
    Case("topicList|-c"),
    Case("topicRoute|-t|Orders"),
    Case("topicRoute|-t|Orders|-l"),
    Case("topicStatus|-t|Orders"),
    Case("topicClusterList|-t|Orders"),
    Case("deleteTopic|-c|C|-t|Made", ("updateTopic|-c|C|-t|Made",)),
    Case("updateOrderConf|-t|Orders|-m|put|-v|x:4"),
    Case("updateOrderConf|-t|Orders|-m|get"),
    Case("updateOrderConf|-t|Orders|-m|delete", ("updateOrderConf|-t|Orders|-m|put|-v|x:4",)),
    Case("updateKvConfig|-s|NS|-k|key|-v|val"),
    Case("deleteKvConfig|-s|NS|-k|key", ("updateKvConfig|-s|NS|-k|key|-v|val",)),
    Case("updateSubGroup|-c|C|-g|ledger|-r|3|-q|2"),
    Case("updateSubGroup|-b|{a}|-g|ledger|-s|false|-d|true"),
    Case(
        'updateSubGroup|-b|{a}|-g|ledger|-p|{{"type":"EXPONENTIAL","exponentialRetryPolicy":'
        '{{"initial":5000,"max":7200000,"multiplier":2}}}}'
    ),
    Case("getConsumerConfig|-g|ledger"),
    Case("deleteSubGroup|-c|C|-g|ledger|-r|true", ("updateSubGroup|-c|C|-g|ledger",)),
    Case("deleteSubGroup|-b|{a}|-g|ledger2", ("updateSubGroup|-b|{a}|-g|ledger2",)),
    Case("consumerProgress|-g|billing"),
    Case("consumerProgress|-g|billing|-s|true"),
    Case("consumerProgress|-g|audit|-t|Orders"),
    Case("consumerProgress"),
    Case("consumerStatus|-g|billing"),
    Case("updateBrokerConfig|-b|{a}|-k|fileReservedTime|-v|49"),
    Case("updateBrokerConfig|-c|C|-k|fileReservedTime|-v|49"),
    Case("getBrokerConfig|-b|{a}", kept=False),
    Case("getBrokerConfig|-c|C", kept=False),
    Case("brokerStatus|-b|{a}", kept=False),
    Case("brokerStatus|-c|C", kept=False),
    Case("brokerConsumeStats|-b|{a}"),
    Case("brokerConsumeStats|-b|{a}|-l|1"),
    Case("cleanExpiredCQ|-b|{a}"),
    Case("cleanExpiredCQ|-c|C"),
    Case("deleteExpiredCommitLog|-b|{a}"),
    Case("deleteExpiredCommitLog|-c|NOPE"),
    Case("cleanUnusedTopic|-c|C"),
    Case("queryMsgById|-t|Orders|-i|{off}"),
    Case("queryMsgById|-t|Orders|-i|{id}|-f|UTF-8"),
    Case("queryMsgByUniqueKey|-t|Orders|-i|{id}"),
    Case("queryMsgByKey|-t|Orders|-k|k5"),
    Case("queryMsgByOffset|-t|Orders|-b|{name}|-i|{queue}|-o|{at}"),
    Case("queryMsgTraceById|-i|{id}"),
    Case("printMsg|-t|Orders"),
    Case("printMsg|-t|Orders|-s|a|-d|false"),
    Case("printMsg|-t|Orders|-b|0|-e|1"),
    Case("printMsgByQueue|-t|Orders|-a|{name}|-i|{queue}|-p|true|-d|true|-f|true"),
    Case("consumeMessage|-t|Orders|-c|3"),
    Case("consumeMessage|-t|Orders|-b|{name}|-i|{queue}|-o|1"),
    Case("consumeMessage|-t|Orders|-b|{name}|-i|{queue}|-o|99"),
    Case("consumeMessage|-t|Orders|-i|1"),
    Case("sendMessage|-t|Quiet|-p|hello|-k|greet|-c|tag|-b|{name}|-i|0"),
    Case("producerConnection|-g|shop|-t|Quiet"),
    Case("consumerConnection|-g|billing"),
    Case("producer|-b|{a}"),
    Case("resetOffsetByTime|-g|audit|-t|Orders|-s|0"),
    Case("resetOffsetByTime|-g|audit|-t|Orders|-s|1700000000000|-b|{a}|-q|1|-o|1"),
    Case("skipAccumulatedMessage|-g|audit|-t|Orders"),
    Case("cloneGroupOffset|-s|billing|-d|audit|-t|Orders"),
    Case("clusterList", loose=True),
    Case("clusterList|-m", loose=True),
    Case("clusterList|-c|NOPE"),
    Case("wipeWritePerm|-b|{name}", ("addWritePerm|-b|{name}",)),
    Case("addWritePerm|-b|{name}"),
    Case("getNamesrvConfig", kept=False),
    Case("updateNamesrvConfig|-k|orderMessageEnable|-v|true"),
    Case("statsAll|-t|Orders", loose=True),
    Case("statsAll", loose=True),
    Case("statsAll|-a", loose=True, kept=False),
    Case("haStatus|-b|{a}", loose=True),
    Case("haStatus|-c|C", loose=True),
    Case("brokerStatus|-c|NOPE"),
)
