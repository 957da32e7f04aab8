"""The pulling consumer: the program asks for messages."""
