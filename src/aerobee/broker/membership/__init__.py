"""Who is connected: producers and consumers, their subscriptions, filters, locks and shares of queues."""
