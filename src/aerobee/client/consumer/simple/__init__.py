"""The simple consumer: it hands out messages for a time, and the program says when each is done."""
