"""Sans-I/O remoting: command codes, headers, bodies, the connection machine."""
