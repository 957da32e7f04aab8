"""Lists of all topics or groups, without the entries that a user may not see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aerobee.access.policies import ResourceKind
from aerobee.access.rows import GET, LIST, AccessWorld, Need
from aerobee.access.verdicts import Claim
from aerobee.model.dialect import dump_slices, loads_slices, object_of
from aerobee.net.turns import Slices
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command

_SLICE: Final = 200
# By request: the kind of its entries, and the tables in its answer whose keys are their names.
LISTINGS: Final[dict[int, tuple[ResourceKind, tuple[str, ...]]]] = {
    RequestCode.GET_ALL_TOPIC_CONFIG: (ResourceKind.TOPIC, ("topicConfigTable", "topicQueueMappingDetailMap")),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (ResourceKind.GROUP, ("subscriptionGroupTable", "forbiddenTable")),
}


def whole_list(world: AccessWorld) -> Need:
    """Return the need of somebody who may see every entry."""
    return (Claim(ResourceKind.CLUSTER, world.cluster, (GET, LIST)),)


def without_hidden(code: int, answer: Command, may: Callable[[Need], bool]) -> Slices:
    """Return an answer with the entries that the user may get or list."""
    kind, tables = LISTINGS[code]
    if answer.code or not answer.body:
        return answer
    document: dict[Any, Any] = object_of((yield from loads_slices(answer.body)))
    for name in tables:
        table = document.get(name)
        if not isinstance(table, dict):
            continue
        kept = {}
        for number, (key, value) in enumerate(table.items(), 1):
            if may((Claim(kind, str(key), (GET, LIST)),)):
                kept[key] = value
            if number % _SLICE == 0:
                yield
        document[name] = kept
    answer.body = yield from dump_slices(document)
    return answer
