"""SQL92 message filters: an expression is compiled into a filter over a message's properties."""
