"""Read a topic in a plain for loop, up to its current end."""

from aerobee.sync import LitePullConsumer

consumer = LitePullConsumer(group="audit", consume_from="first")
consumer.subscribe("orders")
with consumer:
    left = sum(consumer.end_offset(queue) for queue in consumer.queues("orders"))
    for message in consumer:
        print(message.message_id, message.body.decode())
        left -= 1
        if not left:
            consumer.commit()
            break
