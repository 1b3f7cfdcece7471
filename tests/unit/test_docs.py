"""The documentation says what is there: links, commands, presets, keys, functions, examples."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dream import cli
from dream import config as configuration
from dream.identity import SETTLED
from dream.laboratory.reproduce import NAMES as EXPERIMENTS
from dream.laboratory.settings import LabSettings
from dream.methods import METHODS
from dream.telemetry.report import EVALUATION_KEYS

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *(REPOSITORY / name / "README.md" for name in ("deploy", "docker")),
]
IDS = [str(page.relative_to(REPOSITORY)) for page in PAGES]


def commands_of(group: Any, prefix: str = "") -> dict[str, Any]:
    """Every command by the words that call it, those of groups too."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        words = f"{prefix}{name}"
        found |= commands_of(command, f"{words} ") if hasattr(command, "commands") else {words: command}
    return found


COMMANDS = commands_of(typer.main.get_command(cli.app))
CODE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return [body for kind, body in CODE.findall(text) if kind == language]


# --- links -------------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """Names of a page's headings, as web pages of a repository make them."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def broken_links(text: str, folder: Path) -> list[str]:
    found = []
    for link in LINK.findall(CODE.sub("", text)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = folder / name
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page.read_text(encoding="utf-8"), page.parent) == []


def test_a_broken_link_is_noticed() -> None:
    text = "[a](nowhere.md) [b](README.md#no-such-heading) [c](README.md#status)"
    assert broken_links(text, REPOSITORY) == ["nowhere.md", "README.md#no-such-heading"]


# --- commands ----------------------------------------------------------------------------------------------


def faults(line: str) -> list[str]:
    """What the command line would refuse in `dream COMMAND ...`, by names alone."""
    line = line.split(" #")[0].replace("[", " ").replace("]", " ")
    words = re.findall(r'(?:[^\s"]|"[^"]*")+', line)
    if len(words) < 2 or words[1].startswith("-"):
        return []
    group = any(name.startswith(f"{words[1]} ") for name in COMMANDS)
    length = 3 if group else 2
    if group and len(words) < length:
        return []
    command, arguments = " ".join(words[1:length]), words[length:]
    if command not in COMMANDS:
        return [command]
    keys = LabSettings.model_fields if command.startswith("lab ") else configuration.keys()
    options = {name for parameter in COMMANDS[command].params for name in parameter.opts} | {"--help"}
    found = []
    for word in arguments:
        key, equals, _ = word.partition("=")
        if word.startswith("-"):
            found += [word] if key not in options else []
        elif equals and key not in ("KEY", *keys):
            found.append(key)
    preset = arguments[0] if command in ("train", "config") and arguments else "PRESET"
    known = {"PRESET", *configuration.preset_names()}
    experiment = arguments[0] if command == "lab reproduce" and arguments else "NAME"
    found += [] if experiment in ("NAME", *EXPERIMENTS) else [experiment]
    return found + ([] if preset in known or preset.endswith(".yaml") else [preset])


def command_lines(text: str) -> list[str]:
    """`dream ...` at the start of a line of shell, and in backquotes anywhere (not across lines)."""
    shell = [line for block in blocks(text, "sh") for line in block.splitlines() if line.startswith("dream ")]
    return shell + re.findall(r"`(dream [a-z-][^`\n]*)`", CODE.sub("", text))


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_exist(page: Path) -> None:
    lines = command_lines(page.read_text(encoding="utf-8"))
    assert {line: found for line in lines if (found := faults(line))} == {}
    if page.name in ("README.md", "usage.md") and page.parent.name not in ("deploy", "docker"):
        assert len(lines) > 5


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("dream trian leduc-dream", "trian"),
        ("dream train leduc-dreem", "leduc-dreem"),
        ("dream train leduc-dream sampling.traversal=3", "sampling.traversal"),
        ("dream eval RUN --iteration 3", "--iteration"),
        ("dream lab slove kuhn", "lab slove"),
        ("dream lab reproduce ccs-mian", "ccs-mian"),
        ("dream lab solve kuhn --seed 3", "--seed"),
        ("dream lab solve kuhn epsilom=0.5", "epsilom"),
    ],
)
def test_a_wrong_command_is_noticed(line: str, fault: str) -> None:
    assert faults(line) == [fault]


def test_every_command_and_option_is_documented() -> None:
    usage = text_of("docs/usage.md")
    for name, command in COMMANDS.items():
        assert f"`dream {name} " in usage or f"`dream {name}`" in usage, name
        (row,) = [line for line in usage.splitlines() if re.match(rf"\| `dream {name}[ `]", line)]
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert any(f"`{option}" in row for option in parameter.opts), (name, parameter.opts)


def test_make_targets_exist() -> None:
    text = "".join(map(text_of, IDS))
    named = re.findall(r"`make ([a-z-]+)`", text)
    named += re.findall(r"\bmake ([a-z-]+)", "".join(blocks(text, "sh")))
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    assert {"train", "test", "docs"} <= set(named) <= targets


# --- presets, keys, methods --------------------------------------------------------------------------------


def test_presets_that_are_named_exist() -> None:
    prose = CODE.sub("", "".join(map(text_of, IDS)))
    named = set(re.findall(r"\b(?:kuhn|leduc)-[a-z0-9-]+[a-z0-9]", prose))
    named -= {"leduc-like"}
    assert named <= set(configuration.preset_names())
    assert "leduc-dream-quick" in named


def test_the_configuration_page_is_current() -> None:
    assert text_of("docs/configuration.md") == configuration.reference(), "run `make docs`"


def test_the_configuration_page_has_every_key() -> None:
    page = text_of("docs/configuration.md")
    assert {key for key in configuration.keys() if f"| `{key}` |" not in page} == set()  # noqa: SIM118


def test_settled_keys_are_listed() -> None:
    """Keys that a run keeps for life."""
    section = text_of("docs/usage.md").split("## Stopping, going on, extending")[1].split("## ")[0]
    listed = set(re.findall(r"`([a-z_.]+)`", section.split("These cannot")[1].split("One process")[0]))
    assert listed == set(SETTLED)


def test_the_algorithms_of_the_readme_are_the_methods() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (\w+) \|", text_of("README.md"), re.MULTILINE))
    assert {name: rows[name] for name in METHODS} == {n: m.sampler for n, m in METHODS.items()}


def test_evaluation_keys_are_documented() -> None:
    usage = text_of("docs/usage.md")
    assert [key for key in EVALUATION_KEYS if f"`{key}`" not in usage] == []


# --- functions ---------------------------------------------------------------------------------------------


def defines(path: Path, name: str) -> bool:
    """Whether a module defines `function` or `Class.method`."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == part]
        if not found:
            return False
        body = found[0].body
    return True


EQUATIONS = re.findall(r"\| `([\w/]+\.py)` \| `([\w.]+)` \|$", text_of("docs/algorithms.md"), re.MULTILINE)


def test_the_equation_table_is_long_enough() -> None:
    assert len(EQUATIONS) > 30


@pytest.mark.parametrize(("file", "function"), EQUATIONS)
def test_functions_of_the_equation_table_exist(file: str, function: str) -> None:
    assert defines(REPOSITORY / file, function)
    assert not defines(REPOSITORY / file, function + "_of_old")


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_files_that_are_named_exist(page: Path) -> None:
    prose = CODE.sub("", page.read_text(encoding="utf-8"))
    named = re.findall(r"\b((?:dream|actors|learners|buffers|tests|benchmarks)/[\w/]+\.(?:py|yaml))\b", prose)
    assert [name for name in named if not (REPOSITORY / name).is_file()] == []


def test_every_module_has_its_line_in_the_architecture() -> None:
    page = text_of("ARCHITECTURE.md")
    packages = ("buffers", "actors", "learners", "dream")
    modules = [path for package in packages for path in (REPOSITORY / package).rglob("*.py")]
    assert [m.name for m in modules if not re.search(rf"\b{m.stem}\b", page) and m.stem != "__init__"] == []


def test_deviations_in_the_code_are_listed() -> None:
    packages = ("buffers", "actors", "learners", "dream")
    sources = [path for package in packages for path in (REPOSITORY / package).rglob("*.py")]
    marked = [path for path in sources if "Deviation:" in path.read_text(encoding="utf-8")]
    listed = text_of("docs/algorithms.md").count("*Deviation: ")
    assert 1 <= len(marked) <= listed


# --- examples ----------------------------------------------------------------------------------------------

EXAMPLES = [(name, code) for name in ("README.md", "docs/usage.md") for code in blocks(text_of(name), "python")]


@pytest.mark.parametrize(("name", "code"), EXAMPLES, ids=[f"{name}-{k}" for k, (name, _) in enumerate(EXAMPLES)])
def test_python_examples_compile(name: str, code: str) -> None:
    compile(code, name, "exec")


def test_the_game_of_the_usage_page_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    game, training = blocks(text_of("docs/usage.md"), "python")[-2:]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(game, "game", "exec"), names)
    exec(compile(training.replace("iterations=10", "iterations=3"), "training", "exec"), names)
    assert names["policy"].game.get_type().short_name == "python_duel"  # type: ignore[attr-defined]
    assert names["result"].exploitability_milli < 1000.0  # type: ignore[attr-defined]


def test_yaml_examples_load(tmp_path: Path) -> None:
    for number, text in enumerate(blocks(text_of("docs/usage.md"), "yaml")):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text, encoding="utf-8")
        assert configuration.load(file).algorithm == "sd-cfr"
