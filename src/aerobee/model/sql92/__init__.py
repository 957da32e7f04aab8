"""SQL92 message filters: text in, a compiled filter over a message's properties out. Pure."""
