"""Blocking connections with TLS: what counts as something to read."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

from aerobee.runtime.blocking import BlockingStream, wait_readable
from aerobee.runtime.tls import FileNames, server_context
from aerobee.testing.certificates import Certificate


def pair(certificate: Certificate) -> tuple[BlockingStream, ssl.SSLSocket]:
    identity = (str(certificate.cert), str(certificate.key), "")
    context = server_context(identity, trust_path="", client_certificate=ssl.CERT_NONE, names=FileNames.of("server"))
    taken: list[ssl.SSLSocket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            taken.append(context.wrap_socket(server.accept()[0], server_side=True))

        thread = threading.Thread(target=take)
        thread.start()
        stream = BlockingStream("127.0.0.1", server.getsockname()[1], 30.0, certificate.client_context())
        thread.join()
    return stream, taken[0]


def test_tickets_are_nothing_to_read_and_decrypted_bytes_are(certificate: Certificate) -> None:
    stream, peer = pair(certificate)
    with peer:
        # TLS 1.3 sends tickets after the handshake: a reader that took them for an answer would wait for one.
        assert wait_readable([stream], 0.2) == []
        peer.sendall(b"abcdef")
        assert wait_readable([stream], 30.0) == [stream]
        assert wait_readable([stream], 0.0) == [stream], "held, though the socket shows nothing"
        assert stream.receive(2) == b"ab"
        peer.sendall(b"g" * 100_000)
        assert stream.receive(5) == b"cdefg"
        assert not stream.is_quiet()
        assert stream.receive(99_999) == b"g" * 99_999
        assert stream.is_quiet()
        stream.set_timeout(0.01)
        with pytest.raises(TimeoutError):
            stream.receive(1)
        stream.set_timeout(30.0)
        stream.send(b"x")
        assert peer.recv(1) == b"x"
    assert wait_readable([stream], 30.0) == [stream]
    with pytest.raises(ConnectionError):
        stream.receive(1)
    stream.close()
