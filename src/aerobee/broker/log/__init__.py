"""How every feature writes into the log and reads it back: puts, copies, wake-ups, the tail."""
