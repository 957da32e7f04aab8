"""Values: message, topic, group, route; offsets as NewTypes."""
