"""The byte layouts of RocketMQ's log files. No other module may write these numbers; all take them from here by name.

Every number is big-endian. A `_POS` is a distance from the start of the record, unit, entry, header or batch part.

Record. V1 has a topic length of one byte. V2 has one of two bytes, for topics over 127 bytes.

    0   4  total size
    4   4  magic            V1 0xDAA320A7, V2 0xDAA320AB; blank (the rest of the file is unused) 0xCBD43194
    8   4  body CRC         crc32 of the body, masked to 31 bits
    12  4  queue id
    16  4  flag             the broker stores the sender's value and does not interpret it
    20  8  queue offset
    28  8  physical offset
    36  4  sys flag
    40  8  born timestamp (ms)
    48  8  born host        IPv4 address 4 and port 4; 20 bytes (IPv6) when the sys flag has BORNHOST_V6
    56  8  store timestamp
    64  8  store host       20 bytes when the sys flag has STOREHOST_V6
    72  4  reconsume times
    76  8  prepared transaction offset
    84  4  body length, then the body
    ..  1 or 2  topic length, then the topic
    ..  2  properties length, then the properties: name 0x01 value 0x02 ...

Each IPv6 host moves all fields after it by V6_HOST_EXTRA bytes. The positions below are those for IPv4 hosts.
RocketMQ: MessageExtEncoder.calMsgLength, CommitLog.checkMessageAndReturnSize, ConsumeQueue, IndexHeader, IndexFile.
"""

from typing import Final

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124

RECORD_SIZE_POS: Final = 0
RECORD_MAGIC_POS: Final = 4
RECORD_BODY_CRC_POS: Final = 8
RECORD_QUEUE_ID_POS: Final = 12
RECORD_FLAG_POS: Final = 16
RECORD_QUEUE_OFFSET_POS: Final = 20
RECORD_PHYSICAL_OFFSET_POS: Final = 28
RECORD_SYS_FLAG_POS: Final = 36
RECORD_BORN_TIMESTAMP_POS: Final = 40
RECORD_BORN_HOST_POS: Final = 48
RECORD_STORE_TIMESTAMP_POS: Final = 56
RECORD_STORE_HOST_POS: Final = 64
RECORD_RECONSUME_TIMES_POS: Final = 72
RECORD_PREPARED_OFFSET_POS: Final = 76
RECORD_BODY_SIZE_POS: Final = 84
RECORD_BODY_POS: Final = 88

# `struct` format of the first eight fields. Only with the sys flag can a reader compute the later positions.
RECORD_HEAD_FORMAT: Final = ">iiiiiqqi"
RECORD_HEAD_SIZE: Final = 40
# Total size and magic, which a blank has too, and their `struct` format.
BLANK_SIZE_MIN: Final = 8
SIZE_AND_MAGIC_FORMAT: Final = ">ii"
# A V1 record without body, topic and properties.
FIXED_SIZE: Final = 91
BODY_LENGTH_SIZE: Final = 4
PROPERTIES_LENGTH_SIZE: Final = 2

HOST_V4_SIZE: Final = 8
HOST_V6_SIZE: Final = 20
HOST_PORT_SIZE: Final = 4
V6_HOST_EXTRA: Final = 12

PROPERTIES_SIZE_MAX: Final = 32767
TOPIC_V1_SIZE_MAX: Final = 127

# System flag bits. RocketMQ: MessageSysFlag.
COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC
BORNHOST_V6: Final = 0x10
STOREHOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_MASK: Final = 0x700

# The seal: the whole-record checksum, Apache's `__CRC32#` property. It is the last 20 bytes of a record that has it:
# name 8, 0x01, ten decimal digits with the lowest first, 0x02.
SEAL_NAME: Final = b"__CRC32#"
SEAL_NAME_WORD: Final = 0x5F5F435243333223  # SEAL_NAME read as one big-endian long
SEAL_NAME_END_POS: Final = 8
SEAL_DIGITS_POS: Final = 9
SEAL_DIGITS: Final = 10
SEAL_VALUE_END_POS: Final = 19
SEAL_SIZE: Final = 20
# Checksums of bodies and records keep 31 bits.
CRC_MASK: Final = 0x7FFFFFFF

# One message of a batch body: total size 4, magic 4 (0), body CRC 4 (0), flag 4, body length 4, body, properties
# length 2, properties.
PART_FLAG_POS: Final = 12
PART_BODY_SIZE_POS: Final = 16
PART_BODY_POS: Final = 20
# `struct` format of the five numbers before the body.
PART_HEAD_FORMAT: Final = ">iiiii"
# A part without body and properties.
PART_FIXED_SIZE: Final = 22

# Unit of a consume queue: physical offset 8, size of the record 4, tags code 8.
UNIT_PHYSICAL_OFFSET_POS: Final = 0
UNIT_RECORD_SIZE_POS: Final = 8
UNIT_TAGS_CODE_POS: Final = 12
UNIT_SIZE: Final = 20
UNIT_FORMAT: Final = ">qiq"
# The record size in a unit that only fills a place without a record. RocketMQ: ConsumeQueue.fillPreBlank.
UNIT_FILL_SIZE: Final = 0x7FFFFFFF
UNITS_PER_FILE: Final = 300_000

# Index file: a header, hash slots of 4 bytes (the number of the newest entry with this hash, 0 for none), entries.
# Entries are numbered from 1: the header's entry count starts at 1, and entry 0 stays empty.
# Header: begin and end timestamp 8 each, begin and end physical offset 8 each, used slots 4, entries 4.
INDEX_HEADER_SIZE: Final = 40
INDEX_HEADER_FORMAT: Final = ">4q2i"
INDEX_BEGIN_OFFSET_POS: Final = 16
INDEX_END_OFFSET_POS: Final = 24
INDEX_COUNT_POS: Final = 36
INDEX_FIRST_COUNT: Final = 1
INDEX_SLOT_SIZE: Final = 4
# Entry: key hash 4, physical offset 8, seconds since the header's begin timestamp 4, previous entry of the slot 4.
INDEX_ENTRY_HASH_POS: Final = 0
INDEX_ENTRY_OFFSET_POS: Final = 4
INDEX_ENTRY_SECONDS_POS: Final = 12
INDEX_ENTRY_PREVIOUS_POS: Final = 16
INDEX_ENTRY_SIZE: Final = 20
INDEX_ENTRY_FORMAT: Final = ">iqii"
