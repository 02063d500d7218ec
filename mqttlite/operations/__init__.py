"""What operators see of a running broker and do to it, and what watches it for them. HTTP and commands are above."""
