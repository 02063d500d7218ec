"""The engine on NATS JetStream. Only who connects to an engine imports these modules: nats-py is an extra."""
