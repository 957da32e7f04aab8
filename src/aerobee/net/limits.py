"""The bounds of one server's connections. Each limit is a tested path, not a hope."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What a peer may hold of ours before it is cut."""

    # RocketMQ: NettyServerConfig.serverChannelMaxIdleTimeSeconds
    idle_s: float = 120.0
    # A frame that was begun must be whole within this time.
    frame_progress_s: float = 30.0
    # What all connections together may hold of frames that are not whole: 64 messages of the largest size, at once.
    unfinished_bytes_max: int = 256 << 20
    # What all peers together may leave unread of their answers.
    unread_bytes_max: int = 256 << 20
    # A PROXY header that was begun, and a TLS handshake. RocketMQ: Netty's SslHandler.handshakeTimeoutMillis
    greeting_s: float = 10.0
    # Answers waiting for a peer that does not read.
    write_buffer_bytes_max: int = 64 << 20
    # How long answers may wait without a byte leaving.
    write_stall_s: float = 10.0
    # Reading stops while more than this waits to be written, so a peer that only asks cannot fill memory.
    write_high_water_bytes: int = 4 << 20
    connections_max: int = 10_000
    # Calls of ours that wait for the peer's answer.
    requests_in_flight_max: int = 1_000
