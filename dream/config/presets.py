"""The presets that are shipped in dream/presets."""

from __future__ import annotations

from importlib import resources

from dream.config.names import unknown
from dream.errors import ConfigError

__all__ = ["preset_names", "preset_summary", "preset_text"]


def preset_names() -> list[str]:
    """All presets, sorted."""
    folder = resources.files("dream") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def preset_text(name: str) -> str:
    """The YAML of a preset as it is shipped. Raises ConfigError for an unknown one."""
    if name not in preset_names():
        listing = "`dream presets` lists them; a YAML file is given by its path"
        raise ConfigError(unknown("preset", name, preset_names(), listing=listing))
    return (resources.files("dream") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")


def preset_summary(name: str) -> str:
    """The first comment of a preset: what it is and about how long it takes."""
    return preset_text(name).splitlines()[0].lstrip("# ").strip()
