"""A store looked at from outside: what is in it, whether it is sound, its messages, its derived files anew."""
