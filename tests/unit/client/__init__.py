"""What a client does, seen by a broker that follows a script."""
