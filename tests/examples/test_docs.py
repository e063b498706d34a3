"""The builder of the documentation site: links that stay within it, names, formulas, docstrings."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

import minigrad
from minigrad import nn, ops, optim, parallel

DOCS = Path(__file__).resolve().parents[2] / "examples" / "docs"


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def build(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    return loaded("build")


@pytest.fixture
def conf():
    pytest.importorskip("sphinx")
    return loaded("conf")


def test_links_stay_within_the_site(build, tmp_path):
    """Those of the pages lead somewhere, or the builder would end."""
    turned = lambda page, link: build.Site(tmp_path).turned(f"[this]({link})", Path(page))
    assert turned("README.md", "minigrad/core/tape.py") == "[this](source/minigrad/core/tape-py.md)"
    assert turned("examples/docs/figures.md", "../../README.md#figures") == "[this](../../README.md#figures)"
    assert turned("examples/README.md", "https://example.org") == "[this](https://example.org)"
    with pytest.raises(SystemExit, match="README.md: the link nowhere.md leads nowhere"):
        turned("README.md", "nowhere.md")


def test_the_api_has_every_public_name(build):
    text = "".join(build.reference.pages().values())
    wanted = [f"minigrad.ops.{name}" for name in ops.__all__]
    for module in (nn, optim, parallel):
        wanted += [f"{module.__name__}.{name}" for name in module.__all__ if inspect.isclass(getattr(module, name))]
    wanted += ["minigrad.Tensor", "minigrad.no_grad", "minigrad.grad", "minigrad.draw.graph", "minigrad.zeros"]
    wanted += ["minigrad.profile.Profile", "minigrad.report.Report"]
    assert not [name for name in wanted if f":: {name}\n" not in text] and minigrad.__all__


def test_every_formula_of_the_notebooks_is_shown(conf):
    found = 0
    for script in (DOCS.parent / "notebooks").glob("[0-9]*.py"):
        lines = [line.removeprefix("#").removeprefix(" ") for line in script.read_text().split("\n") if line[:1] == "#"]
        for block, inline in re.findall(r"\$\$(.*?)\$\$|(?<!\$)\$([^$\n]+)\$(?!\$)", "\n".join(lines), re.DOTALL):
            shown = conf.mathml(block or inline, bool(block))
            assert shown.startswith("<math ") and ('display="block"' in shown) == bool(block), block or inline
            found += 1
    assert found > 100
    assert conf.mathml(r"\tfrac12 \textstyle\sum x", False) == conf.mathml(r"\tfrac{1}{2} \sum x", False)
    assert conf.mathml(r"\nonsense < 1", False) == r"<code>\nonsense &lt; 1</code>"


def test_a_docstring_is_prose_and_heads(conf):
    lines = ["Scale *all* of x_; `a * b` is code.", "", "x           what is scaled,", "            by much"]
    lines += ["Math    out = 2 * x", "        and more", "Types   floating", "", "    an example"]
    shown = [r"Scale \*all\* of x\_; \ ``a * b``\  is code.", "", "``x``", "    what is scaled, by much", ""]
    shown += ["**Math**", "    ::", "", "        out = 2 * x", "        and more", "", "**Types**", "    floating", ""]
    assert conf.rendered(lines) == [*shown, "::", "", "    an example", ""]
