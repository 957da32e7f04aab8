"""The model of a coordination store: what etcd does, with time as an argument.

`tests/contract` compares it with etcd.
"""

from __future__ import annotations

import pytest

from aerobee.coordination.model import KEY_BYTES_MAX, LEASES_MAX, OPERATIONS_MAX, VALUE_BYTES_MAX, KeyModel, ModelLimits
from aerobee.coordination.values import (
    CompareRelation,
    CompareTarget,
    CoordinationFullError,
    CoordinationRefusedError,
    DeleteKeys,
    KeyCompare,
    LeaseMissingError,
    PutKey,
    ReadKeys,
    RevisionCompactedError,
    Txn,
    prefix_end,
)


def put(model: KeyModel, key: bytes, value: bytes = b"v", lease: int = 0) -> int:
    return model.txn(Txn(success=(PutKey(key=key, value=value, lease=lease),))).revision


def everything(model: KeyModel) -> list[bytes]:
    return [kv.key for kv in model.read(ReadKeys(key=b"\0", end=b"\0"))]


def test_a_change_takes_the_next_revision_and_a_key_remembers_its_own() -> None:
    model = KeyModel()
    assert (put(model, b"a"), put(model, b"b"), put(model, b"a", b"2")) == (2, 3, 4)
    (found,) = model.read(ReadKeys(key=b"a"))
    assert (found.value, found.create_revision, found.mod_revision, found.version) == (b"2", 2, 4, 2)


def test_operations_of_one_transaction_share_a_revision() -> None:
    model = KeyModel()
    result = model.txn(Txn(success=(PutKey(key=b"a", value=b"1"), PutKey(key=b"b", value=b"2"))))
    assert {kv.mod_revision for kv in model.read(ReadKeys(key=b"a", end=b"c"))} == {result.revision} == {2}


def test_a_transaction_that_changes_nothing_uses_no_revision() -> None:
    model = KeyModel()
    result = model.txn(Txn(success=(DeleteKeys(key=b"a", end=b"z"), ReadKeys(key=b"a"))))
    assert (result.revision, result.reads) == (1, ((),))


@pytest.mark.parametrize(
    ("target", "relation", "operand", "holds"),
    [
        (CompareTarget.MOD, CompareRelation.EQUAL, 3, True),
        (CompareTarget.MOD, CompareRelation.EQUAL, 2, False),
        (CompareTarget.MOD, CompareRelation.LESS, 4, True),
        (CompareTarget.CREATE, CompareRelation.GREATER, 1, True),
        (CompareTarget.CREATE, CompareRelation.GREATER, 2, False),
        (CompareTarget.VERSION, CompareRelation.NOT_EQUAL, 2, False),
        (CompareTarget.VALUE, CompareRelation.EQUAL, b"two", True),
        (CompareTarget.VALUE, CompareRelation.LESS, b"u", True),
        (CompareTarget.LEASE, CompareRelation.EQUAL, 0, True),
    ],
)
def test_comparisons(target: CompareTarget, relation: CompareRelation, operand: int | bytes, holds: bool) -> None:
    model = KeyModel()
    put(model, b"k", b"one")
    put(model, b"k", b"two")
    compare = KeyCompare(key=b"k", target=target, relation=relation, operand=operand)
    assert model.txn(Txn(compares=(compare,))).succeeded is holds


def test_a_missing_key_has_zeros_and_no_value() -> None:
    model = KeyModel()
    for target in (CompareTarget.MOD, CompareTarget.CREATE, CompareTarget.VERSION, CompareTarget.LEASE):
        assert model.txn(Txn(compares=(KeyCompare(key=b"k", target=target),))).succeeded
    for relation in CompareRelation:
        compare = KeyCompare(key=b"k", target=CompareTarget.VALUE, relation=relation, operand=b"")
        assert not model.txn(Txn(compares=(compare,))).succeeded


def test_a_comparison_that_fails_runs_the_other_branch() -> None:
    model = KeyModel()
    put(model, b"k", b"theirs")
    txn = Txn(
        compares=(KeyCompare(key=b"k", operand=0),),
        success=(PutKey(key=b"k", value=b"mine"),),
        failure=(ReadKeys(key=b"k"),),
    )
    result = model.txn(txn)
    assert not result.succeeded
    assert [kv.value for kv in result.reads[0]] == [b"theirs"]


def test_a_lease_has_a_floor_and_takes_its_keys_with_it() -> None:
    model = KeyModel()
    lease, ttl_s = model.grant(1, now=10.0)
    assert ttl_s == 2
    put(model, b"a", lease=lease)
    put(model, b"b")
    assert not model.expire(11.9)
    assert model.expire(12.0)
    assert everything(model) == [b"b"]
    assert model.keep_alive(lease, 12.1) == 0


def test_keeping_a_lease_begins_its_time_anew() -> None:
    model = KeyModel()
    lease, _ = model.grant(4, now=0.0)
    assert model.keep_alive(lease, 3.0) == 4
    assert not model.expire(6.9)
    assert model.next_end() == 7.0
    assert model.expire(7.0)
    assert model.next_end() is None


def test_a_key_that_is_put_again_leaves_its_old_lease() -> None:
    model = KeyModel()
    old, _ = model.grant(4, now=0.0)
    new, _ = model.grant(4, now=2.0)
    put(model, b"live", lease=old)
    put(model, b"live", lease=new)
    model.expire(4.0)
    assert everything(model) == [b"live"]
    model.revoke(new)
    assert everything(model) == []


def test_a_lease_that_does_not_exist_is_refused_before_anything_changes() -> None:
    model = KeyModel()
    with pytest.raises(LeaseMissingError):
        model.txn(Txn(success=(PutKey(key=b"a", value=b"1"), PutKey(key=b"b", value=b"1", lease=9))))
    with pytest.raises(LeaseMissingError):
        model.revoke(9)
    assert (everything(model), model.revision) == ([], 1)


def test_a_watch_sees_each_change_in_order_from_its_revision_on() -> None:
    model = KeyModel()
    put(model, b"g/a")
    start = put(model, b"g/b")
    put(model, b"other")
    lease, _ = model.grant(4, now=0.0)
    put(model, b"g/c", lease=lease)
    model.expire(4.0)
    batch = model.since(ReadKeys(key=b"g/", end=prefix_end(b"g/")), start)
    seen = [(event.key.key, event.key.mod_revision, event.is_deletion) for event in batch.events]
    assert seen == [(b"g/b", 3, False), (b"g/c", 5, False), (b"g/c", 6, True)]
    assert batch.revision == model.revision == 6


def test_compaction_ends_watches_that_begin_before_it() -> None:
    model = KeyModel()
    for number in range(5):
        put(model, b"%d" % number)
    model.compact(4)
    everywhere = ReadKeys(key=b"\0", end=b"\0")
    with pytest.raises(RevisionCompactedError):
        model.since(everywhere, 3)
    assert [event.key.mod_revision for event in model.since(everywhere, 4).events] == [4, 5, 6]
    with pytest.raises(RevisionCompactedError):
        model.compact(4)
    with pytest.raises(CoordinationRefusedError):
        model.compact(99)


def test_the_history_is_bounded() -> None:
    model = KeyModel(limits=ModelLimits(history_revisions=3))
    for number in range(20):
        put(model, b"k", b"%d" % number)
    assert model.revision - 8 < model.compacted <= model.revision - 2


def test_what_is_saved_comes_back_and_leases_begin_anew() -> None:
    model = KeyModel(cluster=7)
    lease, _ = model.grant(4, now=0.0)
    put(model, b"live", b"\x00\xff", lease=lease)
    put(model, b"state", b"s")
    put(model, b"state", b"t")
    back = KeyModel.load(model.save(), now=100.0)
    whole = ReadKeys(key=b"\0", end=b"\0")
    assert (back.read(whole), back.revision, back.cluster) == (model.read(whole), model.revision, 7)
    assert (back.leases(), back.next_end()) == ({lease: 4}, 104.0)
    assert back.grant(4, now=100.0)[0] != lease
    with pytest.raises(RevisionCompactedError):
        back.since(whole, model.revision)
    assert back.since(whole, model.revision + 1).events == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"v":2,"cluster":1,"revision":1,"keys":[],"leases":{}}',
        b'{"v":1,"cluster":1,"revision":1,"keys":[["YQ==","",5,5,1,0]],"leases":{}}',
        b'{"v":1,"cluster":1,"revision":9,"keys":[["YQ==","",5,5,1,3]],"leases":{}}',
        b'{"v":1,"cluster":1,"revision":1,"keys":[],"leases":{},"more":1}',
    ],
)
def test_content_without_sense_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        KeyModel.load(content, now=0.0)


def test_bounds() -> None:
    model = KeyModel(limits=ModelLimits(bytes_max=100))
    with pytest.raises(CoordinationFullError):
        put(model, b"k", bytes(100))
    put(model, b"k", bytes(50))
    with pytest.raises(CoordinationFullError):
        put(model, b"l", bytes(60))
    model.txn(Txn(success=(DeleteKeys(key=b"k"),)))
    put(model, b"l", bytes(60))
    refused: list[Txn] = [
        Txn(success=(PutKey(key=b"", value=b""),)),
        Txn(success=(PutKey(key=bytes(KEY_BYTES_MAX + 1), value=b""),)),
        Txn(success=(PutKey(key=b"k", value=bytes(VALUE_BYTES_MAX + 1)),)),
        Txn(success=(PutKey(key=b"k", value=b""), PutKey(key=b"k", value=b""))),
        Txn(failure=(PutKey(key=b"k", value=b""), DeleteKeys(key=b"a", end=b"z"))),
        Txn(compares=(KeyCompare(key=b"k"),) * (OPERATIONS_MAX + 1)),
        Txn(compares=(KeyCompare(key=b"k", operand=b"x"),)),
        Txn(compares=(KeyCompare(key=b"k", target=CompareTarget.VALUE, operand=0),)),
    ]
    for txn in refused:
        with pytest.raises(CoordinationRefusedError):
            model.txn(txn)
    for ttl_s in (0, -1, 10**12):
        with pytest.raises(CoordinationRefusedError):
            model.grant(ttl_s, now=0.0)
    for _ in range(LEASES_MAX):
        model.grant(5, now=0.0)
    with pytest.raises(CoordinationRefusedError):
        model.grant(5, now=0.0)


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"a", b"b"), (b"a/", b"a0"), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0")]
)
def test_the_end_of_a_prefix(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end
