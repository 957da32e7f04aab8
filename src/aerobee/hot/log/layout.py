"""The byte layouts of RocketMQ's log, written once: sizes, magic numbers and field positions.

Store record (big-endian), V1 (topic length one byte) and V2 (two bytes, for topics over 127 bytes):

    0   4  total size
    4   4  magic            V1 0xDAA320A7, V2 0xDAA320AB; blank (rest of the file unused) 0xCBD43194
    8   4  body CRC         crc32 of the body, masked to 31 bits
    12  4  queue id
    16  4  flag             the sender's, not interpreted
    20  8  queue offset
    28  8  physical offset
    36  4  sys flag
    40  8  born timestamp (ms)
    48  8  born host        IPv4 4 + port 4; 20 bytes when BORNHOST_V6_FLAG is set
    56  8  store timestamp
    64  8  store host       20 bytes when STOREHOSTADDRESS_V6_FLAG is set
    72  4  reconsume times
    76  8  prepared transaction offset
    84  4  body length, then the body
    ..  1 or 2  topic length, then the topic
    ..  2  properties length, then the properties: name 0x01 value 0x02 ...

RocketMQ: MessageExtEncoder.calMsgLength, CommitLog.checkMessageAndReturnSize.
"""

from typing import Final

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124

# Everything of a V1 record but hosts, body, topic and properties is 91 - 16 = 75 bytes.
FIXED_SIZE: Final = 91
V6_HOST_EXTRA: Final = 12
BLANK_SIZE_MIN: Final = 8

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
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300
COMPRESSION_MASK: Final = 0x700

PROPERTIES_SIZE_MAX: Final = 32767
TOPIC_V1_SIZE_MAX: Final = 127

# Consume queue unit: physical offset 8, size 4, tags code 8.
UNIT_SIZE: Final = 20
UNITS_PER_FILE: Final = 300_000
