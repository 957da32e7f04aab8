"""The two native classes of the log: a Draft on its way in (or found by a scan), a Record read back whole."""


class Draft:
    """One message from the send request to the sinks: assign, encode, write and dispatch share this object.

    A scan of the log builds the same object without its body. Hosts are address + 4-byte port: 8 or 20 bytes.
    """

    def __init__(
        self,
        topic: bytes,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes,
        properties: bytes,
        tags_code: int,
        keys: str,
        uniq_key: str,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.body = body
        self.properties = properties
        self.tags_code = tags_code
        self.keys = keys
        self.uniq_key = uniq_key
        # Set on the way: by the store when it assigns, by encode_records, or by a scan.
        self.queue_offset: int = 0
        self.physical_offset: int = -1
        self.store_timestamp: int = 0
        self.size: int = 0
        self.body_crc: int = 0
        # The property bytes last made ready for the log (see record._seal); compared by identity. Whoever makes a draft
        # of properties that are sure to hold no checksum may set it too.
        self.sealed: bytes | None = None
        # The value of TAGS, b"" for none; None where nobody has looked for it yet.
        self.tags: bytes | None = None

    def __repr__(self) -> str:
        return (
            f"Draft({self.topic!r}, queue {self.queue_id} offset {self.queue_offset}, "
            f"physical {self.physical_offset}, {self.size} bytes)"
        )


class Record:
    """Every field of one stored message, as its bytes say: topic, body and properties undecoded."""

    def __init__(
        self,
        size: int,
        body_crc: int,
        queue_id: int,
        flag: int,
        queue_offset: int,
        physical_offset: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_timestamp: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes,
        topic: bytes,
        properties: bytes,
    ) -> None:
        self.size = size
        self.body_crc = body_crc
        self.queue_id = queue_id
        self.flag = flag
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_timestamp = store_timestamp
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.body = body
        self.topic = topic
        self.properties = properties

    def __repr__(self) -> str:
        return (
            f"Record({self.topic!r}, queue {self.queue_id} offset {self.queue_offset}, "
            f"physical {self.physical_offset}, {self.size} bytes)"
        )
