"""What each request needs at a name server. A code without a row is refused."""

from __future__ import annotations

from typing import Final

from aerobee.access.rows import ANY_USER, GET, PUB, SUB, UPDATE, AccessRow, of_cluster, of_topic
from aerobee.protocol.codes import PrivateRequestCode, RequestCode

_R: Final = RequestCode
_P: Final = PrivateRequestCode
# What brokers ask, as the inner user.
_OF_BROKERS: Final = AccessRow(of_cluster(UPDATE))
# What they say of themselves. Whoever says it gets what clients and other servers send to brokers: their messages, and
# requests that the inner user has signed.
_BY_BROKERS: Final = AccessRow(super_only=True)
_C_UPDATE: Final = AccessRow(of_cluster(UPDATE), changes=True)

NAMESRV_ROWS: Final[dict[int, AccessRow]] = {
    _R.PUT_KV_CONFIG: _C_UPDATE,
    _R.GET_KV_CONFIG: ANY_USER,
    _R.DELETE_KV_CONFIG: _C_UPDATE,
    _R.REGISTER_BROKER: _BY_BROKERS,
    _R.UNREGISTER_BROKER: _BY_BROKERS,
    _R.GET_ROUTEINFO_BY_TOPIC: AccessRow(of_topic("topic", PUB, SUB, GET, retry=(SUB, GET))),
    _R.GET_BROKER_CLUSTER_INFO: ANY_USER,
    _R.WIPE_WRITE_PERM_OF_BROKER: _C_UPDATE,
    _R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: ANY_USER,
    _R.DELETE_TOPIC_IN_NAMESRV: _C_UPDATE,
    _R.REGISTER_TOPIC_IN_NAMESRV: _BY_BROKERS,
    _R.GET_KVLIST_BY_NAMESPACE: ANY_USER,
    _R.GET_TOPICS_BY_CLUSTER: ANY_USER,
    _R.GET_SYSTEM_TOPIC_LIST_FROM_NS: ANY_USER,
    _R.GET_UNIT_TOPIC_LIST: ANY_USER,
    _R.GET_HAS_UNIT_SUB_TOPIC_LIST: ANY_USER,
    _R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ANY_USER,
    _R.UPDATE_NAMESRV_CONFIG: _C_UPDATE,
    _R.GET_NAMESRV_CONFIG: AccessRow(of_cluster(GET)),
    _R.QUERY_DATA_VERSION: _OF_BROKERS,
    _R.ADD_WRITE_PERM_OF_BROKER: _C_UPDATE,
    _R.GET_BROKER_MEMBER_GROUP: _OF_BROKERS,
    _R.BROKER_HEARTBEAT: _BY_BROKERS,
    _P.KNOWN_GROUPS: _OF_BROKERS,
    _P.TELL_GROUP: _BY_BROKERS,
    _P.FORGET_GROUP: _C_UPDATE,
}
