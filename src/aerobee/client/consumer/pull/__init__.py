"""The pull consumer: hands messages to the program when it asks for them."""
