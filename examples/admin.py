"""Administer a cluster from Python: topics, groups, offsets and messages."""

from datetime import UTC, datetime, timedelta

from aerobee import TopicNotExistError
from aerobee.sync import Admin, LitePullConsumer, Producer

with Admin() as admin:  # $NAMESRV_ADDR, or Admin("localhost:9876"); aerobee.Admin is the same with await
    try:
        admin.topics.delete("invoices")
    except TopicNotExistError:
        pass
    admin.topics.create("invoices", queues=2, attributes={"message.type": "NORMAL"})
    with Producer() as producer:
        receipt = producer.send("invoices", b"one", keys="invoice-1")
    print(f"{admin.topics.show('invoices').messages} message")

    if "ledger" not in [one.group for one in admin.groups.list().groups]:
        admin.groups.create("ledger", retry_max=3)
    with LitePullConsumer(group="ledger") as consumer:
        consumer.commit({queue: consumer.end_offset(queue) for queue in consumer.queues("invoices")})
    print("lag", admin.groups.lag("ledger", topic="invoices").lag)

    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    plan = admin.offsets.plan_reset("ledger", "invoices", to=hour_ago)  # changes nothing
    print(f"{plan.replayed} comes again")
    admin.offsets.reset("ledger", "invoices", to=hour_ago)
    print("lag", admin.groups.lag("ledger", topic="invoices").lag)

    found = admin.messages.find("invoices", key="invoice-1", since=hour_ago)
    print(found.messages[0].message_id == receipt.message_id)
