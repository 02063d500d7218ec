"""What publishers and clients send: packets, offered messages, and those that wait for a receiver."""
