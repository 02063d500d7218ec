"""The dashboard at `/`: server-rendered pages, and a little JavaScript that keeps them up to date.

A view is a module with a function that takes the router and a `Views` and adds its routes; `router` names them all.
Invariant: data from devices is shown as text only, and a page costs nothing while it is not open.
"""
