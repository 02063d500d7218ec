"""Which receivers a message has, and its way to them."""
