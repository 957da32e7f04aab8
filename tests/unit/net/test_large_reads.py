"""Large frames that arrive on many connections in one turn of the loop: the turn reads a part of them."""

from __future__ import annotations

import asyncio

from aerobee.net.channel import Channel
from aerobee.net.server import Server
from aerobee.runtime.clock import SystemClock

_PART = 256 * 1024
_HEAD = (12 << 20).to_bytes(4, "big") + (100).to_bytes(4, "big")


class _Peer(asyncio.Transport):
    """A transport that notes whether its channel wants to be read."""

    is_read = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def test_one_turn_reads_a_part_of_large_frames_and_the_next_goes_on() -> None:
    async def main() -> None:
        server = Server("test", {}, clock=SystemClock())
        await server.bind("127.0.0.1", 0)
        peers = [_Peer() for _ in range(4)]
        channels = [Channel(server) for _ in peers]
        for channel, peer in zip(channels, peers, strict=True):
            channel.connection_made(peer)
            channel.data_received(_HEAD + bytes(_PART))
        read = len(peers) * _PART
        while peers[0].is_read and read < 64 << 20:
            for channel, peer in zip(channels, peers, strict=True):
                if peer.is_read:
                    channel.data_received(bytes(_PART))
                    read += _PART
        assert read <= 9 << 20
        assert not any(peer.is_read for peer in peers)
        await asyncio.sleep(0)
        assert all(peer.is_read for peer in peers)
        server.unbind()

    asyncio.run(main())
