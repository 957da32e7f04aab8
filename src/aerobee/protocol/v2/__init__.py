"""Messages of the service apache.rocketmq.v2, as classes with a table of their fields."""
