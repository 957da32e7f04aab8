"""Options: names in any case, aliases, nearest names, values in words, secrets nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.client.core.tls import ClientTls
from aerobee.errors import InvalidArgumentError
from aerobee.testing.secrets import secret_for
from pyspark_rocketmq.options import COMMON, OptionError, duration_ms, endpoint_of, moment_ms, read_options, size_bytes


def test_names_in_any_case_aliases_and_what_is_sparks_own() -> None:
    given = {
        "NAMESERVER": "a:1",
        "Subscribe": "t",
        "path": "x",
        "checkpointLocation": "c",
        "option.z": "1",
        "owner": "me",
    }
    values = read_options(given, COMMON)
    assert values["nameServer"] == "a:1"
    assert values["topic"] == "t"
    assert values["requestTimeoutMs"] == 10_000


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("nameSrver", "nameServer"),
        ("topics", "topic"),
        ("secretkeys", "secretKey"),
        ("kafka.bootstrap.servers", "nameServer"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(word: str, nearest: str) -> None:
    with pytest.raises(OptionError, match=f"no option {word}: did you mean {nearest}") as caught:
        read_options({word: "1"}, COMMON)
    assert "1" not in str(caught.value).replace(word, "")


def test_two_words_for_one_thing_and_words_of_the_other_side() -> None:
    with pytest.raises(OptionError, match="says the same"):
        read_options({"topic": "a", "subscribe": "b"}, COMMON)
    with pytest.raises(OptionError, match="option guarantee: only when writing"):
        read_options({"Guarantee": "x"}, COMMON, elsewhere={"guarantee": "only when writing"})
    with pytest.raises(OptionError, match="there are accessKey, nameServer"):
        read_options({"zzzzzz": "x"}, COMMON)


def test_secrets_are_in_no_error_and_no_text() -> None:
    with pytest.raises(OptionError) as caught:
        read_options({"secretKey": "   "}, COMMON)
    assert str(caught.value) == "option secretKey: its value is empty"
    values = read_options({"nameServer": "a:1", "accessKey": "who", "secretKey": secret_for("who")}, COMMON)
    endpoint = endpoint_of(values, {})
    assert endpoint.credentials is not None and endpoint.credentials.secret_key == secret_for("who")
    assert secret_for("who") not in repr(endpoint) and "who" not in repr(endpoint)


def test_the_environment_fills_what_is_missing() -> None:
    values = read_options({}, COMMON)
    environ = {"NAMESRV_ADDR": "n:9876;m:9876", "AEROBEE_ACCESS_KEY": "a", "AEROBEE_SECRET_KEY": "s"}
    endpoint = endpoint_of(values, environ)
    assert endpoint.name_servers == ("n:9876", "m:9876")
    assert endpoint.credentials is not None
    with pytest.raises(OptionError, match=r"nameServer is missing.*CREATE TABLE"):
        endpoint_of(values, {})
    with pytest.raises(OptionError, match="go together"):
        endpoint_of(read_options({"nameServer": "a:1", "accessKey": "a"}, COMMON), {})
    for wrong in ("nowhere:x", "a..b:9876", "x" * 300, f"{'é' * 80}:9876"):
        with pytest.raises(OptionError, match=r"option nameServer: .* is not host:port"):
            endpoint_of(read_options({"nameServer": wrong}, COMMON), {})


def test_values_with_units() -> None:
    assert [duration_ms(one) for one in ("15m", "500ms", "10 s", "7", "1h")] == [900_000, 500, 10_000, 7, 3_600_000]
    assert [size_bytes(one) for one in ("64m", "1g", "2kb", "10")] == [64 << 20, 1 << 30, 2048, 10]
    assert moment_ms("1700000000000") == moment_ms("2023-11-14T22:13:20Z") == moment_ms("2023-11-14 22:13:20")
    for read, wrong in ((duration_ms, "soon"), (size_bytes, "much"), (moment_ms, "then")):
        with pytest.raises(ValueError, match="such as"):
            read(wrong)
    with pytest.raises(OptionError, match="option requestTimeoutMs: '0' must be at least 1"):
        read_options({"requestTimeoutMs": "0"}, COMMON)


def test_tls_comes_by_our_names_by_rocketmqs_or_from_the_driver() -> None:
    place = {"nameServer": "a:1"}
    assert endpoint_of(read_options(place, COMMON), {}).tls is None
    ours = {
        "tlsCa": "ca.pem",
        "tlsCert": "c.pem",
        "tlsKey": "k.pem",
        "tlsKeyPassword": secret_for("key"),
        "tlsAnyHost": "true",
    }
    java = {"tls.enable": "true", "tls.client.trustCertPath": "ca.pem", "tls.client.keyPassword": secret_for("key")}
    endpoint = endpoint_of(read_options(place | ours, COMMON), {"AEROBEE_TLS_CA": "other.pem"})
    assert endpoint.tls == ClientTls("ca.pem", "c.pem", "k.pem", secret_for("key"), any_host=True)
    assert secret_for("key") not in repr(endpoint)
    assert endpoint_of(read_options(place | java, COMMON), {}).tls == ClientTls(
        "ca.pem", key_password=secret_for("key")
    )
    around = {"AEROBEE_TLS_CA": "ca.pem"}
    assert endpoint_of(read_options(place, COMMON), around).tls == ClientTls("ca.pem")
    assert endpoint_of(read_options(place | {"tls": "false"}, COMMON), around).tls is None
    with pytest.raises(OptionError, match="tlsKey"):
        endpoint_of(read_options(place | {"tlsKey": "k.pem"}, COMMON), {})


def test_mistakes_are_errors_at_load() -> None:
    """Spark creates the source and asks for its columns at load(), with all names in lower case."""
    from pyspark_rocketmq import DefaultSource

    with pytest.raises(OptionError, match="no option startingoffset: did you mean startingOffsets"):
        DefaultSource({"nameserver": "a:1", "topic": "t", "startingoffset": "latest"})
    DefaultSource({"nameserver": "a:1", "deliveryguarantee": "exactly-once", "checkpointlocation": "/c", "path": "t"})
    # With .schema(...), Spark asks for no columns: what creates the source is all that can tell.
    for given, words in (
        ({"startingoffsets": "first"}, "option startingOffsets: 'first' is none of earliest, latest"),
        ({"maxoffsetspertrigger": "many"}, "option maxOffsetsPerTrigger: 'many' is not a whole number"),
        ({"secretkey": " "}, "option secretKey: its value is empty"),
        ({"mode": "loose"}, "option mode: 'loose'"),
    ):
        with pytest.raises(OptionError, match=words):
            DefaultSource({"nameserver": "a:1", "topic": "t", **given})
    # Each of these is right for one kind of read.
    for given in ({"startingoffsets": "latest"}, {"endingoffsets": "latest"}):
        DefaultSource({"nameserver": "a:1", "topic": "t", **given}).schema()
    with pytest.raises(OptionError, match="no topic"):
        DefaultSource({"nameserver": "a:1"}).schema()
    few = DefaultSource({"nameserver": "a:1", "topic": "t", "columns": "tags, body"})
    assert few.schema().fieldNames() == ["tags", "body"]
    with pytest.raises(OptionError, match=r"unknown column 'BODY' .did you mean body"):
        DefaultSource({"nameserver": "a:1", "topic": "t", "columns": "BODY"}).schema()
    with pytest.raises(OptionError, match=r"option columns: 'tag' has the unknown column 'tag' .did you mean tags"):
        DefaultSource({"nameserver": "a:1", "topic": "t", "columns": "tag"}).schema()


def test_mistakes_of_a_write_and_a_missing_archive_are_errors_before_the_start(tmp_path: Path) -> None:
    """Spark creates the source at start(), but it creates the writer of a stream in the first batch."""
    from pyspark_rocketmq import DefaultSource

    stream = {"nameserver": "a:1", "topic": "t", "checkpointlocation": "/c"}
    for given, words in (
        ({"jobid": "x"}, "option jobId: it names a batch write"),
        ({"deliveryguarantee": "exactly"}, "'exactly' is none of .* .did you mean exactly-once"),
        ({"createtopics": "true", "requestbytes": "1g"}, "option requestBytes: 1073741824 is above"),
        ({"createtopics": "true", "startingoffsets": "latest"}, "option startingOffsets: is an option for reading"),
    ):
        with pytest.raises(OptionError, match=words):
            DefaultSource({**stream, **given})
    DefaultSource({"nameserver": "a:1", "topic": "t", "jobid": "x"})
    (tmp_path / "archive" / "_manifest").mkdir(parents=True)
    DefaultSource({"nameserver": "a:1", "topic": "t", "archive": str(tmp_path / "archive")})
    for path in (tmp_path / "archiv", f"file://{tmp_path}/archiv/"):
        with pytest.raises(InvalidArgumentError, match=f"there is no directory .*Did you mean {tmp_path}/archive"):
            DefaultSource({"nameserver": "a:1", "topic": "t", "archive": str(path)})
    for option in ("tlsca", "tls.client.keypath"):
        with pytest.raises(OptionError, match=r"option (tlsCa|tls.client.keyPath): there is no file /no/where"):
            DefaultSource({"nameserver": "a:1", "topic": "t", option: "/no/where"})
    with pytest.raises(InvalidArgumentError, match="is no archive"):
        DefaultSource({"nameserver": "a:1", "topic": "t", "archive": str(tmp_path)})


def test_a_stream_with_wrong_options_says_why() -> None:
    """A reader that cannot be created would end in Spark's UnboundLocalError."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from pyspark_rocketmq import DefaultSource
    from pyspark_rocketmq.columns.schema import DEFAULT_SCHEMA

    source = DefaultSource({"nameserver": "a:1", "topic": "t", "endingoffsets": "latest"})
    reader = source.streamReader(DEFAULT_SCHEMA)
    for call in (
        reader.initialOffset, reader.getDefaultReadLimit, reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset({}, ReadAllAvailable()), lambda: reader.partitions({}, {}),
    ):  # fmt: skip
        with pytest.raises(OptionError, match="endingOffsets and endingTimestamp are for batch reads"):
            call()
    reader.stop()
    with pytest.raises(OptionError, match="option jobId: it names a batch write"):
        DefaultSource({"nameserver": "a:1", "topic": "t", "jobid": "x"}).streamWriter(DEFAULT_SCHEMA, False)
