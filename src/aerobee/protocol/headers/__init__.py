"""Request and response headers, each declared once as data."""
