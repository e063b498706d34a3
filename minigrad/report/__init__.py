"""The report of a training: one HTML file that needs no other, for any browser, on paper too.

`minigrad train` writes it into the folder of a run. Of a training of one's own:

    histograms = train.Histograms(model)
    history = train.fit(model, loader, optimizer, 5, test=test_loader, callbacks=[histograms])
    parts = {"test": test, "predictions": train.predict(model, test_loader), "records": histograms.records}
    Report("my network", history, model, (1, 28, 28), test.classes, **parts).save("report.html")
"""

from .report import SECTIONS, Report

__all__ = ["SECTIONS", "Report"]
