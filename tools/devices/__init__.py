"""The programs behind tools/device and tools/fleet. They use mqttlite's client and know nothing of the broker."""
