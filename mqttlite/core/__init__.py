"""The broker without sockets: six inputs, one `Effects`. Pure and deterministic: no I/O, no clock, no await, no log."""
