"""The report of a training: one HTML file that needs no other, for any browser, on paper too.

`minigrad train` writes it into the folder of a run; here is what it is made of, for trainings of one's own.
"""

from .report import SECTIONS, Report

__all__ = ["SECTIONS", "Report"]
