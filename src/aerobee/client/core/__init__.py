"""What all clients share: settings, connections, routes, heartbeats, and how they name themselves.

Other rooms and the outside import these names only; the modules behind them are private.
"""

from __future__ import annotations

from aerobee.client.core.callbacks import call_user_code
from aerobee.client.core.clientcore import ClientCore
from aerobee.client.core.config import (
    ClientConfig,
    ClientOptions,
    Credentials,
    client_config,
    credentials_of,
    parse_namesrv,
    shown_defaults,
    split_options,
)
from aerobee.client.core.corepool import acquire_core, lend_core, release_core
from aerobee.client.core.errors import (
    ClientStateError,
    HandleExpiredError,
    NoReplyError,
    NotDurableError,
    QueueUnavailableError,
    SelectorError,
    TooManyInFlightError,
    is_not_master,
)
from aerobee.client.core.hooks import (
    CONSUME_HOOKS,
    RECEIVE_HOOKS,
    SEND_HOOKS,
    ConsumeContext,
    ConsumeHook,
    ReceiveHook,
    SendContext,
    SendHook,
    after_consume,
    before_consume,
    received,
)
from aerobee.client.core.keywords import (
    is_number,
    is_whole,
    require_at_least,
    require_seconds,
    require_text,
    require_types,
    takes,
    unexpected_arguments,
    wrong_type,
)
from aerobee.client.core.namespace import with_namespace, without_namespace
from aerobee.client.core.profiles import (
    ACCESS_KEY_VARIABLE,
    NAMESRV_VARIABLE,
    PROFILE_VARIABLE,
    PROFILES_FILE_VARIABLE,
    SECRET_KEY_VARIABLE,
    SECURITY_TOKEN_VARIABLE,
    read_profile,
    with_profile,
)
from aerobee.client.core.receipt import SEND_STATUSES, SendReceipt, SendStatus, receipt_of
from aerobee.client.core.routes import away_groups, decode_route, route_header
from aerobee.client.core.signing import signer
from aerobee.client.core.tls import ClientTls, tls_hint, tls_of, variables_of

__all__ = [
    "ACCESS_KEY_VARIABLE", "CONSUME_HOOKS", "ClientConfig", "ClientCore", "ClientOptions", "ClientStateError",
    "ClientTls", "ConsumeContext", "ConsumeHook", "Credentials", "HandleExpiredError", "NAMESRV_VARIABLE",
    "NoReplyError", "NotDurableError", "PROFILES_FILE_VARIABLE", "PROFILE_VARIABLE", "QueueUnavailableError",
    "RECEIVE_HOOKS", "ReceiveHook", "SECRET_KEY_VARIABLE", "SECURITY_TOKEN_VARIABLE", "SEND_HOOKS",
    "SEND_STATUSES", "SelectorError", "SendContext", "SendHook", "SendReceipt", "SendStatus",
    "TooManyInFlightError", "acquire_core", "after_consume", "away_groups", "before_consume",
    "call_user_code", "client_config", "credentials_of", "decode_route", "is_not_master", "is_number", "is_whole",
    "lend_core", "parse_namesrv", "read_profile", "receipt_of", "received", "release_core", "require_at_least",
    "require_seconds", "require_text", "require_types", "route_header", "shown_defaults", "signer",
    "split_options", "takes", "tls_hint", "tls_of", "unexpected_arguments", "variables_of", "with_namespace",
    "with_profile", "without_namespace", "wrong_type",
]  # fmt: skip
