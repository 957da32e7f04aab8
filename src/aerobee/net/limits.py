"""The limits of one server's connections. A test covers each of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How much of the server's memory and time a peer may use before it is disconnected."""

    # RocketMQ: NettyServerConfig.serverChannelMaxIdleTimeSeconds
    idle_s: float = 120.0
    # An unfinished frame must be complete within this time.
    frame_progress_s: float = 30.0
    # Bytes of unfinished frames of all connections together: 64 messages of the largest size.
    unfinished_bytes_max: int = 256 << 20
    # Bytes of unread answers of all peers together.
    unread_bytes_max: int = 256 << 20
    # The time for a PROXY header and for a TLS handshake. RocketMQ: Netty's SslHandler.handshakeTimeoutMillis
    greeting_s: float = 10.0
    # Bytes of answers that may wait for one peer that does not read.
    write_buffer_bytes_max: int = 64 << 20
    # How long answers may wait without a byte leaving.
    write_stall_s: float = 10.0
    # The server does not read from a peer while more than this waits for it, so that requests cannot fill memory.
    write_high_water_bytes: int = 4 << 20
    connections_max: int = 10_000
    # Calls of the server that may wait for the peer's answer.
    requests_in_flight_max: int = 1_000
