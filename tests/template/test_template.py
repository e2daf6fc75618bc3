# SPDX-License-Identifier: Apache-2.0
"""Chat templates against jinja2 in the environment of transformers: templates of the families' shapes with many
conversations, one construct at a time, and random expressions."""
import itertools
import json
import os
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
pytest.importorskip("transformers")
from reference import TEMPLATES, Renderer, compare  # noqa: E402


@pytest.fixture(scope="module")
def renderer():
    r = Renderer()
    yield r
    r.close()


TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Tells the weather.\nIn one place.",
     "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer", "default": 3}},
                    "required": ["place", "days"]}}},
    {"type": "function", "function": {"name": "now", "description": "Zeit „jetzt“ <b> & 'more' 日本語 " + "long words " * 12,
     "parameters": {"type": "object", "properties": {}}}},
]
CALL = {"type": "function", "id": "1", "function": {"name": "weather", "arguments": {
    "place": "Zürich \"HB\"", "days": 2, "exact": True, "none": None, "list": [1, 2.5, "x"], "deep": {"a": {"b": []}}}}}
CALL_TEXT = {"type": "function", "function": {"name": "now", "arguments": "{\"zone\": \"UTC\"}"}}
CONVERSATIONS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "  Hi\n there \n"}],
    [{"role": "system", "content": "S"}, {"role": "user", "content": "1"}, {"role": "assistant", "content": "a"},
     {"role": "user", "content": "2"}],
    [{"role": "user", "content": "think"}, {"role": "assistant", "content": "<think>\nhm\n\n</think>\n\nyes"},
     {"role": "user", "content": "again"}, {"role": "assistant", "content": "<think>\nhm2</think>done"}],
    [{"role": "user", "content": "q"}, {"role": "assistant", "content": "plain", "reasoning_content": "\nbecause\n"}],
    [{"role": "user", "content": "w?"}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
     {"role": "tool", "content": "sunny\nwarm"}, {"role": "assistant", "content": "It is sunny."},
     {"role": "user", "content": "thanks"}],
    [{"role": "user", "content": "w?"}, {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, CALL_TEXT]},
     {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}],
    [{"role": "user", "content": "w?"}, {"role": "assistant", "content": None, "tool_calls": [CALL_TEXT]},
     {"role": "tool", "content": {"temp": 1.0}}],
    [{"role": "user", "content": [{"type": "text", "text": "what is "}, {"type": "image"}, {"type": "text", "text": "?"}]}],
    [{"role": "assistant", "content": "first"}],
    [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    [{"role": "system", "content": "only"}],
    [{"role": "user", "content": "<tool_response>x</tool_response>"}],
    [{"role": "critic", "content": "odd role"}],
    [{"role": "user", "content": "emoji 👩‍👩‍👧 İstanbul ß ΣΑΣ \u2028 \x1f é \u0000 end"}],
    [],
]


def all_templates():
    for path in sorted(TEMPLATES.glob("*.jinja")):
        yield path.stem, path.read_text()
    qwen = pathlib.Path(os.environ.get("SLUICE_SHARED", "")) / "data/qwen3-tokenizer/tokenizer_config.json"
    if qwen.is_file():
        yield "qwen3", json.loads(qwen.read_text())["chat_template"]


@pytest.mark.parametrize("name,template", list(all_templates()))
def test_families(renderer, name, template):
    same = 0
    for messages, tools, prompt, thinking in itertools.product(
            CONVERSATIONS, [None, TOOLS, TOOLS[:1]], [True, False], [{}, {"enable_thinking": True}, {"enable_thinking": False}]):
        variables = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": prompt,
                     "bos_token": "<s>", "eos_token": "</s>", **thinking}
        same += compare(renderer, template, variables) == "same"
    assert same > 20


VARIABLES = {
    "s": "Hello World", "t": "  a b\tc\n", "e": "", "u": "äÖ ß日本 x", "q": "it's \"q\" \\ \n\t\x01é\u200b", "n": 7, "z": 0,
    "m": -3, "f": 2.5, "g": 1e20, "h": 1e-7, "b": True, "no": False, "none_": None, "l": [3, 1, 2], "el": [], "w": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": [1, {"x": None}], "items_": "v", "C": 2.0}, "ed": {}, "nested": [[1, 2], [3]],
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cy", "age": 30, "tags": []}],
    "keyed": {"items": 5, "get": 6, "content": "c"},
}

SNIPPETS = r"""
{{ s[0] }}{{ s[-1] }}{{ s[1:4] }}{{ s[::-1] }}{{ s[99] }}|{{ u[1] }}{{ u[3:] }}{{ u[::2] }}{{ u[-3:-1] }}
{{ l[0] }}{{ l[-1] }}{{ l[::-1] }}{{ l[5] }}{{ l[1:] }}{{ l[:-1] }}{{ l[5:] }}{{ l[None:2] }}{{ l[::-2] }}{{ (1,2,3)[1:] }}
{{ d.b }}{{ d['a'] }}{{ d.zz }}{{ d['zz'] }}{{ d.a[1].x }}{{ d.items_ }}{{ d.get('zz') }}{{ d.get('zz', 4) }}{{ d.get('b', 4) }}
{{ keyed.content }}{{ keyed['items'] }}{{ keyed['get'] }}{{ keyed.items()|list }}
{{ d }}|{{ l }}|{{ q }}|{{ [q] }}|{{ [s, none_, true, f, g, h, 1.0, -0.0, 123456789012345678, 1e16, 1e15, 0.1, 100000.0] }}
{{ (1,) }}{{ () }}{{ (1, 'a') }}{{ {1: 2, 'x': (1, [])} }}{{ ["it's", 'say "x"', 'both \' and "'] }}
{{ n + 2 }}{{ n - 10 }}{{ n * 3 }}{{ n / 2 }}{{ n // 2 }}{{ n % 4 }}{{ m // 2 }}{{ m % 2 }}{{ -n // 2 }}{{ n ** 2 }}{{ 2 ** -1 }}{{ f // 1 }}{{ -f // 1 }}{{ -f % 2 }}{{ f * 2 }}
{{ -n|abs }}{{ (-n)|abs }}{{ -2 ** 2 }}{{ (1 + 2) ~ 3 }}{{ 2 * 3 ~ 4 }}{{ 1 ~ none_ ~ true ~ e ~ zz }}
{{ n == 7.0 }}{{ b == 1 }}{{ 'a' < 'b' }}{{ 1 < 2 < 3 }}{{ 1 < 3 > 2 }}{{ 3 > 2 == true }}{{ [1,2] < [1,3] }}{{ l == [3,1,2] }}{{ (1,2) == [1,2] }}{{ d == d }}{{ zz == yy }}{{ zz == none }}
{{ 'ell' in s }}{{ 3 in l }}{{ 9 not in l }}{{ 'b' in d }}{{ 'x' in zz }}{{ '' in e }}{{ 1 in (1,2) }}{{ 5 in range(6) }}
{{ n and s }}{{ z or s }}{{ not n }}{{ e or none_ or zz or 'last' }}{{ not zz }}{{ true and false or true }}
{{ 'yes' if n else 'no' }}{{ 'yes' if z }}|{{ ('a' if z else 'b') if n else 'c' }}{{ 1 if false else 2 if false else 3 }}
{{ s|upper }}{{ s|lower }}{{ u|upper }}{{ u|title }}{{ u|capitalize }}{{ 'hello-big (world) [x] {y} <z>'|title }}{{ 'ΟΔΟΣ ΣΑΣ. Σ'|lower }}
{{ t|trim }}|{{ '--x-'|trim('-') }}|{{ t|length }}{{ u|length }}{{ l|count }}{{ d|length }}{{ zz|length }}
{{ s|replace('l', 'L') }}{{ s|replace('l', 'L', 1) }}{{ s|replace('', '.') }}{{ 'aaa'|replace('aa', 'b') }}{{ 12|replace('1', 'x') }}
{{ l|join(', ') }}{{ l|join }}{{ people|join('/', attribute='name') }}{{ s|join('-') }}{{ zz|join('x') }}{{ d|join('+') }}
{{ l|first }}{{ l|last }}{{ s|first }}{{ s|last }}{{ el|first }}{{ d|first }}{{ d|last }}{{ zz|first }}
{{ l|sort }}{{ w|sort }}{{ w|sort(case_sensitive=true) }}{{ l|sort(reverse=true) }}{{ people|sort(attribute='age')|map(attribute='name')|list }}{{ people|sort(attribute='age', reverse=true)|map(attribute='name')|join }}
{{ d|dictsort }}{{ d|dictsort(true) }}{{ {'x':2,'y':1}|dictsort(by='value') }}{{ {'x':2,'y':1}|dictsort(false, 'key', true) }}
{{ l|reverse|list }}{{ s|reverse }}{{ l|list }}{{ s[:3]|list }}{{ d|list }}{{ range(5)|list }}{{ range(5, 0, -2)|list }}{{ range(2,4)[1] }}{{ range(3)|length }}
{{ l|sum }}{{ people|sum(attribute='age') }}{{ [1.5, 2]|sum }}{{ el|sum(start=5) }}{{ l|min }}{{ l|max }}{{ w|max }}{{ el|max }}{{ people|max(attribute='age') }}
{{ people|map(attribute='name')|list }}{{ people|map(attribute='zz', default='?')|list }}{{ w|map('upper')|join }}{{ l|map('string')|list }}{{ nested|map('first')|list }}{{ people|map(attribute='tags.0', default='-')|list }}
{{ l|select('gt', 1)|list }}{{ l|reject('odd')|list }}{{ l|select|list }}{{ people|selectattr('tags')|map(attribute='name')|list }}{{ people|rejectattr('age', 'equalto', 30)|list }}{{ people|selectattr('name', 'in', ['Ann', 'Cy'])|list|length }}
{{ w|unique|list }}{{ ['a','A','b','a']|unique|list }}{{ ['a','A','b','a']|unique(true)|join }}{{ people|unique(attribute='age')|map(attribute='name')|list }}
{{ d|items|list }}{{ zz|items|list }}{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}{{ d.items()|list }}{{ d.keys()|list }}{{ d.values()|list }}{{ d.keys() }}{{ d.items() }}
{{ [1,2,3,4,5]|batch(2)|list }}{{ [1,2,3]|batch(2, 0)|list }}{{ el|batch(3, 'x')|list }}
{{ zz|default('dd') }}{{ none_|default('dd') }}{{ e|default('dd', true) }}{{ e|d('x') }}|{{ zz.yy|default('q') if zz is defined else 'undef' }}
{{ '12'|int }}{{ '12.7'|int }}{{ 'x'|int }}{{ 'x'|int(5) }}{{ f|int }}{{ none_|int }}{{ '0x1f'|int(base=16) }}{{ ' 5 '|int }}{{ '1_000'|int }}{{ true|int }}{{ -2.7|int }}
{{ '1.5'|float }}{{ 'x'|float }}{{ 3|float }}{{ 'nan'|float }}{{ '1e3'|float }}{{ none_|float(2.5) }}
{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 7|round }}{{ 2.1|round(0, 'ceil') }}{{ 2.9|round(method='floor') }}{{ 1.25|round(1) }}{{ -0.4|round }}{{ 42.55|round(1, 'floor') }}
{{ d|tojson }}{{ d|tojson(indent=2) }}{{ el|tojson(indent=1) }}{{ q|tojson }}{{ u|tojson(ensure_ascii=true) }}{{ d|tojson(sort_keys=true) }}{{ d|tojson(separators=(',', ':')) }}{{ g|tojson }}{{ [true, none, 1.0, 'a/b', '</x>']|tojson }}{{ {1: 2, true: 3, none: 4, 1.5: 5}|tojson }}{{ d|tojson(indent='--') }}{{ '😀'|tojson(ensure_ascii=True) }}
{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb\n\nc'|indent(2, true) }}|{{ 'a\nb\n\nc'|indent(width=1, blank=true) }}|{{ 'a\nb'|indent('>>') }}|{{ ''|indent(2, true) }}
{{ 'foo bar baz qux'|truncate(9) }}{{ 'foo bar baz qux'|truncate(9, true) }}{{ 'foo bar baz qux'|truncate(11) }}{{ 'foo bar baz qux'|truncate(9, false, '!', 0) }}{{ 'foobarbazquxabcdef'|truncate(6, false, '..', 0) }}
{{ 'x'|center(5) }}|{{ 'xy'|center(5) }}|{{ 'abcd'|center(7) }}|{{ 'foo bar-baz 日本'|wordcount }}{{ l|string }}{{ 5|string|length }}
{{ '%s is %d or %5.2f%%'|format('x', 3, 2.5) }}{{ '%(a)s-%(b)r'|format(a=1, b='q') }}{{ '%s' % 5 }}{{ '%s %s' % ('a', [1]) }}{{ '%05d|%-5s|%5s|%x|%+d|%.3s|%e|%g' % (42, 'ab', 'cd', 255, 3, 'abcdef', 12345.678, 0.0001) }}
{{ '{} {1}'.format(1, 2) if false else '{} {}'.format(1, 'b') }}{{ '{0}{1}{0}'.format('a', 'b') }}{{ '{x}{{}}'.format(x=3) }}
{{ s.split() }}{{ s.split('o') }}{{ s.split('o', 1) }}{{ s.rsplit('o', 1) }}{{ t.split() }}{{ ' a b  c '.split(' ') }}{{ ' a b  c '.split(none, 1) }}{{ ' a b  c '.rsplit(none, 1) }}{{ ''.split() }}{{ ''.split('x') }}
{{ s.startswith('He') }}{{ s.endswith(('x', 'ld')) }}{{ s.startswith('l', 2) }}{{ s.find('o') }}{{ s.rfind('o') }}{{ s.find('zz') }}{{ s.index('W') }}{{ s.count('l') }}{{ s.count('') }}{{ u.find('日') }}{{ s.find('o', 5) }}{{ s.find('l', 0, 3) }}
{{ t.strip() }}|{{ t.lstrip() }}|{{ t.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xyaxy'.lstrip('yx') }}|{{ s.removeprefix('Hello ') }}{{ s.removesuffix('ld') }}
{{ s.upper() }}{{ s.lower() }}{{ "they're bill's".title() }}{{ 'hELLO'.capitalize() }}{{ 'aBc'.swapcase() }}{{ s.replace('o', '0') }}{{ s.replace('o', '0', 1) }}{{ 'a,b'.partition(',') }}{{ 'a,b,c'.rpartition(',') }}{{ 'ab'.partition('-') }}
{{ 'a\nb\r\nc\x0bd'.splitlines() }}{{ 'a\n'.splitlines(true) }}{{ '5'.zfill(3) }}{{ '-5'.zfill(4) }}{{ 'x'.ljust(3, '.') }}{{ 'x'.rjust(3) }}{{ 'x'.center(4, '*') }}{{ ', '.join(w) }}{{ '12'.isdigit() }}{{ 'aé'.isalpha() }}{{ ' '.isspace() }}{{ 'A1'.isalnum() }}{{ 'Ab Cd'.istitle() }}{{ ''.isdigit() }}{{ 'AB'.isupper() }}{{ 'a1'.islower() }}
{{ l.index(1) }}{{ l.count(3) }}{{ (1,2).index(2) }}{{ l.copy() }}{{ d.copy() == d }}
{{ zz is defined }}{{ n is defined }}{{ d.zz is undefined }}{{ none_ is none }}{{ s is string }}{{ n is number }}{{ b is number }}{{ b is integer }}{{ n is integer }}{{ f is float }}{{ d is mapping }}{{ l is sequence }}{{ s is sequence }}{{ l is iterable }}{{ n is iterable }}{{ zz is iterable }}{{ zz is sequence }}{{ b is boolean }}{{ b is true }}{{ no is false }}{{ n is true }}
{{ n is odd }}{{ n is even }}{{ n is divisibleby 7 }}{{ n is divisibleby(2) }}{{ n is eq 7 }}{{ n is ne 7 }}{{ n is gt 3 }}{{ n is in [7] }}{{ n is sameas n }}{{ s is lower }}{{ 'ABC' is upper }}{{ none is sameas none }}{{ 'upper' is filter }}{{ 'odd' is test }}{{ range is callable }}{{ n is not odd }}{{ not n is odd }}{{ l is not mapping and n is odd }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }}{{ loop.depth }}{{ loop.changed(x > 1) }};{% endfor %}
{% for x in el %}x{% else %}empty{% endfor %}{% for x in l if x > 1 %}{{ loop.length }}{{ x }}{% else %}none{% endfor %}{% for a, b in nested[:1] %}{{ a }}{{ b }}{% endfor %}{% for c in 'añ' %}{{ c }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for x in zz %}{% else %}Z{% endfor %}
{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in [1,2] %}{% for y in [1,2] %}{{ loop.index }}{{ x }}{% endfor %}{{ loop.index }}{% endfor %}
{% set x = 1 %}{% for i in [1,2] %}{{ x }}{% set x = x + 5 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a = (1, 2) %}{{ a }}{% set ns = namespace(x=1, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.zz }}{% set ns2 = namespace({'q': 3}, r=4) %}{{ ns2.q }}{{ ns2['r'] }}{{ ns }}
{% set x %}captured {{ n }}{% endset %}{{ x }}{% set y | upper | trim %} abc {% endset %}{{ y }}{% filter upper %}ab{{ s }}{% endfilter %}{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}
{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=5) }}{{ m(1,2,3) }}{{ m.name }}{% macro v() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1, 2, x=3) }}
{% macro outer(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) outer(4) %}{{ y }}{{ n }}{% endcall %}{% macro opt() %}{{ caller() if caller else 'none' }}{% endmacro %}{{ opt() }}{% call opt() %}c{% endcall %}
{% macro fact(k) %}{{ 1 if k < 2 else k * fact(k - 1)|int }}{% endmacro %}{{ fact(6) }}{% macro sees() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ sees() }}
{% if z %}a{% elif n %}b{% else %}c{% endif %}{% if z %}a{% elif e %}b{% else %}c{% endif %}{% if l, %}t{% endif %}
{% raw %}{{ not }} {% this %}{% endraw %}{# comment #}x{#- strip -#} y {#+ keep +#} z
{%- raw -%}  {{ a }}  {%- endraw -%} end
{{ "esc: \n \t \\ \" \x41 \u00e9 \U0001F600 \101 \q" }}{{ 'a' 'b' "c" }}
{{ 1_000 }}{{ 0x1F }}{{ 0b11 }}{{ 0o17 }}{{ 1.5e3 }}{{ 1e2 }}{{ 00 }}{{ 1.0 }}{{ 1E-2 }}
{{ strftime_now('%Y-%m-%d %H:%M') }}{{ dict(a=1, b='x') }}{{ {}|length }}{{ [[]] }}
{{ d|attr('zz') }}{{ s|safe }}{{ (s if n else t)|safe }}{% generation %}{% set inside = 1 %}{{ n }}{% endgeneration %}{{ inside }}
{{ l * 2 }}{{ 'ab' * 2 }}{{ 2 * 'ab' }}{{ l + [4] }}{{ (1,) + (2,) }}{{ true + 1 }}{{ 'a' * -1 }}{{ 1.5 + true }}
{{ people[0]['name'][0] }}{{ people[-1].tags }}{{ people[0].tags[0].upper() }}{{ people[9].name if people[9] else 'none' }}
{{ {'a': 1}['a'] }}{{ {'k': [1,2]}.k[1] }}{{ [1,2,3][1] }}{{ 'abc'[1] }}{{ "abc".upper()[0] }}{{ (n + 1)|string + 'x' }}{{ n|string ~ 'x' }}
{{ zz|upper }}{{ zz|trim }}{{ zz|list }}{{ zz|string }}{{ zz|replace('a', 'b') }}{{ none_|upper }}{{ none_|trim }}{{ n|upper }}
{{ people | map(attribute='age') | select('odd') | list }}{{ [1, [2, [3]]] | tojson }}{{ [s, s] | map('replace', 'l', 'L') | join('|') }}{{ ['1', 'x'] | map('int', 7) | list }}
"""

REFUSED = r"""
{{ zz.yy }}
{{ zz + 1 }}
{{ s + 1 }}
{{ 1 + s }}
{{ none_ + 1 }}
{{ l < 3 }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ raise_exception('no') }}
{{ zz() }}
{{ n() }}
{{ zz|tojson }}
{{ zz|int }}
{{ n|length }}
{{ l|map('upper')|length }}
{{ l|sort(attribute='x.y.z') }}
{{ [1, 'a']|sort }}
{% for x in none_ %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for a, b in l %}{% endfor %}
{% set zz.x = 1 %}
{% set d.x = 1 %}
{{ l.append(1) }}
{{ d.update({}) }}
{{ 'x'.join(l) }}
{{ s.split('') }}
{{ s.index('zz') }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'x' }}
{{ '%s' % (1, 2) }}
{{ '{} {}'.format(1) }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{% macro m(a) %}{% endmacro %}{% call m(1) %}{% endcall %}
{{ range(1000000)|length }}
{{ 3 in 5 }}
{{ 3 in s }}
{{ {[]: 1} }}
{{ l[::0] }}
{{ n|nofilter }}
{{ n is notest }}
{% nonsense %}
{% if n %}
{% endif %}
{{ n
{% for x in l %}
{{ 'abc }}
{{ n n }}
{{ (n }}
{{ n) }}
{{ [n) }}
{% set 5 = 3 %}
{% set n %}
{{ }}
{# never ends
{% raw %}x
{% break %}
{% macro m(a=1, b) %}{% endmacro %}
{{ m(a=1, 2) }}
{{ '\x4' }}
{{ n is odd is even }}
{% include 'x' %}
{% extends 'x' %}
{% import 'x' as y %}
"""


@pytest.mark.parametrize("template", [line for line in SNIPPETS.strip().split("\n")])
def test_constructs(renderer, template):
    assert compare(renderer, template, VARIABLES) == "same"


@pytest.mark.parametrize("template", [line for line in REFUSED.strip().split("\n")])
def test_refused(renderer, template):
    assert compare(renderer, template, VARIABLES) == "both refuse"


def test_white_space(renderer):
    """Every tag with every sign, between every kind of white space."""
    rng = random.Random(5)
    spaces = ["", " ", "\n", "\n  ", "  \n", "\r\n\t", "a", " b ", "\u2003", "\n\n", "x\n", "\rq"]
    tags = ["{{%s n %s}}", "{%%%s if n %s%%}y{%%%s endif %s%%}", "{#%s c %s#}", "{%%%s set x = 1 %s%%}",
            "{%%%s raw %s%%} {{ r }} {%%%s endraw %s%%}", "{%%%s for i in [1,2] %s%%} i {%%%s endfor %s%%}"]
    for _ in range(1500):
        text = rng.choice(spaces)
        for _ in range(rng.randrange(1, 5)):
            tag = rng.choice(tags)
            sign = ["", "", "-"] if tag.startswith("{{") else ["", "", "-", "+"]
            text += tag % tuple(rng.choice(sign) for _ in range(tag.count("%s"))) + rng.choice(spaces) + rng.choice(spaces)
        compare(renderer, text, {"n": 7})


class Expressions:
    """Random expressions that are often, but not always, of fitting types."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def pick(self, *options):
        return self.rng.choice(options)

    def atom(self):
        return self.pick("s", "t", "e", "u", "q", "n", "z", "m", "f", "b", "no", "none_", "l", "el", "w", "d", "ed", "nested",
                         "people", "zz", "1", "0", "2.5", "-1", "'x'", "'l'", "''", "'a b'", "[1, 2]", "{'a': 1}", "(1, 2)", "true",
                         "none", "people[0]", "d.a", "u[1]", "range(3)", "'%s'", "'b'")

    def make(self, depth):
        if depth <= 0 or self.rng.random() < 0.15:
            return self.atom()
        e = lambda: self.make(depth - 1)  # noqa: E731
        kind = self.rng.randrange(16)
        if kind == 0:
            return f"({e()} {self.pick('+', '-', '*', '/', '//', '%', '~')} {e()})"
        if kind == 1:
            return f"({e()} {self.pick('==', '!=', '<', '>', '<=', '>=', 'in', 'not in')} {e()})"
        if kind == 2:
            return f"({e()} {self.pick('and', 'or')} {e()})"
        if kind == 3:
            return f"(not {e()})"
        if kind == 4:
            return f"({e()} if {e()} else {e()})"
        if kind == 5:
            return f"{e()}[{self.pick('0', '-1', '1:', ':-1', '::-1', '::2', '99', e())}]"
        if kind == 6:
            return f"{e()}.{self.pick('name', 'a', 'b', 'upper()', 'items()', 'split()', 'strip()', 'get(1)', 'title()', 'keys()')}"
        if kind == 7:
            return f"({e()} is {self.pick('', 'not ')}{self.pick('defined', 'none', 'string', 'number', 'mapping', 'sequence', 'iterable', 'odd', 'true', 'lower', 'integer', 'boolean', 'callable')})"
        if kind == 8:
            return f"[{e()}, {e()}]"
        if kind == 9:
            key = self.pick("'a'", "n", "s", "1", "b", "f")
            return f"{{'k': {e()}, {key}: {e()}}}"
        if kind == 10:
            return f"{e()}|{self.pick('default', 'd')}({e()}, {self.pick('true', 'false')})"
        if kind == 11:
            return f"({e()})|join({e()})"
        if kind == 12:
            return f"({e()})|map({self.pick(chr(39) + 'upper' + chr(39), 'attribute=' + chr(39) + 'name' + chr(39), chr(39) + 'length' + chr(39))})|list"
        if kind == 13:
            return f"({e()})|replace({e()}, {e()})"
        return f"({e()})|{self.pick('upper', 'lower', 'title', 'trim', 'length', 'list', 'sort', 'reverse', 'first', 'last', 'tojson', 'string', 'int', 'float', 'abs', 'unique|list', 'sum', 'min', 'max', 'capitalize', 'round', 'items|list', 'dictsort', 'indent(2)', 'wordcount', 'batch(2)|list', 'tojson(indent=1)', 'select|list', 'center(9)')}"


def test_random_expressions(renderer):
    count = {"same": 0, "both refuse": 0, "unsupported": 0}
    for seed in range(int(os.environ.get("SLUICE_RANDOM_TEMPLATES", "3000"))):
        template = "{{ " + Expressions(seed).make(3) + " }}"
        count[compare(renderer, template, VARIABLES, may_refuse=True)] += 1
    assert count["same"] > 0.3 * sum(count.values()), count
    assert count["unsupported"] < 0.05 * sum(count.values()), count
