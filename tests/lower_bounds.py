"""Print the requirements of pyproject.toml at their lower bounds, one a line, for pip: lower_bounds.py [EXTRA ...]

Requirements without a lower bound, such as other extras of the project, are left out.
"""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = [project["optional-dependencies"][name] for name in sys.argv[1:]]
for requirement in sum(extras, project["dependencies"]):
    if found := re.match(r"([\w.-]+(?:\[[\w,-]+\])?) *>= *([\d.]+)", requirement):
        print("{}=={}".format(*found.groups()))
