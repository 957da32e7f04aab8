"""POP: consumers without queues of their own, who hold each message for a time.

`Pop` is the driver; one stands in every broker (`Broker.pop`). The handlers of remoting requests call it, and so does
whoever else serves consumers inside the broker's process, such as the gRPC service. All is done on the loop's thread:

    pop.receive(PopRequest(group, topic, told, ...))    hand out messages, or wait for some until `wait_until_s`
    pop.ack(Lease(...), told)                           acknowledge one message; `ack_all` for several at once
    pop.change(Lease(...), invisible_ms, told)          hide a message for another time from now on
    pop.dead_letter(Lease(...), told)                   copy a message to `%DLQ%group`, and acknowledge it
    pop.is_held(Lease(...))                             whether that handle still holds its message

`told` is called exactly once, at once or later. That of `receive` gets a `PopResult`: its `code` is 0, POLLING_TIMEOUT
(210) or POLLING_FULL (209) where nothing was found, or an error's with a `remark`; its batches hold whole records as
they are stored (`records_in` parts them). Whoever asks checks names, rights, the topic's permission and numbers before
(`check_read` does, with Apache's words), and makes the group's subscription known. `PopRequest.is_gone` says that
nobody is there to be answered: what was taken is then given to the next pop, and no try is counted.

`told` of `ack`, `ack_all` and `dead_letter` gets a code and a remark: 0 once the acknowledgement is stored, by the
level of flush and replication in force, and also where the lease was over (`is_held` tells before). That of `change`
gets the code and the new deadline in milliseconds, -1 where the lease is over; the handle stays the same.

A `Lease` names the topic that was *read* (`PopBatch.topic`: for retries the retry topic), the queue, the offset and the
pop time, which a handle carries. `real_topic(topic, group, kind)` gives it from the type in a handle (`PopBatch.kind`).
`docs/pop.md` says what all this promises.
"""

from aerobee.broker.pop.ackrequests import AckHandlers
from aerobee.broker.pop.asked import InFlight, Lease, PopBatch, PopRequest, PopResult
from aerobee.broker.pop.checks import COUNT_MAX, INVISIBLE_MAX_MS, check_queue, check_read
from aerobee.broker.pop.driver import Pop, pop_of
from aerobee.broker.pop.entries import Key, read_entries
from aerobee.broker.pop.records import ORDER_REVIVE_QUEUE, kind_of, real_topic, records_in
from aerobee.broker.pop.requests import PopHandlers
from aerobee.broker.pop.snapshot import decode_picture
from aerobee.broker.pop.strings import parse_handle

__all__ = [
    "AckHandlers", "COUNT_MAX", "INVISIBLE_MAX_MS", "InFlight", "Key", "Lease", "ORDER_REVIVE_QUEUE", "Pop", "PopBatch",
    "PopHandlers", "PopRequest", "PopResult", "check_queue", "check_read", "decode_picture", "kind_of", "parse_handle",
    "pop_of",
    "read_entries", "real_topic", "records_in",
]  # fmt: skip
