"""The gRPC service apache.rocketmq.v2 in front of brokers: in the broker's process, or as `aerobee proxy`."""
