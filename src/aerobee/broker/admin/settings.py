"""Requests that show and change the broker's settings. For what may change see `broker/admin/livesettings.py`."""

from __future__ import annotations

from aerobee.broker.admin.livesettings import LiveSettings
from aerobee.config.properties import decode_text, parse_properties
from aerobee.errors import ConfigError
from aerobee.model.dialect import dumps
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.cluster import GetBrokerConfigResponseHeader
from aerobee.runtime.seams import Clock
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

# Settings in one request: more than exist.
SETTINGS_MAX = 500
_log = get_log("broker.admin")


class ConfigAdmin:
    """GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG."""

    def __init__(self, settings: LiveSettings, clock: Clock) -> None:
        self._settings = settings
        self._warn = RateLimitedLog(_log, clock)

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_BROKER_CONFIG: self.get, RequestCode.UPDATE_BROKER_CONFIG: self.update}

    def get(self, channel: Channel, command: Command) -> Command:
        """Answer with `key=value` lines, values unescaped, as Apache does. RocketMQ: MixAll.properties2String."""
        body = "".join(f"{key}={value}\n" for key, value in self._settings.properties().items())
        version = dumps(self._settings.version.to_json()).decode()
        return response(command, header=GetBrokerConfigResponseHeader(version=version), body=body.encode())

    def update(self, channel: Channel, command: Command) -> Command:
        if not command.body:
            return response(command)
        values = parse_properties(decode_text(command.body))
        if len(values) > SETTINGS_MAX:
            # An unknown key is compared with all known ones.
            remark = f"{len(values)} settings in one request, {SETTINGS_MAX} are the most"
            return response(command, ResponseCode.INVALID_PARAMETER, remark=remark)
        try:
            warnings = self._settings.update(values)
            self._settings.told(values)
        except ConfigError as error:
            self._warn.warning("refused", "settings were refused", peer=channel.remote_address, reason=str(error))
            if self._settings.fixed(values):
                remark = f"Can not update config in black list. {error}"
                return response(command, ResponseCode.NO_PERMISSION, remark=remark)
            return response(command, ResponseCode.INVALID_PARAMETER, remark=str(error))
        _log.info("settings were changed", peer=channel.remote_address, values=values)
        for warning in warnings:
            _log.warning(warning)
        return response(command, remark="; ".join(warnings) or None)
