#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the order of parts (docs/design.md section 2): a file may include only its own part and the parts it may use.

    tools/check_includes.py [ROOT]      exit 1 and one line per violation
"""
import pathlib
import re
import sys

# part -> parts whose headers it may include ("public" = include/sluice). Transitive use is spelled out on purpose.
MAY = {
    "base": {"public"},
    "kernels": {"public", "base"},
    "model": {"public", "base", "kernels"},
    "layers": {"public", "base", "kernels", "model"},
    "infer": {"public", "base", "kernels", "model", "layers"},
    "train": {"public", "base", "kernels", "model", "layers"},
    "inspect": {"public", "base", "kernels", "model", "layers", "infer"},
    "eval": {"public", "base", "kernels", "model", "layers", "infer"},
    "verify": {"public", "base", "kernels", "model", "layers", "infer", "train", "inspect", "eval"},
    "study": {"public", "base", "kernels", "model", "layers", "infer", "train", "inspect", "eval"},
    "serve": {"public", "base", "kernels", "model", "layers", "infer"},
    "cli": {"public", "base"},
}


def violations(root: pathlib.Path):
    for path in sorted((root / "src").rglob("*.[ch]")) + sorted((root / "include").rglob("*.h")):
        rel = path.relative_to(root)
        part = "public" if rel.parts[0] == "include" else rel.parts[1]
        allowed = {"public"} if part == "public" else MAY.get(part)
        if allowed is None:
            yield f"{rel}: folder src/{part} is not in the list of parts"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not found:
                continue
            first = found[1].split("/")[0]
            target = "public" if first == "sluice" else first
            if "/" not in found[1]:
                yield f"{rel}:{number}: write the path from src/: {found[1]}"
            elif target != part and target not in allowed:
                yield f"{rel}:{number}: {part} may not include {found[1]}"


def main() -> int:
    bad = list(violations(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    print("\n".join(bad) or "include order: ok")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
