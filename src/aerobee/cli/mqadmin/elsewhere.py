"""The sub-commands of mqadmin that have no twin: what does their work here, or why nothing does."""

from __future__ import annotations

from typing import Final

_CONTAINER: Final = "there is no broker container: start one `aerobee broker` for each broker"
_ROCKSDB: Final = "there is no RocksDB store here"
_COLD: Final = "cold data is read by a thread of its own and needs no flow control"
_STATIC: Final = "a broker serves no static topics: create a plain topic with `aerobee topic create`"
_LITE: Final = "lite topics are administered by Apache's own mqadmin, where the broker serves them"

# Sub-command -> a sentence that names a command of ours, or the reason.
ELSEWHERE: Final = {
    "updateTopicList": "`aerobee cluster import FILE` creates and changes many topics and groups",
    "updateSubGroupList": "`aerobee cluster import FILE` creates and changes many topics and groups",
    "setConsumeMode": "`aerobee group update -g GROUP` changes the settings of a group",
    "resetMasterFlushOffset": "replicas agree on what is safe by themselves: `aerobee replica status`",
    "sendMsgStatus": "`aerobee cluster probe` sends to every broker and shows the times",
    "startMonitoring": "`aerobee cluster` and `aerobee group lag` show what it watches",
    "allocateMQ": "it is a calculation of the client: `aerobee group show` lists the members",
    "checkMsgSendRT": "`aerobee cluster probe` sends to every broker and shows the times",
    "queryCq": "`aerobee store inspect DIR --queues` shows the queues of a store",
    "updateStaticTopic": _STATIC,
    "remappingStaticTopic": _STATIC,
    "exportMetadata": "`aerobee cluster export FILE` writes topics and groups as JSON",
    "exportConfigs": "`aerobee cluster config --json` prints the settings of every broker",
    "exportMetrics": "`aerobee cluster --json` and the metrics page of each server tell them",
    "exportMetadataInRocksDB": _ROCKSDB,
    "rocksDBConfigToJson": _ROCKSDB,
    "checkRocksdbCqWriteProgress": _ROCKSDB,
    "switchTimerEngine": _ROCKSDB,
    "exportPopRecord": "`aerobee store dump DIR` shows the records of a store",
    "dumpCompactionLog": "`aerobee store dump DIR` shows the records of a store",
    "getSyncStateSet": "`aerobee replica status` shows the in-sync set of each group",
    "getBrokerEpoch": "`aerobee replica status` shows the epoch of each group",
    "getControllerMetaData": "roles live in etcd: `aerobee replica status` shows them",
    "getControllerConfig": "there is no controller: `aerobee cluster config` shows the settings of brokers",
    "updateControllerConfig": "there is no controller: `aerobee cluster config KEY=VALUE` changes settings of brokers",
    "electMaster": "`aerobee replica switch` makes an in-sync replica the master",
    "cleanBrokerMetadata": "`aerobee replica remove` removes a replica from its group",
    "getColdDataFlowCtrInfo": _COLD,
    "updateColdDataFlowCtrGroupConfig": _COLD,
    "removeColdDataFlowCtrGroupConfig": _COLD,
    "setCommitLogReadAheadMode": _COLD,
    "addBroker": _CONTAINER,
    "removeBroker": _CONTAINER,
    "getBrokerLiteInfo": _LITE,
    "getParentTopicInfo": _LITE,
    "getLiteTopicInfo": _LITE,
    "getLiteClientInfo": _LITE,
    "getLiteGroupInfo": _LITE,
    "triggerLiteDispatch": _LITE,
}
