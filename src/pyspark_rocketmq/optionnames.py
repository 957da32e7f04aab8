"""The checks at `load()`, where Spark does not say yet whether it reads a batch or a stream, or writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aerobee.runtime.process import environment
from pyspark_rocketmq.options import COMMON, OptionError, read_options, require_names
from pyspark_rocketmq.sinkoptions import SINK_OPTIONS, require_no_job, sink_options
from pyspark_rocketmq.source.settings import SOURCE_OPTIONS, SourceSettings, source_settings

_OF_SOURCE: Final = {word.lower() for one in SOURCE_OPTIONS for word in (one.name, *one.aliases)}
# Who gives one of these writes, and who gives the option archive reads.
_OF_SINK_ONLY: Final = {word.lower() for one in SINK_OPTIONS for word in (one.name, *one.aliases)} - _OF_SOURCE
# The files that the driver opens. Tasks open them under the same names.
_FILES: Final = {
    word.lower(): word
    for one in COMMON
    if one.name in ("tlsCa", "tlsCert", "tlsKey")
    for word in (one.name, *one.aliases)
}
# Spark adds these to the options of a streaming sink.
_OF_STREAMING_SINK: Final = frozenset(("checkpointlocation", "queryname"))


def require_known(options: Mapping[str, str]) -> None:
    """Raise an error for a name that is no option, a value that an option cannot have, and a path that is not there.

    Spark would raise the errors of a stream's options only after `start()`, and with `.schema(...)` those of a batch
    only when the query runs.
    """
    require_names(options, (*SOURCE_OPTIONS, *SINK_OPTIONS))
    _require_values(options)
    given = {name.lower() for name in options}
    if given & _OF_SINK_ONLY:
        sink_options(options, environment())
        if given & _OF_STREAMING_SINK:
            require_no_job(options)
    for name, path in options.items():
        if name.lower() in _FILES and path.strip() and not Path(path.strip()).is_file():
            raise OptionError(f"option {_FILES[name.lower()]}: there is no file {path.strip()}")
    if "archive" in given:
        from aerobee.runtime.disk import InlineDisk
        from pyspark_rocketmq_store.manifest import require_archive
        from pyspark_rocketmq_store.settings import local_path

        (path,) = (value for name, value in options.items() if name.lower() == "archive")
        require_archive(InlineDisk(), local_path(path))


def _require_values(options: Mapping[str, str]) -> None:
    """Raise OptionError for a value that is wrong for a read and for a write."""
    for name, value in options.items():
        refused: list[OptionError] = []
        sides = [
            [one for one in side if name.lower() in (word.lower() for word in (one.name, *one.aliases))]
            for side in (SOURCE_OPTIONS, SINK_OPTIONS)
        ]
        known = [side for side in sides if side]
        for side in known:
            try:
                read_options({name: value}, side)
            except OptionError as error:
                refused.append(error)
        if refused and len(refused) == len(known):
            raise refused[0]


def require_readable(options: Mapping[str, str]) -> None:
    """Raise an error where the options fit neither a batch read nor a stream, and where a topic does not exist.

    Where no name server answers, nothing is known about a topic. The read itself then waits, or says so.
    """
    settings = _settings(options)
    if settings.wanted.pattern is None:
        from pyspark_rocketmq.source.topics import require_topics

        require_topics(settings.endpoint, settings.wanted.topics)


def _settings(options: Mapping[str, str]) -> SourceSettings:
    try:
        return source_settings(options, environment(), streaming=False)
    except OptionError as refused:
        try:
            return source_settings(options, environment(), streaming=True)
        except OptionError:
            raise refused from None
