"""Request handlers: decode, require, plan, act, reply. They do not know each other."""
