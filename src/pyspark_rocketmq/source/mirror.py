"""The progress of a query as that of a consumer group at the brokers, so that its lag is seen where other lag is.

This is only a mirror: the query goes on from its checkpoint. A group that has live consumers is refused, because their
progress would be overwritten.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from aerobee.errors import AerobeeError, TransportError
from aerobee.model.queue import MessageQueue
from pyspark_rocketmq.source.cluster import Cluster
from pyspark_rocketmq.source.offsets import Offsets

# Not below "aerobee", which logs nothing by default: these lines are for the log of the Spark application.
_log = logging.getLogger("pyspark_rocketmq")


class GroupInUseError(AerobeeError):
    """The group of option `group` has live consumers."""


class GroupMirror:
    """The group that shows the progress of one query."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._told: dict[MessageQueue, int] = {}
        self._is_checked = False
        # How often somebody else changed the offsets of the group.
        self._changes = 0

    def require_unused(self, queues: Iterable[MessageQueue]) -> None:
        """Raise where the group has live consumers."""
        members = self._cluster.members(self._group, {self._cluster.broker_of(queue) for queue in queues})
        if members:
            raise GroupInUseError(
                f"option group: {self._group} has {len(members)} live consumers (such as {members[0]}), whose progress "
                "would be overwritten",
                hint="Name a group of its own for this query.",
            )
        self._is_checked = True

    def tell(self, offsets: Offsets, reachable: Collection[MessageQueue]) -> None:
        """Commit these offsets for the group. Offsets that cannot be committed now are committed next time."""
        news = {
            queue: offset for queue, offset in offsets.items() if queue in reachable and self._told.get(queue) != offset
        }
        if not news:
            return
        if not self._is_checked:
            self.require_unused(news)
        try:
            self._notice_others(news)
            self._cluster.commit(self._group, news)
            if not self._told:
                self._cluster.make_visible(self._group, {self._cluster.broker_of(queue) for queue in news})
        except TransportError as error:
            _log.warning("the progress of group %s could not be committed: %s", self._group, error)
        else:
            self._told.update(news)

    def _notice_others(self, news: Offsets) -> None:
        """Raise GroupInUseError where somebody else has committed offsets of the group, twice since this query began.

        Once may be an operator who reset the group. Twice is another query or a consumer.
        """
        mine = {queue: self._told[queue] for queue in news if queue in self._told}
        found = self._cluster.committed(self._group, list(mine))
        strange = sorted(queue for queue, offset in mine.items() if found.get(queue) not in (None, offset))
        if not strange:
            return
        self._changes += 1
        one = strange[0]
        words = (
            f"the offset of group {self._group} for queue {one.queue_id} of {one.topic} on {one.broker_name} was "
            f"changed from {mine[one]} to {found[one]} by somebody else"
        )
        if self._changes > 1:
            raise GroupInUseError(f"option group: {words}", hint="Name a group of its own for each query.")
        _log.warning("%s; another query with this group is an error", words)
