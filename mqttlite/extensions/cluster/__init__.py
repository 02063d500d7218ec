"""A node and its standby: what a broker acknowledged is in a replicated log, and another machine can take over."""
