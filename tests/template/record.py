#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records tests/data/templates/cases.json: what jinja2 in the environment of transformers makes of the templates beside it."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from reference import TEMPLATES, reference  # noqa: E402
from test_template import CONVERSATIONS, SNIPPETS, TOOLS, VARIABLES  # noqa: E402


def main():
    cases = []
    for path in sorted(TEMPLATES.glob("*.jinja")):
        for number, messages in enumerate(CONVERSATIONS):
            variables = {"messages": messages, "tools": TOOLS if number % 2 else None, "documents": None,
                         "add_generation_prompt": number % 3 != 0, "bos_token": "<s>", "eos_token": "</s>"}
            if number % 4 == 1:
                variables["enable_thinking"] = False
            text, _ = reference(path.read_text(), variables)
            cases.append({"file": path.name, "conversation": number, "variables": {k: v for k, v in variables.items() if k not in
                          ("messages", "tools")}, "tools": bool(variables["tools"]), "text": text})
    for line in SNIPPETS.strip().split("\n"):
        text, error = reference(line, VARIABLES)
        assert error is None, (line, error)
        cases.append({"template": line, "text": text})
    out = {"conversations": CONVERSATIONS, "tools": TOOLS, "variables": VARIABLES, "cases": cases}
    (TEMPLATES / "cases.json").write_text(json.dumps(out, indent=0) + "\n")


if __name__ == "__main__":
    main()
