"""What a broker does for its administrators: settings, runtime figures, retention."""
