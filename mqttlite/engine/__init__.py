"""The engine of a cluster: replicated logs, keys and files. `port` says what it does; the others are its adapters."""
