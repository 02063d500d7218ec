"""The dataset of telemetry (docs/reference/telemetry.md): rows of sessions, traffic, events and samples in files."""
