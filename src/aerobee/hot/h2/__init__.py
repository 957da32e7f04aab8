"""HTTP/2 on bytes: header compression (HPACK) with its Huffman code, and the heads of frames."""
