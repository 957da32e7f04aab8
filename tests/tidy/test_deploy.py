"""The files of deploy/: they parse, name what exists, and give the servers only options and settings that they have."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from aerobee.app.servers import BROKER_CLASSES, NAMESRV_CLASSES
from aerobee.cli.broker import broker
from aerobee.cli.main import main
from aerobee.cli.namesrv import namesrv
from aerobee.config.loader import load, override_source

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
# API version and kind -> the members that the object must have.
KINDS = {
    ("v1", "Namespace"): (),
    ("v1", "Service"): ("spec.ports", "spec.selector"),
    ("apps/v1", "StatefulSet"): ("spec.serviceName", "spec.selector.matchLabels", "spec.template.spec.containers"),
    ("policy/v1", "PodDisruptionBudget"): ("spec.selector.matchLabels",),
    ("networking.k8s.io/v1", "NetworkPolicy"): ("spec.podSelector", "spec.policyTypes"),
}


def objects() -> list[dict[str, Any]]:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(p.name for p in KUBERNETES.glob("*.yaml") if p.name != "kustomization.yaml")
    return [one for name in listed for one in yaml.safe_load_all((KUBERNETES / name).read_text())]


def at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value[name]
    return value


def started() -> Iterator[tuple[str, list[str]]]:
    """Yield the words of every server that is started: those of compose and of Kubernetes."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        if name != "etcd":
            yield f"compose {name}", [str(word) for word in service["command"]]
    for one in objects():
        for container in one.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
            yield f"kubernetes {one['metadata']['name']}", container["args"]


@pytest.mark.parametrize("words", [words for _, words in started()], ids=[name for name, _ in started()])
def test_servers_know_their_options_and_settings(words: list[str]) -> None:
    command: click.Command = {"broker": broker, "namesrv": namesrv}[words[0]]
    context = command.make_context(words[0], list(words[1:]))
    given = context.params
    assert given["host"] == "0.0.0.0" and given["insecure"]
    classes = BROKER_CLASSES if words[0] == "broker" else NAMESRV_CLASSES
    settings = [word.replace("$(POD_NAME)", "pod").replace("$(POD_NAMESPACE)", "ns") for word in given["settings"]]
    loaded = load(list(classes), override_source(settings))
    assert loaded.properties()


def test_objects_have_what_their_kind_needs() -> None:
    found = objects()
    for one in found:
        for path in KINDS[one["apiVersion"], one["kind"]]:
            assert at(one, path), (one["kind"], path)
    names = {(one["kind"], one["metadata"]["name"]) for one in found}
    for one in found:
        if one["kind"] != "StatefulSet":
            continue
        spec = one["spec"]
        assert ("Service", spec["serviceName"]) in names
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        (service,) = [s for s in found if s["kind"] == "Service" and s["metadata"]["name"] == spec["serviceName"]]
        assert service["spec"]["selector"].items() <= labels.items()
        (container,) = spec["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert {port["name"]: port["port"] for port in service["spec"]["ports"]} == ports
        for probe in ("readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["port"] in ports
        volumes = {v["metadata"]["name"] for v in spec["volumeClaimTemplates"]}
        volumes |= {v["name"] for v in spec["template"]["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert spec["template"]["spec"]["securityContext"]["runAsNonRoot"]


def test_kubectl_renders_them() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl on the PATH")
    done = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    assert {one["kind"] for one in rendered} == {kind for _, kind in KINDS}
    assert {one["metadata"].get("namespace") for one in rendered if one["kind"] != "Namespace"} == {"aerobee"}


def test_compose_is_whole() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= services.keys()
        for volume in service["volumes"]:
            assert volume.partition(":")[0] in compose["volumes"], (name, volume)
        assert set(service["networks"]) <= compose["networks"].keys()
    brokers = [services[name] for name in ("broker-1", "broker-2", "broker-3")]
    told = [[str(word) for word in one["command"] if "brokerIP1" not in str(word)] for one in brokers]
    assert told[0] == told[1] == told[2]
    assert [f"--set=brokerIP1={name}" in services[name]["command"] for name in ("broker-1", "broker-2", "broker-3")]


def test_the_container_file_uses_what_exists() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["docker.io/library/python:3.13-slim"] * 2
    assert "USER 10001:10001" in text and 'ENTRYPOINT ["aerobee"]' in text and "STOPSIGNAL SIGTERM" in text
    (probe,) = re.findall(r'CMD \["aerobee", "(\w+)"\]', text)
    assert probe in main.list_commands(click.Context(main))
    assert (DEPLOY.parent / ".containerignore").read_text() == (DEPLOY.parent / ".dockerignore").read_text()
