"""Bodies of requests and answers: JSON documents, each declared once as data."""
