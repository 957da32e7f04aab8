"""Send without asyncio: for scripts, notebooks and threads."""

from aerobee.sync import Producer

with Producer() as producer:
    receipt = producer.send("orders", b"hi", tags="PAID")
    print(f"stored on {receipt.broker}")
    futures = [producer.send_nowait("orders", b"order %d" % i) for i in range(100)]
    producer.flush()
    print(f"{sum(future.done() for future in futures)} more are stored")
