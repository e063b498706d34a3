"""Build the documentation site: pages, notebooks with their outputs, API and sources, with every link checked.

pip install -e ".[docs]"
python examples/docs/build.py [--out FOLDER]

Pages stay where they are read on their own (README, examples, this folder). They are gathered in build/docs/source,
with links turned so that they stay within the site: a link to a notebook or a page leads there, one to a file of the
repository to a page that shows it. Sphinx then makes HTML, where any warning is an error.
"""

import argparse
import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
NOTEBOOKS = ROOT / "examples" / "notebooks"
sys.path[:0] = [str(HERE), str(ROOT), str(ROOT / "kernels")]

import reference  # noqa: E402

COURSE, INDEX = NOTEBOOKS.relative_to(ROOT) / "README.md", HERE.relative_to(ROOT) / "index.md"
LINK = re.compile(r"(?<!!)(\[(?:[^\[\]]|\[[^\[\]]*\])*\])\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".yaml": "yaml", ".sbatch": "bash", ".toml": "toml"}


class Site:
    """What has been gathered, by repository path, and what is still to be shown."""

    def __init__(self, folder):
        self.folder, self.sources = folder, []
        self.pages = {path: path.with_suffix("") for path in _pages()}
        self.pages |= {script: script.with_suffix("") for script in _notebooks()}
        self.pages |= {COURSE: Path("course"), INDEX: Path("index")}

    def place(self, target):
        """The document, without ending, that stands for a file or folder of the repository."""
        target = target.relative_to(ROOT)
        if target in self.pages:
            return self.pages[target]
        if (ROOT / target).is_dir() and target / "README.md" in self.pages:
            return self.pages[target / "README.md"]
        if target not in self.sources:
            self.sources.append(target)
        return Path("source") / (target if (ROOT / target).is_dir() else target.parent / target.name.replace(".", "-"))

    def turned(self, text, page):
        """The text of a page (a path in the repository) with links that stay within the site."""
        here = (self.pages.get(page) or page).parent

        def turn(match):
            label, (target, hash, anchor) = match[1], match[2].partition("#")
            if not target or re.match(r"[a-z]+:", target):
                return match[0]
            file = (ROOT / page.parent / target).resolve()
            if file.parent == NOTEBOOKS and file.suffix == ".ipynb":
                file = file.with_suffix(".py")  # one page for both
            if not file.exists():
                raise SystemExit(f"{page}: the link {match[2]} leads nowhere")
            document = self.place(file)
            up = "../" * len(here.parts)
            ending = ".ipynb" if document.parent == NOTEBOOKS.relative_to(ROOT) else ".md"
            return f"{label}({up}{document.as_posix()}{ending}{hash}{anchor})"

        parts, end = [], 0
        for block in CODE.finditer(text):
            parts += [LINK.sub(turn, text[end : block.start()]), block[0]]
            end = block.end()
        return "".join([*parts, LINK.sub(turn, text[end:])])

    def write(self, document, text):
        file = self.folder / document.with_name(document.name + ".md")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    # ---- what is gathered ----------------------------------------------------------------------------------------

    def gather(self):
        for page in _pages():
            text = (ROOT / page).read_text(encoding="utf-8")
            for picture in PICTURE.findall(text):
                self.copy((ROOT / page.parent / picture).resolve().relative_to(ROOT))
            self.write(self.pages[page], self.turned(text, page))
        for script in _notebooks():
            self.notebook(script)
        self.write(self.pages[COURSE], self.course())
        self.write(self.pages[INDEX], self.turned((ROOT / INDEX).read_text(encoding="utf-8"), INDEX))
        for document, text in reference.pages().items():
            self.write(Path(document), text)
        for target in self.sources:  # grows while folders are shown
            self.source(target)
        for name in ("conf.py", "site.css"):
            shutil.copy(HERE / name, self.folder)

    def copy(self, path):
        (self.folder / path.parent).mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, self.folder / path)

    def notebook(self, script):
        """The notebook with the outputs that lie beside its source; its text alone where there are none."""
        finished = (ROOT / script).with_suffix(".ipynb")
        if finished.exists():
            content = json.loads(finished.read_text(encoding="utf-8"))
        else:
            import jupytext

            content = json.loads(jupytext.writes(jupytext.read(ROOT / script), fmt="ipynb"))
        content["metadata"].setdefault("language_info", {"name": "python"})
        for cell in content["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = self.turned("".join(cell["source"]), script)
        file = self.folder / self.pages[script].with_suffix(".ipynb")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content), encoding="utf-8")

    def course(self):
        """The page about the course, with the notebooks as its parts."""
        text = self.turned((ROOT / COURSE).read_text(encoding="utf-8"), COURSE) if (ROOT / COURSE).exists() else ""
        text = text or "# The course\n"
        listed = "\n".join(self.pages[script].as_posix() for script in _notebooks())
        return f"{text}\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"

    def source(self, target):
        """A page that shows a file, or lists a folder."""
        path, document = ROOT / target, self.place(ROOT / target)
        text = f"---\norphan: true\n---\n\n# {target.as_posix().replace('_', chr(92) + '_')}\n\n"
        up = "../" * len(document.parent.parts)
        if path.is_dir():
            for child in sorted(path.iterdir(), key=lambda child: (child.is_file(), child.name)):
                if _shown(child):
                    text += f"- [{child.name}]({up}{self.place(child).as_posix()}.md){_summary(child)}\n"
        else:
            language, fence = LANGUAGES.get(path.suffix, "text"), "`" * 8  # longer than any in the file
            text += f"{fence}{{code-block}} {language}\n:linenos:\n\n{path.read_text(encoding='utf-8')}\n{fence}\n"
        self.write(document, text)


def _pages():
    found = [path.relative_to(ROOT) for path in sorted((ROOT / "examples").rglob("*.md"))]
    return [Path("README.md"), Path("tests/README.md"), *(path for path in found if path not in (COURSE, INDEX))]


def _notebooks():
    return [path.relative_to(ROOT) for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.py"))]


def _shown(path):
    """Whether a folder's page lists a file or folder."""
    if path.is_dir():
        return path.name not in ("__pycache__", "runs", "build") and any(map(_shown, path.iterdir()))
    return path.suffix in (".py", ".md", ".json", ".yaml", ".sbatch") and not path.name.startswith(".")


def _summary(path):
    """The first line of the docstring of a module or package."""
    file = path / "__init__.py" if path.is_dir() else path
    if file.suffix != ".py" or not file.exists():
        return ""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    first = text.partition("\n")[0]
    return ": " + re.sub(r"([\\*_<`\[\]|$])", r"\\\1", first) if first else ""


def main(out=None):
    source = ROOT / "build" / "docs" / "source"
    html = Path(out) if out else ROOT / "build" / "docs" / "html"
    shutil.rmtree(source, ignore_errors=True)
    Site(source).gather()
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-j", "auto"]
    code = subprocess.run([*command, str(source), str(html)]).returncode
    if not code:
        print(f"the site: {html / 'index.html'}")
    return code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--out", help="the folder for the HTML; default build/docs/html")
    sys.exit(main(**vars(parser.parse_args())))
