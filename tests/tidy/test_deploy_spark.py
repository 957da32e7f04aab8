"""The files of deploy/kubernetes/spark: Kubernetes' own schemas accept them, and they name what exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from aerobee.cli.main import main

PIPELINE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "spark" / "pipeline.yaml"
VERSIONS = ("1.29", "1.33", "1.37")


def objects() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(PIPELINE.read_text()))


def executor() -> dict[str, Any]:
    (made,) = (yaml.safe_load(one["data"]["executor.yaml"]) for one in objects() if one["kind"] == "ConfigMap")
    return dict(made)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_kubernetes_accept_them(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for one in (*objects(), executor()):
        validate.validate(one, version, strict=True)
    wrong = {**objects()[0], "automount": True}
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, version, strict=True)


def test_the_driver_is_started_with_options_that_exist() -> None:
    (driver,) = (one for one in objects() if one["kind"] == "StatefulSet")
    spec = driver["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    words = [*container["command"], *container["args"]]
    assert words[0] == "aerobee"
    command: click.Command = main
    context = click.Context(main)
    for word in words[1:3]:
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None, word
        command = found
    given = command.make_context("start", words[3:]).params
    assert given["master"].startswith("k8s://https://") and given["checkpoint"]
    confs = dict(one.split("=", 1) for one in given["confs"])
    services = {one["metadata"]["name"]: one for one in objects() if one["kind"] == "Service"}
    ports = {one["name"]: one["port"] for one in services["shop-driver"]["spec"]["ports"]}
    assert confs["spark.driver.host"] == "shop-driver.$(POD_NAMESPACE).svc"
    assert (confs["spark.driver.port"], confs["spark.driver.blockManager.port"]) == (
        str(ports["driver"]), str(ports["blocks"]),
    )  # fmt: skip
    assert {one["name"]: one["containerPort"] for one in container["ports"]} == ports
    known = {one["name"] for one in container["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(words))) <= known
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    (template,) = (one for one in spec["volumes"] if one["name"] == mounts["/template"])
    assert template["configMap"]["name"] == "shop-executor"
    assert confs["spark.kubernetes.executor.podTemplateFile"] == "/template/executor.yaml"
    assert spec["serviceAccountName"] in {
        one["metadata"]["name"] for one in objects() if one["kind"] == "ServiceAccount"
    }
    labels = driver["spec"]["template"]["metadata"]["labels"]
    assert services["shop-driver"]["spec"]["selector"].items() <= labels.items()
