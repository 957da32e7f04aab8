"""Makes examples/spark/notebook.ipynb from notebook.py: `python tools/notebook.py`. A test compares them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "examples" / "spark" / "notebook.py"


def made(script: str) -> str:
    """Return the text of the notebook with the cells of a script. A title behind `# %%` is a cell of text."""
    cells: list[dict[str, object]] = []

    def add(kind: str, text: str) -> None:
        cell: dict[str, object] = {"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}}
        cell["source"] = text.strip().splitlines(keepends=True)
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)

    for part in re.split(r"^# %%", script, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        if title.strip() == "[markdown]":
            add("markdown", re.sub(r"^# ?", "", body, flags=re.MULTILINE))
            continue
        if title.strip():
            add("markdown", f"## {title.strip()}")
        add("code", body)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1) + "\n"


def main() -> int:
    SCRIPT.with_suffix(".ipynb").write_text(made(SCRIPT.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
