"""Settings of Sphinx for the site of docs/; `make docs` builds it (tools/docs_site.py) into build/site.

Sphinx, because Material for MkDocs (9.8) announces that it will not be maintained after May 2027.
"""

project = "heedful"
html_title = "heedful"
author = "The heedful authors"
extensions = ["myst_nb", "mathml"]  # Markdown and notebooks; formulas without a script (tools/mathml.py)
language = "en"
smartquotes = False

myst_enable_extensions = ["dollarmath"]  # the formulas of notebooks
myst_heading_anchors = 4
myst_fence_as_directive = ["math"]
html_math_renderer = "mathml"

# Outputs are stored in the notebooks and in the annotated paper (`make notebooks`).
nb_execution_mode = "off"
nb_merge_streams = True

html_theme = "furo"
html_logo = html_favicon = "images/mark.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
