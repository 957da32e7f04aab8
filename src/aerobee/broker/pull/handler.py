"""PULL_MESSAGE and LITE_PULL_MESSAGE: answered now, held until a message comes, or read cold and answered later.

A held request is run again when it is woken, and is not held a second time. RocketMQ: PullMessageProcessor,
DefaultPullMessageResultHandler, PullRequestHoldService.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from aerobee.broker.flowcontrol import FlowControl, Work
from aerobee.broker.log import LongPolls
from aerobee.broker.membership import Clients, ConsumerFilters, Subscription
from aerobee.broker.offsets import ConsumerOffsets
from aerobee.broker.pull.rules import (
    FLAG_SUBSCRIPTION,
    PullContext,
    PullRules,
    answer_code,
    check_pull,
    commits_offset,
    suggested_broker,
    suspend_ms,
)
from aerobee.broker.refusal import Refusal
from aerobee.broker.stats import BrokerStats
from aerobee.broker.topics import Catalog
from aerobee.errors import AerobeeError, StoreError
from aerobee.hot.wire.frame import CODEC_JSON, Frame
from aerobee.hot.wire.pull import PullFields, scan_json_pull
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.topic import TopicConfig
from aerobee.net.channel import Channel
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, decode_command, encode_command
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.pulling import pull_answer, pull_answer_form, pull_fields, read_pull
from aerobee.runtime.seams import Clock
from aerobee.store.messagestore import MessageStore
from aerobee.store.reads import GetMessageStatus, GetResult
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_LITE_PULL_MESSAGE: Final[int] = RequestCode.LITE_PULL_MESSAGE
_PULL: Final = Work.PULL
_LITE_PULL: Final = Work.LITE_PULL


class _Pull:
    """One request on its way: what it asked, and what was found out about it."""

    def __init__(
        self,
        channel: Channel,
        opaque: int,
        codec: int,
        header: PullFields,
        tags: frozenset[int] | None,
        group: SubscriptionGroupConfig,
        topic: TopicConfig,
        accept: Callable[[bytes], bool] | None,
    ) -> None:
        self.channel = channel
        self.opaque = opaque
        self.codec = codec
        self.header = header
        # None accepts every tag.
        self.tags = tags
        self.group = group
        self.topic = topic
        # Decides by a record's properties, where the subscription is not by tags.
        self.accept = accept
        # False once the pull was held.
        self.may_suspend = True
        # Until when the pull is held.
        self.held_until_s = 0.0
        # When the request was read.
        self.began_s = channel.last_read_s


class PullHandler:
    """The handler of pulls. Arrivals calls `wake` for those that are held."""

    def __init__(  # noqa: PLR0913, PLR0917 (each is asked by every pull)
        self,
        rules: PullRules,
        store: MessageStore,
        catalog: Catalog,
        clients: Clients,
        filters: ConsumerFilters,
        offsets: ConsumerOffsets,
        polls: LongPolls[_Pull],
        stats: BrokerStats,
        flow: FlowControl,
        clock: Clock,
    ) -> None:
        self.rules = rules
        self._store = store
        self._catalog = catalog
        self._clients = clients
        self._offsets = offsets
        self._filters = filters
        self._polls = polls
        self._stats = stats
        self._flow = flow
        self._clock = clock
        self._form = pull_answer_form()
        # For a slave: whether the group has a master that clients can go back to.
        self.master_alive: Callable[[], bool] = lambda: True
        self._errors = RateLimitedLog(get_log("broker.pull"), clock)

    def _bytes_max_of(self, asked: int | None) -> int:
        """Return how many bytes one answer may hold: it is one frame. RocketMQ: isTheBatchFull."""
        bytes_max = self._store.config.max_transfer_bytes_on_message_in_memory
        return min(asked, bytes_max) if asked and asked > 0 else bytes_max

    def on_frame(self, channel: Channel, frame: Frame) -> None:
        """Serve a pull as it came. A header of the usual form is decoded in one step, without a dict."""
        header = scan_json_pull(frame)
        if header is None:
            header = read_pull(frame)
        if header is None:
            answer = self.on_pull(channel, decode_command(frame))
        else:
            answer = self._pull(channel, frame.code, frame.opaque, frame.codec, header)
        if answer is not None and not frame.flag & 2:
            channel.send(answer)

    def on_pull(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(PullMessageRequestHeader, command)
        return self._pull(channel, command.code, command.opaque, command.codec, pull_fields(header))

    def _pull(self, channel: Channel, code: int, opaque: int, codec: int, header: PullFields) -> Command | None:
        lite = code == _LITE_PULL_MESSAGE
        now_s = channel.last_read_s
        busy = self._flow.busy(_LITE_PULL if lite else _PULL, now_s)
        if busy is not None:
            return Command(ResponseCode.SYSTEM_BUSY, opaque, 1, remark=busy, codec=codec)
        group, topic = self._catalog.group(header.consumer_group), self._catalog.find(header.topic)
        context = PullContext(
            group,
            topic,
            self._clients,
            channel.id,
            channel.remote_address,
            self._catalog.forbids(header.consumer_group, header.topic),
            lite,
            self._filters,
        )
        found = check_pull(self.rules, header, context, now_s)
        if isinstance(found, Refusal):
            answer = Command(found.code, opaque, 1, remark=found.remark, codec=codec)
            if found.forbidden_type is not None:
                answer.ext["forbiddenType"] = str(found.forbidden_type)
            return answer
        assert group is not None
        assert topic is not None
        accept = None if found.by_tags else self._acceptor(found, header)
        self._run(_Pull(channel, opaque, codec, header, _tags(found), group, topic, accept))
        return None

    def _acceptor(self, found: Subscription, header: PullFields) -> Callable[[bytes], bool] | None:
        return self._filters.acceptor(
            found,
            header.consumer_group,
            carried=bool(header.sys_flag & FLAG_SUBSCRIPTION),
            support_retry=self.rules.filter_support_retry,
        )

    # -- reading

    def _run(self, pull: _Pull) -> None:
        header = pull.header
        reset = self._offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if reset is not None:
            self._answer_empty(pull, GetMessageStatus.OFFSET_RESET, reset)
            return
        result = self._store.get_messages(
            header.topic.encode(),
            header.queue_id,
            header.queue_offset,
            max(1, min(header.max_msg_nums, self._store.config.max_transfer_count_on_message_in_memory)),
            self._bytes_max_of(header.max_msg_bytes),
            pull.tags,
            pull.accept,
        )
        if result.status is GetMessageStatus.COLD:
            self._store.fetch(result, lambda outcome: self._fetched(pull, outcome))
        else:
            self._finish(pull, result)

    def _fetched(self, pull: _Pull, outcome: GetResult | StoreError) -> None:
        if isinstance(outcome, StoreError):
            self._failed(pull, f"the log cannot be read: {outcome.message}")
        else:
            self._finish(pull, outcome)

    def _failed(self, pull: _Pull, remark: str) -> None:
        if not pull.channel.closed:
            answer = Command(ResponseCode.SYSTEM_ERROR, pull.opaque, 1, remark=remark, codec=pull.codec)
            pull.channel.write(encode_command(answer))

    def _finish(self, pull: _Pull, result: GetResult) -> None:
        header = pull.header
        if commits_offset(header, may_suspend=pull.may_suspend):
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        if result.status is GetMessageStatus.FOUND:
            self._answer_found(pull, result)
            return
        status = result.status
        code = answer_code(status, header.queue_offset)
        hold_ms = suspend_ms(self.rules, code, header, may_suspend=pull.may_suspend)
        if hold_ms:
            if not self._hold(pull, hold_ms / 1000):
                self._answer_busy(pull)
            return
        if pull.accept is not None and result.filtered and self._hold_again(pull, result):
            return
        self._answer_empty(pull, status, result.next_begin_offset, result.min_offset, result.max_offset)

    def _hold_again(self, pull: _Pull, result: GetResult) -> bool:
        """Hold a pull again, behind messages that woke it and that its filter does not take."""
        header, now_s = pull.header, self._clock.monotonic()
        offset = result.next_begin_offset
        if now_s >= pull.held_until_s or offset != self._store.max_offset(header.topic.encode(), header.queue_id):
            return False
        header.queue_offset = offset
        return self._hold(pull, pull.held_until_s - now_s)

    def _hold(self, pull: _Pull, time_s: float) -> bool:
        pull.may_suspend = False
        # The text was parsed already. In thousands of held pulls it would only take memory.
        pull.header.subscription = ""
        now_s = self._clock.monotonic()
        pull.held_until_s = now_s + time_s
        return self._polls.suspend(
            pull.header.topic.encode(),
            pull.header.queue_id,
            pull.header.queue_offset,
            pull,
            channel=pull.channel.id,
            now_s=now_s,
            timeout_s=time_s,
            tag_codes=pull.tags,
        )

    # -- answering

    def _answer_found(self, pull: _Pull, result: GetResult) -> None:
        header = pull.header
        self._offsets.note_pulled(header.consumer_group, header.topic, header.queue_id, result.next_begin_offset)
        if not self._stats.get_again(header.consumer_group, header.topic, result.count, result.size):
            self._stats.get(header.consumer_group, header.topic, result.count, result.size, self._clock.now_ms())
        channel = pull.channel
        head = self._found_head(pull, result)
        for piece in result.answer(head):
            channel.write(piece)

    def _answer_busy(self, pull: _Pull) -> None:
        """Answer busy, because too many pulls are held. After "no message" the client would ask again at once."""
        remark = "[TOO_MANY_HELD_PULLS]more pulls wait here than heldPullsMax or heldPullsPerConnectionMax allows"
        busy = Command(ResponseCode.SYSTEM_BUSY, pull.opaque, 1, remark=remark, codec=pull.codec)
        pull.channel.write(encode_command(busy))

    def _answer_empty(
        self, pull: _Pull, status: str, next_offset: int, low: int | None = None, high: int | None = None
    ) -> None:
        header = pull.header
        if low is None or high is None:
            topic = header.topic.encode()
            low = self._store.min_offset(topic, header.queue_id)
            high = self._store.max_offset(topic, header.queue_id)
        code = answer_code(status, header.queue_offset)
        pull.channel.write(self._head(pull, code, status, (next_offset, low, high), 0))

    def _found_head(self, pull: _Pull, result: GetResult) -> bytes:
        topic_flag, group_flag = pull.topic.topic_sys_flag, pull.group.group_sys_flag
        if pull.codec != CODEC_JSON or topic_flag < 0 or group_flag < 0:
            return self._head(pull, ResponseCode.SUCCESS, "FOUND", _offsets_of(result), result.size, result.fall_behind)
        return self._form.found(
            pull.opaque,
            self._suggested(pull, result.fall_behind),
            topic_flag,
            group_flag,
            result.next_begin_offset,
            result.min_offset,
            result.max_offset,
            result.size,
        )

    def _suggested(self, pull: _Pull, behind: int) -> int:
        """Return the id of the broker to pull from next, for a reader that is so many bytes behind the log's end."""
        rules = self.rules
        if not rules.slave_read and rules.broker_id == 0:
            return 0
        far = behind > self._store.reads.near_bytes
        return suggested_broker(rules, pull.group, far_behind=far, master_alive=self.master_alive())

    def _head(
        self, pull: _Pull, code: int, status: str, offsets: tuple[int, int, int], body_size: int, behind: int = 0
    ) -> bytes:
        return pull_answer(
            pull.codec,
            code,
            pull.opaque,
            offsets,
            suggest_which_broker_id=self._suggested(pull, behind),
            topic_sys_flag=pull.topic.topic_sys_flag,
            group_sys_flag=pull.group.group_sys_flag,
            remark=status,
            body_size=body_size,
        )

    # -- held pulls

    def wake(self, pulls: Sequence[_Pull]) -> None:
        """Run held pulls again, unless their connection was closed.

        A pull that fails is answered with its error. The other pulls and the caller do not notice it.
        """
        for pull in pulls:
            if pull.channel.closed:
                continue
            try:
                self._run(pull)
            except Exception as error:  # noqa: BLE001 - the edge: an unknown failure is answered and logged
                self._woken_failed(pull, error)

    def _woken_failed(self, pull: _Pull, error: Exception) -> None:
        where = f"{pull.header.topic}/{pull.header.queue_id}"
        remark = error.message if isinstance(error, AerobeeError) else f"{type(error).__name__}: {error}"
        self._errors.error("held", "a held pull failed", queue=where, peer=pull.channel.remote_address, exc_info=error)
        try:
            self._failed(pull, remark)
        except Exception:  # noqa: BLE001 - nothing can be told to this client any more
            pull.channel.abort()

    def expire(self, now_s: float) -> None:
        """Answer the pulls whose time is over."""
        if self._polls.count:
            self.wake(self._polls.expire(now_s))

    def sweep(self) -> None:
        """Every 5 s: run what waits although its queue has grown, so that readers of other tags move on."""
        for topic, queue_id in self._polls.waiting():
            high = self._store.max_offset(topic, queue_id)
            self.wake(self._polls.arrived(topic, queue_id, high, None))


def _tags(subscription: Subscription) -> frozenset[int] | None:
    codes = subscription.tag_codes()
    return None if codes is None else frozenset(codes)


def _offsets_of(result: GetResult) -> tuple[int, int, int]:
    return result.next_begin_offset, result.min_offset, result.max_offset
