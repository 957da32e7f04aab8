"""The checks of options at `load()`, where Spark does not say yet whether it reads a batch or a stream, or writes."""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.runtime.process import environment
from pyspark_rocketmq.options import OptionError, require_names
from pyspark_rocketmq.sinkoptions import SINK_OPTIONS
from pyspark_rocketmq.source.settings import SOURCE_OPTIONS, source_settings


def require_known(options: Mapping[str, str]) -> None:
    """Raise OptionError for a name that is an option neither of reading nor of writing."""
    require_names(options, (*SOURCE_OPTIONS, *SINK_OPTIONS))


def require_readable(options: Mapping[str, str]) -> None:
    """Raise OptionError where the options fit neither a batch read nor a stream."""
    try:
        source_settings(options, environment(), streaming=False)
    except OptionError as refused:
        try:
            source_settings(options, environment(), streaming=True)
        except OptionError:
            raise refused from None
