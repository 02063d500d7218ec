"""The report for people: one HTML file that needs nothing but a browser, and no network.

`charts` makes figures of rows, `html` puts the page together with plotly.js and a few lines of our own, `page.js`.
Invariant: text that came from a client is escaped on its way into the page, and into a figure.
"""
