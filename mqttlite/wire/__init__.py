"""MQTT 3.1, 3.1.1 and 5.0 as bytes: decode and encode, nothing else. No I/O, no clock, no state but a half packet."""
