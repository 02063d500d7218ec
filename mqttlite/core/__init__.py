"""The broker without sockets: six inputs, one `Turn`. Pure and deterministic: no I/O, no clock, no await, no log."""
