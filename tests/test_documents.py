"""README and docs: every code block runs as it stands, every link and every name of the source leads somewhere.

A fence says what its block is. `python` and `console` run, those of a page in their order and in one folder of small
files; in `console` the lines after "$ " are commands, in `python` a comment `# -> ...` is what the block prints. `text`
is what a program prints, a layout or a picture of text. A word and a reason may stand behind it:

    not-run     the block is parsed, what it imports and calls is there, its commands and options exist
    slow        it runs in `make regress` alone
    oracle      the MLP core is the oracle
    torch       it runs where this extra is installed
    torchrec    it runs where TorchRec is
"""

import ast
import importlib
import inspect
import os
import re
import shlex
import shutil
import tomllib
from contextlib import chdir
from dataclasses import fields
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import fpga.card.runs
from gen.model import network
from gen.model.log_options import LogOptions
from gen.model.recommender import WORDS, TableSpec
from gen.rtl.config import load
from hotrail.__main__ import main
from tests import test_import_law
from tests.support import mlp_card, mlp_sizes

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.M | re.S)
INFO = re.compile(r"(python|console|text)(?: (not-run|slow|oracle|torch|torchrec): (.+))?")
OURS = ("hw", "golden", "gen", "verif", "fpga", "bench", "hotrail")


def blocks(text):
    """(line, what it is, how it is tried, content) of every fence. Raises ValueError: a fence that says nothing."""
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        info = INFO.fullmatch(match[2])
        if info is None:
            raise ValueError(f"line {line}: a fence says python, console or text, and why it is not run, not "
                             f"{match[2]!r}")
        content = "".join(part.removeprefix(match[1]) for part in match[3].splitlines(True))
        found.append((line, info[1], info[2] or "run", content))
    return found


def commands(content):
    """Commands of a console block, continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", content)
    return [line[2:].split("   #")[0].strip() for line in joined.splitlines() if line.startswith("$ ")]


def checked(command, root=ROOT):
    """Raises ValueError: a `hotrail`, a `make` or a test that there is not, or options that it does not take."""
    words = [word for word in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=\S*", word)]
    given = [word.partition("=")[0] for word in shlex.split(command) if word not in words]
    if words[:1] == ["make"]:
        text = (root / "Makefile").read_text("utf-8")
        for word in words[1:]:
            if not re.search(rf"^{word}:", text, re.M):
                raise ValueError(f"there is no target {word}: {command}")
        for name in given:
            if not re.search(rf"\$[({{]{name}\b", text) and not name.startswith("HOTRAIL_"):
                raise ValueError(f"the Makefile knows nothing of {name}: {command}")
    elif words and words[0].split("/")[-1] == "pytest":
        for word in words[1:]:
            if "/" in word and not (root / word).exists():
                raise ValueError(f"there is no {word}: {command}")
    elif words and words[0].split("/")[-1] == "hotrail":
        known = main.commands.get(words[1])
        if known is None:
            raise ValueError(f"there is no command {words[1]}: {command}")
        try:
            known.make_parser(click.Context(known)).parse_args(words[2:])
        except click.UsageError as error:
            raise ValueError(f"{error.message}: {command}") from None


def parsed(content):
    """Raises what is wrong with a block that is not run: syntax, imports, keywords of what it calls."""
    tree, names = ast.parse(content), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in OURS:
            module = importlib.import_module(node.module)
            for alias in node.names:
                names[alias.asname or alias.name] = (getattr(module, alias.name) if hasattr(module, alias.name) else
                                                     importlib.import_module(f"{node.module}.{alias.name}"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (called := names.get(getattr(node.func, "id", ""))) is not None:
            takes = inspect.signature(called).parameters.values()
            wrong = [key.arg for key in node.keywords if key.arg and key.arg not in [each.name for each in takes]]
            if wrong and not any(each.kind is each.VAR_KEYWORD for each in takes):
                raise TypeError(f"{node.func.id} takes no {', '.join(wrong)}")


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """The files that the pages speak of, as the command writes them that README names."""
    folder = tmp_path_factory.mktemp("desk")
    assert CliRunner().invoke(main, ["example", str(folder)]).exit_code == 0
    return folder


def oracle(monkeypatch):
    """Cards of networks have the oracle for a core."""
    real = fpga.card.runs.open_card
    monkeypatch.setattr(fpga.card.runs, "open_card", lambda kind, *, core, preset, **more: mlp_card.OracleCard(
        mlp_sizes.core(load(preset).cores["mlp"])) if core == "mlp" else real(kind, core=core, preset=preset, **more))


@pytest.mark.parametrize("name", NAMES)
def test_code_blocks(name, desk, tmp_path, monkeypatch, capsys):
    text = (ROOT / name).read_text("utf-8")
    if "$ hotrail example\n" not in text:
        shutil.copytree(desk, tmp_path, dirs_exist_ok=True)
    with chdir(tmp_path):
        for line, kind, how, content in blocks(text):
            where = f"{name}:{line}"
            if kind == "console":
                assert commands(content), f"{where}: no command begins with $"
            for command in commands(content) if kind == "console" else ():
                checked(command)
                if how == "run" or how == "slow" and os.environ.get("HOTRAIL_REGRESS"):
                    program, *arguments = shlex.split(command)
                    assert program == "hotrail", f"{where}: {command} is run by nobody; say not-run: and why"
                    done = CliRunner().invoke(main, arguments)
                    assert done.exit_code == 0, f"{where}: {command}\n{done.output}"
            if how in ("torch", "torchrec") and find_spec(how) is None:
                ast.parse(content)
            elif kind == "python" and how == "not-run":
                parsed(content)
            elif kind == "python":
                with monkeypatch.context() as patch:
                    if how == "oracle":
                        oracle(patch)
                    capsys.readouterr()
                    exec(compile(content, where, "exec"), {"__name__": "__main__"})
                printed = capsys.readouterr().out.splitlines()
                for wanted in re.findall(r"# -> (.*)", content):
                    assert wanted in printed, f"{where}: it prints {printed}"


def slug(heading):
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower()).replace(" ", "-")


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    page = ROOT / name
    bare = FENCE.sub("", page.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", bare):
        path, _, anchor = target.partition("#")
        if ":" in path:
            continue
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name}: {target} leads nowhere"
        if anchor:
            assert anchor in map(slug, re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.M)), f"{name}: no {target}"


def missing(token, root=ROOT):
    """Whether a path or a dotted name of the source that a page gives in backquotes is not there; x and y are any."""
    if "/x/" in token:
        return False
    if re.fullmatch(rf"(?:{'|'.join(OURS)}|docs|tests|\.ci)/[\w./*-]*", token):
        return not list(root.glob(token.rstrip("/")))
    if re.fullmatch(rf"(?:{'|'.join(OURS)})(?:\.\w+)+", token):
        parts = token.split(".")
        for count in range(len(parts), 0, -1):
            place = root.joinpath(*parts[:count])
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.exists():
                    return not all(re.search(rf"\b{part}\b", file.read_text("utf-8")) for part in parts[count:])
        return not root.joinpath(*parts).is_dir()
    return False


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_source_are_there(name):
    text = FENCE.sub("", (ROOT / name).read_text("utf-8"))
    gone = [token for token in re.findall(r"`([^`\s]+?)(?:\(.*?\))?`", text) if missing(token.split("::")[0])]
    assert not gone, f"{name} names {', '.join(gone)}"


@pytest.mark.parametrize("name", NAMES)
def test_code_stands_in_fences(name):
    text = FENCE.sub("", (ROOT / name).read_text("utf-8"))
    assert not re.search(r"\n\n    \S", text), f"{name}: an indented block is not tried; put it in a fence"


def generated():
    """The names of the site's generated pages and what makes their text."""
    spec = spec_from_file_location("mkdocs_hooks", ROOT / ".ci" / "mkdocs_hooks.py")
    hooks = module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return hooks.GENERATED


def test_the_site_has_every_page():
    """In a place of its own; mkdocs itself refuses links and anchors that lead nowhere."""
    named = re.findall(r"^ +- .*: ([\w/-]+\.md)$", (ROOT / ".ci" / "mkdocs.yml").read_text("utf-8"), re.M)
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} | set(generated())
    assert not pages - set(named), "give these pages a place in .ci/mkdocs.yml"
    assert not set(named) - pages and len(named) == len(pages)


def test_the_models_file_has_every_key():
    """Of a recommender, its tables, its log and its network, as their readers take them."""
    page = (ROOT / "docs" / "model-file.md").read_text("utf-8")
    known = {"about", "network", "dim", "batch", *(field.name for field in fields(LogOptions)),
             *(field.name for field in fields(TableSpec)), *network.KEYS} - {"name"}
    told = {name for row in re.findall(r"^\| (`.*?) \|", page, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert told == known
    for words in (*WORDS.values(), network.ACTIVATIONS, network.INTERACTIONS):
        assert all(f"`{word}`" in page for word in words), words


@pytest.mark.turns(1, of="syntheses")
def test_generated_pages_are_not_in_the_tree():
    """They begin with their title and are made anew by `make docs`."""
    for name, text in generated().items():
        assert not (ROOT / "docs" / name).exists() and text().startswith("# "), name


def test_any_answer_is_two_steps_from_the_help():
    """`hotrail --help` names the guide, and the guide every page."""
    assert "docs/index.md" in CliRunner().invoke(main, ["--help"]).output
    linked = set(re.findall(r"\]\(([\w/-]+\.md)", (ROOT / "docs" / "index.md").read_text("utf-8")))
    assert linked == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"index.md"}


def test_a_trained_model_is_on_cards_in_ten_lines():
    """From TorchRec's model and a log to a bundle that runs, and from a file."""
    text = (ROOT / "docs" / "trained-models.md").read_text("utf-8")
    found = [[line for line in content.splitlines() if line.strip() and not line.lstrip().startswith("#")]
             for _, kind, _, content in blocks(text) if kind == "python"]
    torchrec, *_, file = found
    assert len(torchrec) <= 10 and len(file) <= 10 and "hotrail.compile" in "".join(torchrec) and "verify" in file[-2]


def test_who_cites_names_this_version():
    told = dict(re.findall(r"^([\w-]+): (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.M))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (told["version"], told["license"]) == (project["version"], project["license"])


def test_wrong_blocks_are_seen():
    with pytest.raises(ValueError, match="line 3: a fence says"):
        blocks("one\n\n```\nx\n```\n")
    assert blocks("1. a\n   ```python not-run: no card\n   x = (1,\n        2)\n   ```\n") == [
        (2, "python", "not-run", "x = (1,\n     2)\n")]
    assert commands("$ hotrail plan LOG \\\n      --cards 2   # two\nout\n") == ["hotrail plan LOG --cards 2"]
    for wrong in ("hotrail plan LOG --card-count 2", "hotrail build", "make everything", "make test SPEED=fast",
                  "pytest verif/no_such_test.py"):
        with pytest.raises(ValueError, match=wrong):
            checked(wrong)
    with pytest.raises(TypeError, match="open_log takes no formats"):
        parsed("from gen.data.logs import open_log\nopen_log('a', formats='npz')")
    with pytest.raises(ModuleNotFoundError, match="read_log"):
        parsed("from gen.data.logs import read_log")
    assert missing("hw/emb/none.py") and missing("gen.data.logs.no_such_name") and missing("gen.nothing")
    assert not any(map(missing, ("hw/emb/", "gen.data.logs.open_log", "verif/tt/test_*.py", "numpy.load")))


def test_the_table_of_packages_has_the_order_of_the_import_rules():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    for room, wings in test_import_law.WINGS.items():
        rows = re.findall(rf"^\| (`{room}\..*?) \|", text, re.M)
        assert re.findall(rf"`{room}\.(\w+)`", " ".join(rows)) == list(wings)
