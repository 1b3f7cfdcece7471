"""Every command of dream and of Ray in deploy/ and docker/ is one that the installed programs understand."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main
import yaml
from ray.scripts.scripts import cli as ray_command
from typer.exceptions import TyperException

from dream import cli
from dream import config as configuration

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = sorted(
    path
    for folder in ("deploy", "docker")
    for path in (REPOSITORY / folder).rglob("*")
    if path.suffix in (".md", ".yaml", ".sh")
)
COMMANDS: dict[str, Any] = {"dream": typer.main.get_command(cli.app), "ray": ray_command}
IMAGE = re.compile(r"(?:registry\.example\.com/)?dream:[\w.-]+")

# What stands for something else, in scripts and in text, and a value that it may have.
STAND_INS = {
    "$DREAM_CONFIG": "leduc-dream",
    "$DREAM_SETTINGS": "checkpoint.every=50",
    "$config": "leduc-dream",
    '"$@"': "",
    "$address": "10.1.2.3:6379",
    "HEAD:": "10.1.2.3:",
}


def texts(path: Path) -> Iterator[str]:
    """What is for a shell: such blocks of Markdown and code in its prose, all of a script, every string in YAML."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        yield from re.findall(r"`((?:dream|ray) [^`\n]* --?[^`\n]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    elif path.suffix == ".sh":
        yield re.sub(r"\bstart_ray \S+", "ray start", text)  # the script's own function
    else:
        for document in yaml.safe_load_all(text):
            yield from strings(document)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        if value and value[0] in ("CMD", *COMMANDS):
            yield shlex.join(value[value[0] == "CMD" :])
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)


def commands(text: str) -> Iterator[list[str]]:
    """The words of each call of `dream` and `ray` in a piece of shell, also of those that other programs start."""
    for name, value in STAND_INS.items():
        text = text.replace("$" + name, value).replace(name, value)
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)  # compose: the default
    text = re.sub(r"\\\n\s*", " ", text)
    for line in text.splitlines():
        line = re.sub(r"(^|\s)#.*", "", line)
        line = re.sub(r"\$\(\(.*?\)\)", "1", line)
        line = re.sub(r"\$\([^()]*\)|\${1,2}\{?\w+\}?", "1", line)
        line = re.sub(r"\d?>\S+", "", line)
        for part in re.split(r"&&|[;|]|&(?=\s|$)|\bif\b|\bthen\b", line):
            try:
                yield from calls(shlex.split(part))
            except ValueError:  # a quotation over several lines: no call of ours
                continue


def calls(words: list[str]) -> Iterator[list[str]]:
    """The call of ours in one simple command, and the one that it starts itself."""
    starts = [i for i, word in enumerate(words) if word in COMMANDS and begun(words[:i]) and words[i + 1 :]]
    if starts:
        words = words[starts[0] :]
        inner = words[words.index("--") + 1 :] if "--" in words else []
        yield [*words[: len(words) - len(inner)], "true"] if inner else words
        yield from calls(inner)
    elif words[:2] == ["docker", "run"] and "--entrypoint" not in words:
        (image,) = [i for i, word in enumerate(words) if IMAGE.fullmatch(word)]
        yield ["dream", *words[image + 1 :]]
    elif words[:2] == ["docker", "compose"] and "run" in words:
        yield ["dream", *words[words.index("train") + 1 :]]


def begun(before: list[str]) -> bool:
    """Whether a command starts after these words: nothing, settings of variables, or a program that runs another."""
    return before[-1:] == ["--"] or all(
        re.match(r"-|\w+=", word) or word in ("exec", "srun") or word.isdigit() for word in before
    )


def fault(words: list[str]) -> str | None:
    """What the program would say of the command line; it is parsed, not run."""
    command, arguments = COMMANDS[words[0]], words[1:]
    if words[1:] == ["--version"]:
        return None
    while hasattr(command, "commands"):
        if arguments[0] not in command.commands:
            return f"no command {arguments[0]}"
        command, arguments = command.commands[arguments[0]], arguments[1:]
    try:
        given = command.make_context(words[0], list(arguments)).params
    except (click.ClickException, TyperException) as error:
        return str(error.format_message())
    if words[:2] != ["dream", "train"]:
        return None
    asked = {"runtime.kind": given["runtime"], "runtime.address": given["address"]}
    changes = [*(given["overrides"] or []), *(f"{key}={value}" for key, value in asked.items() if value)]
    try:
        configuration.load(given["preset"], changes)
    except configuration.ConfigError as error:
        return str(error)
    return None


FOUND = {path: [c for text in texts(path) for c in commands(text)] for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(REPOSITORY)) for path in FILES])
def test_commands_are_understood(path: Path) -> None:
    assert {shlex.join(words): said for words in FOUND[path] if (said := fault(words))} == {}


def test_no_command_was_overlooked() -> None:
    """How often each kind of command is in the files, so that the search above cannot come to find nothing."""
    lines = {path.name: [shlex.join(words) for words in found] for path, found in FOUND.items()}
    assert sum(line.startswith("dream train") for line in lines["slurm.sh"]) == 1
    assert sum(line.startswith("ray start") for line in lines["slurm.sh"]) == 3
    assert sum(line.startswith("dream train") for line in lines["compose.yaml"]) == 1
    assert sum(line.startswith("ray start") for line in lines["compose.yaml"]) == 3
    assert sum(line.startswith("ray start") for line in lines["ray-cluster.yaml"]) == 2
    assert sum(line.startswith("dream train") for line in lines["rayjob.yaml"]) == 1
    readme = [shlex.join(words) for words in FOUND[REPOSITORY / "deploy" / "README.md"]]
    assert sum(line.startswith("ray job submit") for line in readme) == 4
    assert sum(line.startswith("dream train") for line in readme) == 6


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dream train leduc-dreem --resume", "leduc-dreem"),
        ("dream train leduc-dream --resum", "--resum"),
        ("dream train leduc-dream runtime.worker=3 --resume", "runtime.worker"),
        ("ray start --head --dashbord-port=8265", "--dashbord-port"),
        ("ray job halt leduc", "halt"),
        ("ray job submit --adress http://x -- dream train leduc-dream", "--adress"),
        ("ray job submit --address http://x -- dream train leduc-dream --resum", "--resum"),
    ],
)
def test_a_wrong_command_is_noticed(line: str, said: str) -> None:
    assert said in "; ".join(filter(None, map(fault, commands(line))))


def test_runs_resume_wherever_they_are_started() -> None:
    """Every `dream train` that a file of deploy/ starts can be repeated: a retry must go on, not fail."""
    for path, found in FOUND.items():
        for words in (w for w in found if w[:2] == ["dream", "train"] and "leduc-dream-quick" not in w):
            assert {"--resume", "--run-dir"} <= set(words), (path, words)


@pytest.mark.parametrize("page", [path for path in FILES if path.suffix == ".md"], ids=lambda p: p.parent.name)
def test_paths_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/])((?:deploy|docker)/[\w./-]*[\w/])", text))
    assert len(named) >= 3
    assert [name for name in sorted(named) if not (REPOSITORY / name).exists()] == []
    table = re.findall(r"^\| `([\w./-]+)` \|", text.split("\n## ")[0], re.MULTILINE)
    assert len(table) >= 5
    assert [name for name in table if not (page.parent / name).exists()] == []


def test_images_are_named_the_same_everywhere() -> None:
    names = {name for path in FILES for name in IMAGE.findall(path.read_text(encoding="utf-8"))}
    tags = {name.rpartition("/")[2].rstrip(".") for name in names}
    assert tags == {"dream:0.1.0", "dream:0.1.0-cuda"}


def test_configuration_keys_exist() -> None:
    for page in (path for path in FILES if path.suffix == ".md"):
        named = set(re.findall(r"`((?:runtime|checkpoint|sampling|advantage)\.\w+)", page.read_text(encoding="utf-8")))
        assert named <= set(configuration.keys()), page
