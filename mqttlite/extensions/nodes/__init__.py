"""Several brokers as one: what is published at one reaches the subscribers of all."""
