"""Settings of the documentation site; `make docs` builds it, offline, and every warning is an
error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import rlcatalog

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "rlcatalog"
author = "the rlcatalog authors"
project_copyright = author
version = release = rlcatalog.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "repository",
    "clean_tree",
    "live_policy",
    "notebooks",
]
exclude_patterns = ["_build", "_ext", "jupyter_execute"]

# --- pages ----------------------------------------------------------------------------------------

#: Titles as targets, named as on a forge: `config.md#activations`.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
#: Several pages are also read where the repository is browsed, and begin where they are included.
suppress_warnings = ["myst.header"]
#: `$ ` before a command and the output below it are not copied.
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_exclude = ".linenos, .gp, .go"

# --- notebooks ------------------------------------------------------------------------------------

nb_execution_mode = "cache"
#: What a page saves lies in a folder that is removed, not in the repository.
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True

# --- reference ------------------------------------------------------------------------------------

nitpicky = True
#: Of docstrings that gymnasium hands down.
nitpick_ignore = [("py:attr", "env")]
#: Docstrings write code between single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
#: Defaults as they are written, instead of the form of an object in memory.
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
#: Nothing is fetched while the site is built, so that other libraries' types lead nowhere.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(_frozen_importlib|_io|argparse|collections|contextlib|gymnasium|importlib|keras|msgspec|np|numpy|os|pathlib|pluggy|ray"
        r"|sb3_contrib|stable_baselines3|subprocess|tensorflow|threading|torch|typer|types|typing)\..*",
    ),
    # Types that signatures show and no door exports: what they are for, the text beside them says.
    (r"py:(class|data|obj|attr)", r"rlcatalog(_\w+)?\.[a-z]\w*(\.\w+)+"),
    (
        r"py:class",
        r"AbstractContextManager|Actions|AlgorithmConfig|AnyEnv|Array|ArrayLike|AutoresetMode|BaseAlgorithm"
        r"|Batch|Choice|Code|ConfigT|Data|DistPlan|Embeddings|EncodedBatch|EnvMaker|EnvProperties"
        r"|FlatConfig|Forms"
        r"|HasOutputLayers|History|Ids|Lowered"
        r"|Masks?|ModelArgument|NotGiven|PartsCatalog|RLModule|Rewards|Rows|RunDisplay|Shapes"
        r"|SharedTable|Sheet|Space|T"
        r"|Tensor|TensorTree|VisibleObservation|Unclaimed|Values|VecEnv|VectorEnv|Verdict|bounds|info"
        r"|kit\.OutputFunction",
    ),
    # Written as a generic of some type, in a docstring.
    (r"py:class", r".*\[.*|.*\]"),
]

# --- looks ----------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"rlcatalog {release}"
html_show_sphinx = False
html_static_path = ["_static"]
#: Guides come before reference pages in the results of the search.
html_search_scorer = str(Path(__file__).parent / "_static/scorer.js")
html_css_files = ["site.css"]
html_js_files = ["tables.js", "home.js"]
html_logo = html_favicon = "_static/logo.svg"
#: The green of the logo, dark enough for text on white, and light enough for text on black.
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b6e55",
        "color-brand-content": "#0b6e55",
        "color-brand-visited": "#0b6e55",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5fd3ab",
        "color-brand-content": "#5fd3ab",
        "color-brand-visited": "#5fd3ab",
    },
}
