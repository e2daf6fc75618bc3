# SPDX-License-Identifier: Apache-2.0
"""What the tests of chat templates compare with: jinja2 in the environment of transformers, and our renderer."""
import copy
import datetime
import json
import os
import pathlib
import subprocess

TEMPLATES = pathlib.Path(__file__).parent.parent / "data" / "templates"
NOW = 1764547200  # 2025-12-01 00:00 UTC


class _Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


def reference(template: str, variables: dict):
    """(text, None) or (None, what jinja2 raised)."""
    import transformers.utils.chat_template_utils as module

    module.datetime = _Clock
    try:
        return module._compile_jinja_template(template).render(**copy.deepcopy(variables)), None
    except RecursionError as error:
        return None, error
    except Exception as error:  # noqa: BLE001 : whatever it refuses, we have to refuse
        return None, error


class Renderer:
    """tests/template/render_templates.c as a server on a pipe."""

    def __init__(self):
        self.process = subprocess.Popen([os.environ["SLUICE_RENDER"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**os.environ, "TZ": os.environ.get("TZ", "")})

    def render(self, template: str, variables: dict) -> dict:
        line = json.dumps({"template": template, "variables": variables, "now": NOW})
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the renderer died of {template!r} with {variables!r}"
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def compare(renderer: Renderer, template: str, variables: dict, may_refuse=False) -> str:
    """'same', 'both refuse', or 'unsupported'; fails on any difference."""
    want, error = reference(template, variables)
    got = renderer.render(template, variables)
    where = f"\n{template}\n{variables!r}"
    if error is not None:
        assert "error" in got, f"jinja2 refuses ({error!r}), we give {got['text']!r}{where}"
        return "both refuse"
    # jinja2 folds constants by other rules than it runs by: 1[::-1] is undefined, x[::-1] with x = 1 an error.
    folded = "subscriptable by a slice" in got.get("error", "")
    if may_refuse and (got.get("status") == 6 or folded):
        return "unsupported"
    assert got.get("text") == want, f"found {got!r}\nexpected {want!r}{where}"
    return "same"
