"""Self-signed certificates for tests, made by the `openssl` command."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """The PEM files of a certificate and its key."""

    cert: Path
    key: Path
    password: str = ""

    def settings(self, side: str = "server") -> dict[str, str]:
        """Return RocketMQ's settings for a server with this certificate."""
        found = {f"tls.{side}.certPath": str(self.cert), f"tls.{side}.keyPath": str(self.key)}
        return {**found, f"tls.{side}.keyPassword": self.password} if self.password else found

    def client_context(self) -> ssl.SSLContext:
        """Return a context for clients that trust only a server with this certificate."""
        context = ssl.create_default_context(cafile=str(self.cert))
        context.check_hostname = False
        return context


def unavailable() -> str | None:
    """Return why no certificate can be made, or None."""
    return None if shutil.which("openssl") else "needs openssl on the PATH"


def make_certificate(directory: Path, name: str = "server", *, password: str = "") -> Certificate:
    """Make a new certificate for 127.0.0.1."""
    made = Certificate(directory / f"{name}.pem", directory / f"{name}.key", password)
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-sha256", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(made.key), "-out", str(made.cert)]
    command += ["-passout", f"pass:{password}"] if password else ["-nodes"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made
