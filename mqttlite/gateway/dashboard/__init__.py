"""The dashboard at `/`: pages that the broker renders, and a little JavaScript that keeps them up to date.

A view is a module with a function that takes the router and a `Views` and adds its routes; `router` names them all.
Invariant: a page shows what a device sent as text, and costs nothing when nobody looks at it.
"""
