"""Write docs/config.md from every Settings class of the modules named `config`; with --check only compare."""

import importlib
import inspect
import pathlib
import pkgutil
import sys

import aerobee
from aerobee.config.reference import render_reference
from aerobee.config.setting import Settings

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "config.md"


def sections() -> dict[str, type[Settings]]:
    """Return every class by its title, those of the store first."""
    found: dict[str, type[Settings]] = {}
    for module in pkgutil.walk_packages(aerobee.__path__, "aerobee."):
        if module.ispkg or not module.name.endswith(".config"):
            continue
        component = module.name.split(".")[1]
        for name, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(cls, Settings) and cls.__module__ == module.name:
                found[f"{component.capitalize()} ({name})"] = cls
    return dict(sorted(found.items(), key=lambda item: (not item[0].startswith("Store"), item[0])))


def main(arguments: list[str]) -> int:
    """Write the document; with --check return 1 where it is stale."""
    text = render_reference(sections())
    if "--check" in arguments:
        return 0 if DOCUMENT.exists() and DOCUMENT.read_text() == text else 1
    DOCUMENT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
