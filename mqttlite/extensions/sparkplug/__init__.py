"""Sparkplug awareness: certificates of births, and the times of deaths."""
