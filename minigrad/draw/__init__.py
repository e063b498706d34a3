"""Pictures: of graphs, trainings, images, statistics, and of where time and memory go.

Each function draws with matplotlib into the Axes that it is given, or into a figure of its own without a window, and
returns the Axes, which `save` writes as SVG or PNG. It takes Tensors of any device and arrays alike. `graph` returns
a Graph instead, a picture that notebooks show and that needs no other program. Colours are from Okabe and Ito's
palette, which people with any colour vision can tell apart; dashes, markers and hatches repeat what they say.

matplotlib is imported when something is drawn; pyplot and the settings of the user are left alone. Legends and colour
bars stand beside the Axes, so figures with several are best made with layout="constrained".
"""

from .charts import confusion_matrix, histograms, learning_curve, memory, save_learning_curve, timeline
from .graph import Graph, graph
from .images import feature_maps, filters, worst_mistakes
from .style import save

__all__ = [
    "Graph",
    "confusion_matrix",
    "feature_maps",
    "filters",
    "graph",
    "histograms",
    "learning_curve",
    "memory",
    "save",
    "save_learning_curve",
    "timeline",
    "worst_mistakes",
]
