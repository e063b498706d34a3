"""How many printed digits a run reads right, which learned handwriting: python tests/cli/printed_digits.py RUN

The ten digits in three fonts that Matplotlib ships, none of which takes part in training, each by `minigrad predict`.
"""

import contextlib
import io
import sys
import tempfile
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from minigrad.cli import main

FONTS = "DejaVuSans", "DejaVuSerif", "STIXGeneral"


def right(run, folder):
    """{font: the digits that are read right}"""
    found = {}
    for font in FONTS:
        file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
        for digit in "0123456789":
            picture = Image.new("L", (120, 120), 255)
            ImageDraw.Draw(picture).text((60, 60), digit, 0, ImageFont.truetype(file, 80), "mm")
            picture.save(Path(folder) / "digit.png")
            with contextlib.redirect_stdout(said := io.StringIO()):
                assert main(["predict", str(run), str(Path(folder) / "digit.png")]) == 0
            found.setdefault(font, "")
            best = said.getvalue().splitlines()[1].split()[0]
            found[font] += digit if best == digit else ""
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        read = right(sys.argv[1], scratch)
    for font, digits in read.items():
        print(f"{font:12} {digits}")
    print(f"{sum(map(len, read.values()))} of {10 * len(FONTS)} right")
