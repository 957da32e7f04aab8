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
from aerobee.protocol.headers.cluster import SOURCES_FIELD, UNSET_FIELD, GetBrokerConfigResponseHeader
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
        answer = response(command, header=GetBrokerConfigResponseHeader(version=version), body=body.encode())
        if SOURCES_FIELD in command.ext:
            answer.ext[SOURCES_FIELD] = dumps(self._settings.sources()).decode()
        return answer

    def update(self, channel: Channel, command: Command) -> Command | None:
        """Change settings, and take changes back. The answer comes when a restart would know that."""
        values = parse_properties(decode_text(command.body)) if command.body else {}
        unset = [key.strip() for key in command.ext.get(UNSET_FIELD, "").split(";") if key.strip()]
        if len(values) + len(unset) > SETTINGS_MAX:
            # An unknown key is compared with all known ones.
            remark = f"{len(values) + len(unset)} settings in one request, {SETTINGS_MAX} are the most"
            return response(command, ResponseCode.INVALID_PARAMETER, remark=remark)
        if not values and not unset:
            return response(command)
        try:
            warnings = list(self._settings.update(values)) if values else []
            warnings += [f"{key} was not changed over the wire" for key in unset if not self._settings.is_kept(key)]
            back = self._settings.unset(unset) if unset else {}
            self._settings.told({**values, **back})
        except ConfigError as error:
            self._warn.warning("refused", "settings were refused", peer=channel.remote_address, reason=str(error))
            if self._settings.fixed([*values, *unset]):
                remark = f"Can not update config in black list. {error}"
                return response(command, ResponseCode.NO_PERMISSION, remark=remark)
            return response(command, ResponseCode.INVALID_PARAMETER, remark=str(error))
        _log.info("settings were changed", peer=channel.remote_address, values=values, taken_back=",".join(back))
        for warning in warnings:
            _log.warning(warning)

        def kept(error: Exception | None) -> None:
            if command.is_oneway:
                return
            if error is not None:
                remark = f"the settings hold, but a restart would not know them: {error}"
                channel.send(response(command, ResponseCode.SYSTEM_ERROR, remark=remark))
            else:
                channel.send(response(command, remark="; ".join(warnings) or None))

        self._settings.when_kept(kept)
        return None
