"""The report for people: one HTML file that needs nothing but a browser, no network and no script.

`charts` draws SVG, `tables` knows which tables there are and how each is shown, `html` puts the page together.
Invariant: text that came from a client passes through `html.escape` on its way into the page.
"""
