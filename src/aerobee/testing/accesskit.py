"""Users for tests of access control: settings with two Super users, signed requests, and rights in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from aerobee.access.config import AccessConfig
from aerobee.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from aerobee.protocol.codes import JSON, VERSION, RequestCode
from aerobee.protocol.command import Command
from aerobee.protocol.signing import signer
from aerobee.testing.brokerkit import BrokerKit, KitClient
from aerobee.testing.secrets import require_unseen, secret_for

ROOT_USER = ("root", secret_for("root"))
INNER_USER = ("inner", secret_for("inner"))
_WAITS = 20
# Found in no log, page, setting or plan.
SECRETS = (ROOT_USER[1], INNER_USER[1])
# The answers that hold passwords, for those who may see them.
_PASSWORDS = (RequestCode.AUTH_GET_USER, RequestCode.AUTH_LIST_USER)

# The sample of Apache's 4.9 distribution (conf/plain_acl.yml).
PLAIN_ACL: Final = """\
# Licensed to the Apache Software Foundation (ASF) under one or more
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def access_config(**more: object) -> AccessConfig:
    """Return settings with users and rights on."""
    values = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "init_authentication_user": json.dumps({"username": ROOT_USER[0], "password": ROOT_USER[1]}),
        "inner_client_authentication_credentials": json.dumps({"accessKey": INNER_USER[0], "secretKey": INNER_USER[1]}),
        **more,
    }
    return AccessConfig(**values)  # type: ignore[arg-type]


def secret_of(name: str) -> str:
    """Return the password that `add_user` gives."""
    return secret_for(name)


def signed(
    code: int,
    ext: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    user: str | None = "root",
    secret: str | None = None,
    opaque: int = 1,
    codec: int = JSON,
    version: int = VERSION,
) -> Command:
    """Return a request that a user has signed; nobody has, with `user` None."""
    command = Command(code, opaque, 0, dict(ext or {}), body, codec=codec, version=version)
    if user is not None:
        signer(user, secret_of(user) if secret is None else secret)(command)
    return command


class AccessClient:
    """A connection whose requests are signed by one user."""

    def __init__(self, kit: BrokerKit, user: str | None = "root", secret: str | None = None) -> None:
        self._kit = kit
        self.connection: KitClient = kit.connect()
        self.user = user
        self.secret = secret
        self._opaque = 0

    async def ask(
        self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"", codec: int = JSON
    ) -> Command:
        """Send a signed request and return its answer, which may wait for something to be saved."""
        self._opaque += 1
        command = signed(code, ext, body, user=self.user, secret=self.secret, opaque=self._opaque, codec=codec)
        self.connection.send(command)
        for _ in range(_WAITS):
            for one in await self.connection.answers():
                if one.opaque == self._opaque:
                    if code not in _PASSWORDS:
                        require_unseen(f"answer to {code}", one.body + repr((one.remark, one.ext)).encode())
                    return one
            await self._kit.pass_time(0.1)
        raise AssertionError(f"no answer to request {code}")


async def add_user(root: AccessClient, name: str, kind: str = "Normal") -> None:
    """Make a user."""
    body = UserInfo(password=secret_of(name), user_type=kind).encode()
    answer = await root.ask(RequestCode.AUTH_CREATE_USER, {"username": name}, body)
    assert answer.code == 0, answer.remark


async def grant(
    root: AccessClient, name: str, resource: str, *actions: str, decision: str = "Allow", sources: tuple[str, ...] = ()
) -> None:
    """Give a user rights."""
    entry = PolicyEntryInfo(actions, decision, resource, sources or None)
    info = AclInfo((PolicyInfo((entry,)),), f"User:{name}")
    answer = await root.ask(RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, info.encode())
    assert answer.code == 0, answer.remark
