"""Pictures: of graphs, trainings, images, statistics, and of where time and memory go.

Each function draws with matplotlib into the Axes that it is given, or into a figure of its own without a window, and
returns the Axes, which `save` writes to a file. It takes Tensors of any device and arrays alike. `graph` returns
a Graph instead, a picture that notebooks show and that needs no other program. Colours are from Okabe and Ito's
palette, which people with any colour vision can tell apart; dashes, markers and hatches repeat what they say.

matplotlib is imported when something is drawn; pyplot and the settings of the user are left alone. Legends and colour
bars stand beside the Axes, so figures with several are best made with layout="constrained".
"""

from . import charts, images
from .charts import *
from .graph import Graph, graph
from .images import *
from .style import save

__all__ = ["Graph", "graph", "save"]
__all__ += charts.__all__
__all__ += images.__all__
