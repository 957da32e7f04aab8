"""Handlers of the key-value table and of the settings.

RocketMQ: DefaultRequestProcessor.
"""

from __future__ import annotations

from aerobee.config.loader import Loaded
from aerobee.config.properties import decode_text, parse_properties, render_properties
from aerobee.config.setting import settings_of, to_properties
from aerobee.errors import ConfigError
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.kvconfig import write_whole
from aerobee.namesrv.state import Handler, NamesrvState, Peer, encoded
from aerobee.net.turns import Sliced
from aerobee.protocol.bodies.cluster import KVTable
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.kv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

# The most settings in one request. It is more than there are.
SETTINGS_MAX = 500
_log = get_log("namesrv")


class AdminHandlers:
    """Answers the requests of operators."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state
        self._warn = RateLimitedLog(_log, state.clock)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv,
            RequestCode.GET_KV_CONFIG: self.get_kv,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_list,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
        }

    def put_kv(self, peer: Peer, command: Command) -> Command:
        header = decode_header(PutKVConfigRequestHeader, command)
        self._state.kv.put(header.namespace, header.key, header.value)
        _log.info("value set", namespace=header.namespace, key=header.key, peer=peer.remote_address)
        return response(command)

    def get_kv(self, peer: Peer, command: Command) -> Command:
        header = decode_header(GetKVConfigRequestHeader, command)
        value = self._state.kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return response(command, ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return response(command, header=GetKVConfigResponseHeader(value=value))

    def delete_kv(self, peer: Peer, command: Command) -> Command:
        header = decode_header(DeleteKVConfigRequestHeader, command)
        self._state.kv.delete(header.namespace, header.key)
        _log.info("value deleted", namespace=header.namespace, key=header.key, peer=peer.remote_address)
        return response(command)

    def get_kv_list(self, peer: Peer, command: Command) -> Command | Sliced:
        header = decode_header(GetKVListByNamespaceRequestHeader, command)
        table = self._state.kv.namespace(header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {header.namespace}"
            return response(command, ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return encoded(command, KVTable(dict(table)))

    def get_config(self, peer: Peer, command: Command) -> Command:
        lines = [f"{key}={value}\n" for key, value in sorted(to_properties(self._state.config).items())]
        return response(command, body="".join(lines).encode())

    def update_config(self, peer: Peer, command: Command) -> Command:
        """Change all of the settings or none. Only `reloadable` settings of `config.py` may change."""
        if not command.body:
            return response(command)
        values = parse_properties(decode_text(command.body))
        if len(values) > SETTINGS_MAX:
            # Every unknown key is compared with all known keys, which takes time.
            remark = f"{len(values)} settings in one request: at most {SETTINGS_MAX} are allowed"
            return response(command, ResponseCode.INVALID_PARAMETER, remark=remark)
        try:
            loaded = Loaded((self._state.config,), (), {}).updated(values)
        except ConfigError as error:
            self._warn.warning(
                "refused", "a change of settings was refused", peer=peer.remote_address, reason=str(error)
            )
            fixed = {one.java for one in settings_of(NamesrvConfig) if not one.reloadable}
            if fixed & values.keys():
                remark = f"Can not update config in black list. {error}"
                return response(command, ResponseCode.NO_PERMISSION, remark=remark)
            return response(command, ResponseCode.INVALID_PARAMETER, remark=str(error))
        config = loaded.get(NamesrvConfig)
        if config.config_store_path:
            text = render_properties(dict(sorted(to_properties(config).items())))
            write_whole(self._state.disk, config.config_store_path, text.encode())
        self._state.config = config
        _log.info("settings changed", peer=peer.remote_address, values=" ".join(sorted(values)))
        for warning in loaded.warnings:
            _log.warning(warning)
        return response(command, remark="; ".join(loaded.warnings) or None)
