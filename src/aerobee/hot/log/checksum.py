"""crc32, as zlib computes it, from the fastest library at hand.

ISA-L uses the processor's carry-less multiplication: a body of 1 KB takes a tenth of the time that the zlib most
Pythons are built with needs. A platform for which it has no wheel keeps zlib: the sums are the same.
"""

try:
    from isal.isal_zlib import crc32 as crc32
except ImportError:
    from zlib import crc32 as crc32
