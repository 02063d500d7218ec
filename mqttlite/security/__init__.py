"""Authentication, authorization and TLS: certificates, TLS contexts, identities, passwords, tokens, access rules.

Sockets live in `net`; rules about packets live in `core`. Nothing here imports another adapter.
"""
