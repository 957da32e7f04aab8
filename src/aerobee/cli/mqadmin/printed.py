"""How Java prints what mqadmin shows: numbers, times, and the `toString` of RocketMQ's classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.host import decode_host
from aerobee.hot.log.javahash import extend_hash
from aerobee.hot.log.record import Record
from aerobee.model.group import RetryPolicy, SubscriptionGroupConfig
from aerobee.model.ids import offset_message_id
from aerobee.model.numbers import NumberError, parse_int
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import TopicConfig, perm_text
from aerobee.protocol.javaorder import hashed_order, map_order, roomy_order

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def truth(value: bool) -> str:
    return "true" if value else "false"


def nothing(value: object) -> str:
    """Return a text, or Java's `null` for None."""
    return "null" if value is None else str(value)


def double(value: float) -> str:
    """Return Double.toString: digits as short as possible, with an exponent below 1e-3 and from 1e7 on."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return format(Decimal(text), "f") + ("" if "." in format(Decimal(text), "f") else ".0")
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + exponent - 1
    return f"{'-' if sign else ''}{significant[0]}.{significant[1:] or '0'}E{power}"


def rounded(value: float, places: int) -> str:
    """Return `%.Nf` of Java, which rounds halves up."""
    try:
        return str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP))
    except ArithmeticError:
        return double(value)


def local(milliseconds: int) -> datetime:
    """Return a time in the zone of this machine, as Java shows times."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).astimezone()


def seconds_text(milliseconds: int) -> str:
    """Return a time as `yyyy-MM-dd HH:mm:ss`."""
    return f"{local(milliseconds):%Y-%m-%d %H:%M:%S}"


def millis_text(milliseconds: int) -> str:
    """Return a time as `yyyy-MM-dd HH:mm:ss,SSS`. RocketMQ: UtilAll.timeMillisToHumanString2."""
    moment = local(milliseconds)
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"


def compact_text(milliseconds: int) -> str:
    """Return a time as `yyyyMMddHHmmssSSS`. RocketMQ: UtilAll.timeMillisToHumanString."""
    moment = local(milliseconds)
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


def moment_of(text: str) -> int:
    """Return the milliseconds of a number, or of `yyyy-MM-dd#HH:mm:ss:SSS` in the zone of this machine."""
    try:
        return parse_int(text)
    except NumberError:
        pass
    try:
        day, _, rest = text.rpartition(":")
        naive = datetime.strptime(day, "%Y-%m-%d#%H:%M:%S").replace(microsecond=parse_int(rest, 0, 999) * 1000)  # noqa: DTZ007
    except (ValueError, NumberError):
        raise InvalidArgumentError(
            f"{text!r} is neither milliseconds nor a time like 2026-11-15#10:00:00:000"
        ) from None
    return round(naive.astimezone().timestamp() * 1000)


# -- maps


def in_map_order(names: Iterable[str]) -> list[str]:
    """Return names in the order in which a HashMap, and a HashSet, iterates them."""
    return list(map_order(tuple(names)))


def queues_in_map_order(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return queues in the order of a HashMap with them as keys. RocketMQ: MessageQueue.hashCode."""

    def code(queue: MessageQueue) -> int:
        result = (31 + extend_hash(0, queue.broker_name)) & 0xFFFFFFFF
        result = (31 * result + queue.queue_id) & 0xFFFFFFFF
        return (31 * result + extend_hash(0, queue.topic)) & 0xFFFFFFFF

    return hashed_order([(queue, code(queue)) for queue in queues])


def table(values: Mapping[str, object]) -> str:
    """Return HashMap.toString."""
    return "{" + ", ".join(f"{name}={values[name]}" for name in in_map_order(values)) + "}"


def properties_text(values: Mapping[str, str]) -> str:
    """Return the properties of a message. RocketMQ: MessageDecoder.string2messageProperties makes room for 128."""
    return "{" + ", ".join(f"{name}={values[name]}" for name in roomy_order(list(values), 128)) + "}"


# -- toString of RocketMQ's classes


def topic_config(config: TopicConfig) -> str:
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={truth(config.order)}, attributes={table(config.attributes)}]"
    )


def retry_policy(policy: RetryPolicy) -> str:
    exponential = "null"
    if policy.has_exponential:
        values = f"initial={policy.initial_ms}, max={policy.max_ms}, multiplier={policy.multiplier}"
        exponential = f"ExponentialRetryPolicy{{{values}}}"
    customized = "null"
    if policy.delays_ms is not None:
        customized = f"CustomizedRetryPolicy{{next=[{', '.join(map(str, policy.delays_ms))}]}}"
    return (
        f"GroupRetryPolicy{{type={policy.type}, exponentialRetryPolicy={exponential}, "
        f"customizedRetryPolicy={customized}}}"
    )


def group_fields(config: SubscriptionGroupConfig) -> list[tuple[str, str]]:
    """Return the fields of a group in the order of Apache's class."""
    subscriptions = "null"
    if config.subscription_data_set is not None:
        shown = (
            f"SimpleSubscriptionData{{topic={one.topic}, expressionType={one.expression_type}, "
            f"expression={one.expression}, version={one.version}}}"
            for one in config.subscription_data_set
        )
        subscriptions = f"[{', '.join(shown)}]"
    return [
        ("groupName", config.group_name),
        ("consumeEnable", truth(config.consume_enable)),
        ("consumeFromMinEnable", truth(config.consume_from_min_enable)),
        ("consumeBroadcastEnable", truth(config.consume_broadcast_enable)),
        ("consumeMessageOrderly", truth(config.consume_message_orderly)),
        ("retryQueueNums", str(config.retry_queue_nums)),
        ("retryMaxTimes", str(config.retry_max_times)),
        ("groupRetryPolicy", retry_policy(config.group_retry_policy)),
        ("brokerId", str(config.broker_id)),
        ("whichBrokerWhenConsumeSlowly", str(config.which_broker_when_consume_slowly)),
        ("notifyConsumerIdsChangedEnable", truth(config.notify_consumer_ids_changed_enable)),
        ("groupSysFlag", str(config.group_sys_flag)),
        ("consumeTimeoutMinute", str(config.consume_timeout_minute)),
        ("subscriptionDataSet", subscriptions),
        ("attributes", table(config.attributes)),
    ]


def group_config(config: SubscriptionGroupConfig) -> str:
    return "SubscriptionGroupConfig{" + ", ".join(f"{name}={value}" for name, value in group_fields(config)) + "}"


def queue_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def message_text(record: Record, broker: str, properties: Mapping[str, str]) -> str:
    """Return MessageExt.toString. `properties` are those that Apache's client would hold."""
    signed = (byte - 256 if byte > 127 else byte for byte in record.body)
    return (
        f"MessageExt [brokerName={broker}, queueId={record.queue_id}, storeSize={record.size}, "
        f"queueOffset={record.queue_offset}, sysFlag={record.sys_flag}, bornTimestamp={record.born_timestamp}, "
        f"bornHost=/{decode_host(record.born_host)}, storeTimestamp={record.store_timestamp}, "
        f"storeHost=/{decode_host(record.store_host)}, "
        f"msgId={offset_message_id(record.store_host, record.physical_offset)}, "
        f"commitLogOffset={record.physical_offset}, bodyCRC={record.body_crc}, "
        f"reconsumeTimes={record.reconsume_times}, "
        f"preparedTransactionOffset={record.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{record.topic.decode('utf-8', 'replace')}', flag={record.flag}, "
        f"properties={properties_text(properties)}, body=[{', '.join(map(str, signed))}], transactionId='null'}}]"
    )


def queue_order(queue: MessageQueue) -> tuple[str, str, int]:
    """Return the key by which Apache sorts queues. RocketMQ: MessageQueue.compareTo."""
    return queue.topic, queue.broker_name, queue.queue_id


def body_text(body: bytes, charset: str) -> str:
    """Return a body in a charset, with marks in place of what it does not know. Raise InvalidArgumentError."""
    try:
        return body.decode(charset, "replace")
    except LookupError:
        raise InvalidArgumentError(f"{charset!r} is not a known charset") from None
