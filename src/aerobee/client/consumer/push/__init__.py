"""The push consumer: pulls ahead and calls the handlers that the program declared."""
