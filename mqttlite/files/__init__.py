"""Files that other processes read or change: written at once, and told apart by version."""
