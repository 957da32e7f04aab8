"""The compiled leaf: buffers and ints in, ints, bytes and tuples out."""
