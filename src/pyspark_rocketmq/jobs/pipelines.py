"""Spark Declarative Pipelines with the right settings: one run of a project, in a process of its own.

With its defaults, Spark's own command fails or loses rows. Its catalog forgets tables between runs, its warehouse is
the working directory, and it loses most settings given as arguments (docs/spark/pipelines.md).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark_rocketmq.jobs.failures import JobFailedError, one_line
from pyspark_rocketmq.jobs.projects import SPEC, Project, ProjectError
from pyspark_rocketmq.session import LOG4J, SETTINGS, cores_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EFFECTIVE: Final = ".aerobee-run.yml"
_AT: Final = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?: "
_EVENT: Final = re.compile(_AT + "(.*)$")
# An event and the error that Spark prints below it, up to an empty line or the next event.
_FLOW_ERROR: Final = re.compile(_AT + r"(.*)\nError: (.*(?:\n(?!\d{4}-\d\d-\d\d |\n).*)*)", re.MULTILINE)
_FLOW_NAME: Final = re.compile(r"spark_catalog\.default\.")
_NEEDED: Final = ("pandas", "grpc", "yaml", "google.rpc")
_TAIL: Final = 400
_METASTORE: Final = "spark.hadoop.javax.jdo.option.ConnectionURL"


def demand_pipelines() -> None:
    """Raise an error if a module that SDP imports is missing."""
    for module in _NEEDED:
        try:
            __import__(module)
        except ImportError:
            raise ProjectError(
                f"{module} is not installed, which Spark Declarative Pipelines need",
                hint="pip install 'aerobee[pipelines]'; `aerobee pipeline start` does not need it",
            ) from None


def confs(project: Project, cores: int) -> dict[str, str]:
    """Return every setting of a run: those of `session`, and a catalog inside the project."""
    state = project.state("run")
    home = f"-Dderby.system.home={state} -Dlog4j2.configurationFile={state / 'log4j2.properties'}"
    return {
        **SETTINGS,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.catalogImplementation": "hive",
        _METASTORE: (f"jdbc:derby:;databaseName={state / 'metastore_db'};create=true"),
        "spark.sql.warehouse.dir": str(project.tables),
        "spark.driver.extraJavaOptions": home,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def effective_spec(text: str, project: Project) -> str:
    """Return the project's spec with its storage as an absolute URL, as Spark requires."""
    import yaml

    try:
        spec = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ProjectError(f"{SPEC}: {one_line(str(error))}") from None
    if not isinstance(spec, dict) or "name" not in spec:
        raise ProjectError(f"{SPEC} names no pipeline", hint="it needs at least `name:` and `libraries:`")
    storage = str(spec.get("storage") or project.storage())
    if "://" not in storage:
        spec["storage"] = (project.directory / storage).as_uri()
    return str(yaml.safe_dump(spec, sort_keys=False))


def defaults(project: Project, master: str, more: Mapping[str, str]) -> str:
    """Return every setting as the text of a spark-defaults.conf.

    As arguments they would be lost: PySpark 4.3 passes them to its server ten at a time and keeps only the last ten.
    """
    cores = cores_of(master)
    if cores is None:
        raise ProjectError(
            f"declarative pipelines run on a local master, not on {master}",
            hint="`aerobee pipeline start --master` runs on a cluster",
        )
    every = {**confs(project, cores), **more}
    return "".join(f"{name} {value}\n".replace("\\", "\\\\") for name, value in every.items())


def command(project: Project, master: str, *, dry: bool) -> list[str]:
    """Return the words of Spark's own command."""
    import pyspark

    words = [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "dry-run" if dry else "run"]
    words += ["--remote", f"local[{cores_of(master)}]"]
    return [*words, "--spec", str(project.directory / _EFFECTIVE)]


def environment(project: Project, namesrv: str | None) -> dict[str, str]:
    """Return the environment of the process: this Python, the project's modules, and the name server if given."""
    path = os.pathsep.join([str(project.directory), *(one for one in sys.path if one)])
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(project.state("run")),
        **({} if namesrv is None else {"NAMESRV_ADDR": namesrv}),
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
    }


def run(
    project: Project,
    namesrv: str | None,
    *,
    master: str = "local[*]",
    more: Mapping[str, str] | None = None,
    dry: bool = False,
) -> Iterator[str]:
    """Run the project once and return Spark's reports line by line, or raise JobFailedError with one sentence."""
    demand_pipelines()
    spec = project.directory / SPEC
    if not spec.is_file():
        raise ProjectError(f"no {SPEC} in {project.directory}", hint="`aerobee pipeline new DIR` makes a project")
    problems = project.problems()
    if problems:
        raise ProjectError("; ".join(problems))
    effective = effective_spec(spec.read_text(encoding="utf-8"), project)
    settings = defaults(project, master, more or {})
    state = project.claim("run")
    (state / "log4j2.properties").write_text(LOG4J)
    (state / "spark-defaults.conf").write_text(settings, encoding="utf-8")
    (project.directory / _EFFECTIVE).write_text(effective, encoding="utf-8")
    try:
        # This is not the project's directory, because Spark would leave an empty spark-warehouse there.
        yield from _follow(command(project, master, dry=dry), environment(project, namesrv), state)
    finally:
        (project.directory / _EFFECTIVE).unlink(missing_ok=True)


def _follow(words: list[str], env: dict[str, str], directory: Path) -> Iterator[str]:
    """Return the events of a run, and the rest of its output only if it fails. An interrupt ends all processes."""
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, cwd=directory,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    tail: list[str] = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            found = _EVENT.match(line)
            if found:
                yield found[1].rstrip()
            tail.append(line)
            del tail[:-_TAIL]
        code = process.wait()
    finally:
        _end(process)
    if code:
        raise JobFailedError(reason("".join(tail)))


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, 15)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def reason(output: str) -> str:
    """Return the sentence that explains a failed run, from its output."""
    if any(mark in output for mark in ("Address already in use", "Failed to bind to address", "BindException")):
        return "port 15002 is in use: by another declarative run on this machine, or by a Spark Connect server"
    # The error of a flow follows its event. A flow that failed because of another adds nothing, nor does the end.
    flows = [(found[1], found[2]) for found in _FLOW_ERROR.finditer(output) if "upstream failure" not in found[1]]
    if flows:
        return f"{_FLOW_NAME.sub('', flows[-1][0]).rstrip('.')}: {one_line(flows[-1][1])}"
    for mark in ("Traceback (most recent call last):", "Exception in thread", "Error:"):
        at = output.rfind(mark)
        if at >= 0:
            return one_line(output[at:])
    failed = [found[1] for line in output.splitlines() if (found := _EVENT.match(line)) and "FAILED" in found[1]]
    return failed[-1] if failed else one_line(output[-2000:])


def drop_tables(spark: SparkSession, tables: tuple[str, ...]) -> list[str]:
    """Remove tables from the project's catalog and return those that were in it. `spark` must have `catalog_confs`."""
    known: list[Any] = [row.tableName for row in spark.sql("show tables").collect()]
    dropped = [name for name in tables if name.lower() in known]
    for name in dropped:
        spark.sql(f"drop table if exists `{name}`")
    return dropped


def catalog_confs(project: Project) -> dict[str, str]:
    """Return the settings with which a session sees the tables of earlier runs."""
    names = (
        "spark.sql.catalogImplementation",
        _METASTORE,
        "spark.sql.warehouse.dir",
    )
    every = confs(project, 1)
    return {name: every[name] for name in names}
