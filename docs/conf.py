"""How Sphinx builds the site; `tools/docs` runs it."""

project = "mqttlite"
copyright = "the mqttlite authors"
extensions = ["myst_parser", "sphinx_click", "sphinxcontrib.mermaid"]
source_suffix = {".md": "markdown"}
nitpicky = True
smartquotes = False  # they would change -- in options
highlight_language = "text"

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
mermaid_d3_zoom = False

html_theme = "furo"
html_title = "mqttlite"
html_copy_source = False
pygments_style = "tango"
pygments_dark_style = "github-dark"
