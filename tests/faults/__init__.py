"""Disks that lose power, fail and are damaged, below the store, and a broker above it."""
