"""The remoting protocol without I/O: codes, headers, bodies, commands and the connection machine."""
