"""The builder of the documentation site: links that stay within it, docstrings as it shows them, what it gathers."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

import minigrad
from minigrad import nn, ops, optim, parallel, sheet

DOCS = Path(__file__).resolve().parents[2] / "examples" / "docs"
ROOT = DOCS.parents[1]


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def build():
    before = list(sys.path)
    yield loaded("build")
    sys.path[:] = before


@pytest.fixture(scope="module")
def conf():
    pytest.importorskip("sphinx")
    return loaded("conf")


# ---- links -----------------------------------------------------------------------------------------------------------


def test_links_stay_within_the_site(build, tmp_path):
    site = build.Site(tmp_path)
    for page, link, turned in (
        ("README.md", "examples/docs/gpu.md#data", "examples/docs/gpu.md#data"),
        ("README.md", "minigrad/core/tape.py", "source/minigrad/core/tape-py.md"),
        ("README.md", "minigrad/ops", "source/minigrad/ops.md"),
        ("examples/docs/texts.md", "../notebooks/01_tape.py", "../../examples/notebooks/01_tape.ipynb"),
        ("examples/docs/speed.md", "../../README.md#figures", "../../README.md#figures"),
        ("examples/README.md", "https://example.org", "https://example.org"),
    ):
        assert site.turned(f"See [this `one`]({link}).", Path(page)) == f"See [this `one`]({turned})."
    text = "![curve](examples/pictures/learning-curve.png)\n```\n[no](link)\n```\n"
    assert site.turned(text, Path("README.md")) == text
    with pytest.raises(SystemExit, match="README.md: the link nowhere.md leads nowhere"):
        site.turned("[a](nowhere.md)", Path("README.md"))


# ---- what is gathered ------------------------------------------------------------------------------------------------


def test_everything_is_gathered(build, tmp_path):
    pytest.importorskip("jupytext")
    site = build.Site(tmp_path)
    site.gather()
    for page in (ROOT / "examples" / "docs").glob("*.md"):
        assert page.name == "index.md" or (tmp_path / "examples" / "docs" / page.name).exists()
    for script in (ROOT / "examples" / "notebooks").glob("[0-9]*.py"):
        assert (tmp_path / "examples" / "notebooks" / script.name).with_suffix(".ipynb").exists()
        assert f"examples/notebooks/{script.stem}\n" in (tmp_path / "course.md").read_text()
    shown = (tmp_path / "source" / "minigrad" / "core" / "tape-py.md").read_text()
    assert (ROOT / "minigrad" / "core" / "tape.py").read_text() in shown
    assert "tape-py.md" not in (tmp_path / "source" / "minigrad" / "ops.md").read_text()
    assert "examples/pictures/learning-curve.png" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "examples" / "pictures" / "learning-curve.png").exists()
    index = (tmp_path / "index.md").read_text()
    for page in (ROOT / "examples" / "docs").glob("*.md"):
        assert page.name == "index.md" or f"examples/docs/{page.stem}\n" in index, f"the index lacks {page.name}"


def test_the_api_has_every_public_name(build):
    text = "".join(build.reference.pages().values())
    wanted = [f"minigrad.ops.{name}" for name in ops.__all__]
    wanted += [f"minigrad.nn.{name}" for name in nn.__all__ if inspect.isclass(getattr(nn, name))]
    wanted += [f"minigrad.optim.{name}" for name in optim.__all__ if callable(getattr(optim, name))]
    wanted += [f"minigrad.parallel.{name}" for name in parallel.__all__ if inspect.isclass(getattr(parallel, name))]
    wanted += ["minigrad.Tensor", "minigrad.no_grad", "minigrad.grad", "minigrad.draw.graph", "minigrad.zeros"]
    wanted += ["minigrad.profile.Profile", "minigrad.report.Report"]
    missing = [name for name in wanted if f":: {name}\n" not in text]
    assert not missing and minigrad.__all__


# ---- formulas --------------------------------------------------------------------------------------------------------


def test_every_formula_of_the_notebooks_is_shown(conf):
    found = 0
    for script in (ROOT / "examples" / "notebooks").glob("[0-9]*.py"):
        lines = [line.removeprefix("#").removeprefix(" ") for line in script.read_text().split("\n") if line[:1] == "#"]
        for block, inline in re.findall(r"\$\$(.*?)\$\$|(?<!\$)\$([^$\n]+)\$(?!\$)", "\n".join(lines), re.DOTALL):
            shown = conf.mathml(block or inline, bool(block))
            assert shown.startswith("<math ") and ('display="block"' in shown) == bool(block), block or inline
            found += 1
    assert found > 100
    halves = [conf.mathml(tex, False) for tex in (r"\tfrac12 \textstyle\sum x", r"\tfrac{1}{2} \sum x")]
    assert halves[0] == halves[1]
    assert conf.mathml(r"\nonsense < 1", False) == r"<code>\nonsense &lt; 1</code>"


def test_classes_show_the_arguments_of_their_init(conf):
    shown = conf.process_signature(None, "class", "", nn.Linear, None, "(*args)", None)
    assert shown == ("(in_features, out_features, bias=True, device=None, dtype=None)", None)
    assert conf.process_signature(None, "function", "", ops.relu, None, "(input)", None) is None


# ---- docstrings ------------------------------------------------------------------------------------------------------


def test_a_docstring_is_prose_and_heads(conf):
    lines = ["Scale *all* of x_; `a * b` is code.", "", "x           what is scaled,", "            by much"]
    lines += ["Math    out = 2 * x", "        and more", "Types   floating", "", "    an example"]
    shown = [
        r"Scale \*all\* of x\_; \ ``a * b``\  is code.",
        "",
        "``x``",
        "    what is scaled, by much",
        "",
        "**Math**",
    ]
    shown += ["    ::", "", "        out = 2 * x", "        and more", "", "**Types**", "    floating", "", "::", ""]
    assert conf.rendered(lines) == [*shown, "    an example", ""]


def test_docstrings_of_ops_are_valid(conf):
    """docutils reads what Sphinx is given without a complaint."""
    from docutils import core

    for entry in sheet.entries().values():
        text = "\n".join(conf.rendered(entry.text.split("\n")))
        core.publish_doctree(text, entry.name, settings_overrides={"halt_level": 2, "report_level": 2})
        assert all(line in text for line in entry.own.get("Math", "").split("\n")), entry.name
