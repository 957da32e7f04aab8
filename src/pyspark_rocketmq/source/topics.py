"""Topics that do not exist: the error, with the nearest name, and the look for them at `load()`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from aerobee.client.blocking import BlockingClient
from aerobee.errors import AerobeeError
from aerobee.model.names import is_system_topic
from pyspark_rocketmq.options import Endpoint

# A name server that needs longer than this is asked by the read itself.
_LOOK_MS: Final = 2_000


class NoSuchTopicError(AerobeeError):
    """A topic that the name servers do not know."""


def no_such_topic(client: BlockingClient, topic: str) -> NoSuchTopicError:
    """Return the error for a topic that does not exist. It suggests the nearest name."""
    near = difflib.get_close_matches(topic, [one for one in client.topics() if not is_system_topic(one)], n=1)
    meant = f": did you mean {near[0]!r}?" if near else ""
    return NoSuchTopicError(f"topic {topic!r} does not exist at {', '.join(client.config.namesrv)}{meant}")


def require_topics(endpoint: Endpoint, topics: Iterable[str]) -> None:
    """Raise NoSuchTopicError where the name servers know no such topic.

    Any other answer, and none, is left to the read itself: it waits for servers that are away, and names them. A name
    server that was just started knows no broker, and so no topic. The first broker tells it of the others' topics.
    """
    timeout_ms = min(endpoint.request_timeout_ms, _LOOK_MS)
    client = BlockingClient(replace(endpoint, request_timeout_ms=timeout_ms).client_config())
    try:
        for topic in topics:
            if client.route(topic) is None and not any(client.away[topic].values()) and client.registered():
                raise no_such_topic(client, topic)
    except NoSuchTopicError:
        raise
    except AerobeeError:
        return
