"""Who is at the other end, and how the line is kept private: certificates, TLS contexts, identity, authentication.

Sockets live in `net`; rules about packets live in `core`. Nothing here imports another adapter.
"""
