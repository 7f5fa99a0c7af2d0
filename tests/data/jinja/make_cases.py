"""Writes cases.json (small templates with what jinja2 makes of them) and the .json beside each .jinja here, with the real jinja2 set up as Hugging Face
transformers sets it up. Run it where jinja2 3.1 is installed, after adding a template below; the tests read only the .json files."""
import datetime
import glob
import json
import os

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = datetime.datetime(2026, 11, 15, 12, 0, 0)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_generate"), [], [], body).set_lineno(line)

    def _generate(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: NOW.strftime(f)
    return env


VARIABLES = {
    "name": "World", "n": 7, "f": 2.5, "yes": True, "no": False, "nothing": None, "empty": [], "text": "  Héllo wörld  ", "html": "<b>&'\"</b>",
    "xs": [3, 1, 2], "words": ["pear", "Apple", "fig", "apple"], "d": {"b": 1, "a": {"x": [1, None]}, "items": 5}, "lines": "one\ntwo\n\nthree",
    "users": [{"name": "Ann", "age": 31, "city": "Oslo"}, {"name": "bob", "age": 25, "city": "Rome"}, {"name": "Cy", "age": 31, "city": "oslo"}],
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3, "kids": [{"v": 4, "kids": []}]}]}],
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo", "tool_calls": [{"function": {"name": "f", "arguments": {"q": "ü", "k": [1, 2.0]}}}]}],
}

# One template a line where it fits; {{ alone }} templates are written without braces in EXPRESSIONS.
EXPRESSIONS = r"""
1 + 2 * 3
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3
7.5 // 2, -7.5 // 2, 7.5 % 2, -7.5 % 2
2 ** 10, 2 ** -1, 2 ** 3 ** 2, -2 ** 2, 2.0 ** 0.5
7 / 2, 6 / 3, 1 / 3
1e16, 1e15, 123456789.125, 1e-5, 0.0001, 1.0, -0.0, 1e100, 0.1 + 0.2, 5e-324
0x1f, 0b101, 0o17, 1_000, 1_0.2_5
1 / 0
1 // 0
1 % 0
'a' + 1
1 + 'a'
[1] + 'a'
[1] + (2,)
[1] + [2], (1,) + (2,), [0] * 3, 'ab' * 2, 3 * 'x', 'x' * -1
'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1, 'x'] ~ missing
'a' 'b' "c"
"\u00e9\x41\t|\101|\\|\'|\q|\n"
'%s is %d and %5.2f %r %x %05d %-4s| %+d %% %c' % ('a', 3, 2.345, 'q', 255, 42, 'z', 5, 'A')
'%(a)s-%(b)03d' % {'a': 1, 'b': 2}
'%s' % [1, 2], '%s' % none, '%5s|%-5s|' % ('é', 'b')
'%d' % 'x'
'%s %s' % ('a',)
'%s' % ('a', 'b')
'%e %g %G %.3g %#x %o %i' % (12345.678, 0.00001, 1e20, 1234.5, 255, 8, 3.9)
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, true == 1, 'a' < 'b', [1, 2] < [1, 3], (1,) == (1,), [1] == (1,)
1 < 'a'
none < 1
1 in [1, 2], 'a' in 'abc', 'x' not in 'abc', 'a' in d, 4 in (1, 2), 'b' in {'b': 1}
1 in 5
1 in 'abc'
'a' in missing
not true, not 0, not '', not [], not none, not missing
1 and 2, 0 and 2, 1 or 2, 0 or 2, '' or 'x', none or false
'y' if yes else 'n', 'y' if no else 'n', ('y' if no) is undefined
'a' if no else 'b' if no else 'c'
('y' if no)
xs[0], xs[-1], xs[1:], xs[:-1], xs[::-1], xs[::2], xs[5:], xs[-2:], xs[2:0:-1]
'héllo'[1], 'héllo'[-1], 'héllo'[1:3], 'héllo'[::-1], 'héllo'[::2], 'héllo'[10:], 'abc'[-100:2]
xs[10] is defined, d.nope is defined, d['nope'] is defined
xs[::0]
xs['a']
d.a.x[0], d['a']['x'], d.items is callable, d['items'], d.get('items'), d.get('q'), d.get('q', 9)
d.keys()|list, d.values()|list, {'p': 1}.items()|list
d.b.c
d.q.r
d.q
missing
missing.x
missing['x']
missing()
missing + 1
missing == missing, missing == 1, missing != 1
missing|length, missing|list, missing is iterable, missing is sequence, missing is mapping, missing is string
nothing.x
nothing.x.y
nothing|length
nothing
true, false, True, False, none, None
[1, 'a', none, true, 1.5, {'k': (1,)}, "it's", 'q"q', "b\\o\nth\t'\""]
{'a': 1, 2: 'b', none: true, (1, 2): 3}
{'a': 1, 'a': 2}
{[1]: 2}
(), (1,), (1, 2), [], {}
"\x00\x7f\u00a0\u200b\u00ad\U0001f600é"|list
['\x00\x7f', '\u00a0\u200b', '\U0001f600é']
range(5)|list, range(2, 5)|list, range(5, 0, -2)|list, range(0)|list
range(3), range(1, 4)
range(1000000)
range(1, 2, 0)
range('a')
dict(a=1, b=2), dict({'x': 1}, y=2), dict([('p', 1), ('q', 2)])
namespace(a=1).a, namespace({'b': 2}).b, namespace().c is defined
'abc'.upper(), 'ABC'.lower(), 'hello world'.title(), 'hELLO'.capitalize(), 'aBc'.swapcase(), 'straße'.upper()
'  x '.strip() ~ '|' ~ '  x '.lstrip() ~ '|' ~ '  x '.rstrip() ~ '|' ~ 'xxaxx'.strip('x') ~ '|' ~ 'abcab'.lstrip('ba') ~ '|' ~ 'a\n'.rstrip('\n')
'a,b,c'.split(','), 'a,b,c'.split(',', 1), 'a,b,c'.rsplit(',', 1), ' a  b '.split(), ' a  b c '.split(none, 1), ' a b  c '.rsplit(none, 1), ''.split(), ''.split(','), 'a,b'.split(sep=',', maxsplit=1)
'a'.split('')
'a\nb\r\nc\n'.splitlines(), 'a\nb\n'.splitlines(true), ''.splitlines()
'a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), 'abc'.partition('-'), 'abc'.rpartition('-')
'hello'.startswith('he'), 'hello'.startswith(('x', 'h')), 'hello'.endswith('lo'), 'hello'.startswith('l', 2), 'hello'.endswith('l', 0, 4), ''.startswith('')
'hello'.startswith(1)
'hello'.find('l'), 'hello'.rfind('l'), 'hello'.find('z'), 'héllo'.find('l'), 'hello'.index('e'), 'hello'.count('l'), 'aaa'.count('aa'), 'abc'.count(''), 'hello'.find('l', 3), 'hello'.find('')
'hello'.index('z')
'a-b-c'.replace('-', '+'), 'a-b-c'.replace('-', '+', 1), 'ab'.replace('', '-'), 'abc'.replace('b', ''), 'é'.replace('', '.')
', '.join(['a', 'b']), ''.join([]), '-'.join('abc')
', '.join([1])
'12'.isdigit(), ''.isdigit(), 'ab1'.isalnum(), 'ab'.isalpha(), ' '.isspace(), 'AB'.isupper(), 'ab'.islower(), 'Ab Cd'.istitle(), '²'.isdigit(), '²'.isdecimal(), 'a_1'.isidentifier(), 'é'.isascii(), '1.5'.isnumeric()
'a'.ljust(3, '.') ~ 'a'.rjust(3) ~ 'ab'.center(5, '*') ~ 'a'.center(4, '*') ~ '-5'.zfill(4) ~ 'abc'.center(2)
'a\tb'.expandtabs(4), 'prefix-x'.removeprefix('prefix-'), 'x.txt'.removesuffix('.txt')
'{} {}'.format(1, 'a'), '{1}{0}'.format('a', 'b'), '{x}'.format(x=3), '{0.b} {0[b]}'.format(d), '{{}}'.format(), '{!r}'.format('q')
'{:>5}|{:<5}|{:^5}|{:*^7}|{:05d}|{:+d}|{:,}|{:.2f}|{:x}|{:#x}|{:b}|{:e}|{:%}|{:.3}|{:10.3f}|'.format('a', 'b', 'c', 'd', 42, 7, 1234567, 3.14159, 255, 255, 5, 12345.678, 0.25, 'abcdef', 2.5)
'{:{w}}|'.format('a', w=4)
'{}'.format()
'{x}'.format(y=1)
'{:d}'.format('a')
'{'.format(1)
'{a}'.format_map({'a': 5})
[1, 2, 1].count(1), [1, 2].index(2), (1, 2).index(1)
[1].index(5)
xs.append(4)
xs.append is defined
d.update({'z': 1})
d.pop('b')
xs.sort()
xs.copy(), d.copy().b
''.__class__
''.__class__.__mro__
xs.foo
xs.foo()
'a'.foo()
5()
'abc'()
name|upper, name|lower, 'hello wORLD-foo (bar)'|title, 'hELLO'|capitalize
text|trim, 'xxaxx'|trim('x'), 5|string, 5|trim
html|e, html|escape|e, html|forceescape, (html|safe) + '<i>', ('<a>'|safe) ~ '<b>', html|striptags
('%s'|safe) % '<x>', ('<p>'|e).upper(), '<'|e is escaped
'a b a'|replace('a', 'x'), 'aaa'|replace('a', 'b', 2), 5|replace(5, 6)
xs|length, d|count, 'héllo'|length
5|length
xs|first, xs|last, 'abc'|first, 'abc'|last, d|first, empty|first is defined, empty|last is defined
xs|sort, xs|sort(reverse=true), words|sort, words|sort(case_sensitive=true), users|sort(attribute='age,name')|map(attribute='name')|list
[1, 'a']|sort
words|unique|list, words|unique(case_sensitive=true)|list, users|unique(attribute='age')|map(attribute='name')|list
xs|min, xs|max, words|min, words|max, users|max(attribute='age')|attr('name') is defined, empty|max is defined
xs|sum, users|sum(attribute='age'), empty|sum, [1.5, 2]|sum, [[1], [2]]|sum(start=[])
xs|reverse|list, 'abc'|reverse, d|reverse|list
xs|join, xs|join(', '), users|join('; ', attribute='name'), 'abc'|join('-'), [none, missing, true]|join('|')
nothing|join
words|map('upper')|list, users|map(attribute='name')|list, users|map(attribute='x', default='?')|list, users|map(attribute='x')|list, words|map('replace', 'a', 'A')|join(',')
words|map('nope')|list
words|map|list
xs|select('odd')|list, xs|reject('odd')|list, xs|select('greaterthan', 1)|list, [0, 1, '', 'a']|select|list, xs|select('in', [1, 2])|list
users|selectattr('age', 'equalto', 31)|map(attribute='name')|list, users|rejectattr('city', '==', 'Rome')|list|length, users|selectattr('nope')|list, users|selectattr('nope', 'defined')|list
xs|select('nope')|list
xs|select('odd')|length
(xs|select('odd'))[0] is defined, (empty|select) is defined, 'T' if empty|select else 'F'
users|groupby('city')|map('first')|list, users|groupby('age')|map(attribute='list')|map('length')|list, users|groupby('nope', default='z')|map(attribute='grouper')|list
xs|batch(2)|list, xs|batch(2, 0)|list, range(7)|slice(3)|list, range(7)|slice(3, 'x')|list
d|dictsort, {'b': 1, 'A': 3, 'c': 2}|dictsort, {'b': 1, 'A': 3}|dictsort(true), {'b': 1, 'a': 3}|dictsort(by='value', reverse=true)
{'b': 1, 'a': 3}|items|list, missing|items|list
5|items|list
missing|default('x'), ''|default('x'), ''|default('x', true), none|d('x'), none|d('x', true), missing|default
d|attr('keys') is defined, d|attr('b') is defined
-5|abs, 5.5|abs, (-5)|abs
2.5|round, 3.5|round, 2.675|round(2), 42.55|round(1, 'floor'), 42.55|round(1, 'ceil'), 7|round, 1234|round(-2), 2.1|round(0, 'ceil'), 1250|round(-2)
'42'|int, '42.7'|int, 'x'|int, 'x'|int(-1), 3.9|int, -3.9|int, '0x1f'|int(0, 16), '101'|int(base=2), none|int, true|int, ' 5 '|int, '1_000'|int, [1]|int
'1.5'|float, 'x'|float, 'x'|float(2.5), 3|float, '1e3'|float, none|float, '-inf'|float
missing|int
lines|indent, lines|indent(2, true), lines|indent('> ', blank=true), ''|indent
'foo bar baz qux'|truncate(9), 'foo bar baz qux'|truncate(9, true), 'foo bar baz qux'|truncate(11), 'foo bar baz qux'|truncate(11, false, '...', 0), 'foo bar baz qux'|truncate(9, end='!')
'the quick brown fox jumps'|wordwrap(10), 'abcdefghijkl mn'|wordwrap(5), 'well-known thing here'|wordwrap(6), 'a b'|wordwrap(79), 'x\n\ny z'|wordwrap(3)
'hello big-world foo'|wordcount, ''|wordcount
'abc'|center(9) ~ '|', '%s=%s'|format('a', 1), '%(x)s'|format(x=5)
'a b/ü?&'|urlencode, {'a b': 1, 'c': 'x&y'}|urlencode
{'class': 'x', 'id': none, 'v': '<'}|xmlattr
1|filesizeformat, 999|filesizeformat, 13000|filesizeformat, 1048576|filesizeformat(true), 1e12|filesizeformat
d|tojson, d|tojson(indent=2), d|tojson(sort_keys=true), d|tojson(separators=(',', ':')), 'é<>&\'"\n\u2028\x01'|tojson, 'é😀'|tojson(ensure_ascii=true), [1.0, 1e20, none, true]|tojson, {1: 2, none: 3, true: 4, 1.5: 5}|tojson
[]|tojson(indent=2), {}|tojson(indent=2), [[], {}]|tojson(indent=1), (1, (2,))|tojson, [1]|tojson(indent=0), {'a': [1]}|tojson(indent='\t')
missing|tojson
range(3)|tojson
{(1, 2): 3}|tojson
[3, 'a']|list|string, 'abc'|list, d|list
n is odd, n is even, n is divisibleby 7, n is divisibleby(2), n is number, f is float, n is integer, true is integer, true is number, true is boolean, f is integer
'a' is string, d is mapping, xs is sequence, 'a' is sequence, d is sequence, xs is iterable, n is iterable, none is none, n is none, d.items() is sequence
name is defined, missing is defined, missing is undefined, name is not defined, 'a' is lower, 'A' is upper, 'Ab' is lower, range is callable, name is callable
1 is sameas 1, true is sameas true, 1 is sameas true, 3 is in [1, 3], 3 is eq 3, 3 is ne 3, 3 is gt 2, 3 is ge 3, 3 is lt 3, 3 is le 3, 3 is equalto 3
'upper' is filter, 'nope' is filter, 'odd' is test, 'x' is not string, yes is true, no is false, 1 is true
n is odd and n is number or false
n is not none and name is string
x is odd
name is nope
name|nope
(name|nope) if no else 'fine'
name | upper | lower | title
(1, 2)|first + 3
-1|abs
not name is string
'a' is in 'abc'
users[0].name, users.0.name, users[0]['name']|upper
users|map(attribute='name')|map('length')|sum
raise_exception('bad ' ~ n)
strftime_now('%Y-%m-%d'), strftime_now('%d %b %Y'), strftime_now('%A %B %j %H:%M')
[1,2,3,], {'a': 1,}, dict(a=1,)
{'a': {'b': {'c': 1}}}.a.b.c
'a' ~ 'b' == 'ab', 1 + 2 ~ 3
9223372036854775807, -9223372036854775807 - 1
1.
1 +
[1, 2
{'a' 1}
foo bar
'abc
a.b.
)
x is
a|
1 if
{% raw %}
"a" "b"|upper
xs | map("string") | join("+")
[[1, 2], [3, 4]] | map("sum") | list
[{"a": {"b": 1}}, {"a": {"b": 2}}] | map(attribute="a.b") | list
[["x", 1], ["y", 2]] | map(attribute=0) | list
[1, 2, 3, 4][1:3] | join(",") ~ "!"
"abc"[1:][0]
("a", "b") in [("a", "b")]
{"a": 1} == {"a": 1.0}, [1, [2]] == [1, [2]]
"A" < "a", "é" > "z", [] < [0], "" < "a"
loop is defined
cycler is defined, joiner is defined, self is defined or true
""" .strip("\n").split("\n")

TEMPLATES = [
    # White space
    "a\n{% if yes %}\n  b\n{% endif %}\nc\n", "a\n  {% if yes %}  \n  b\n  {% endif %}\nc", "a  {%- if yes %} b {% endif -%}  c", "a {{- ' x ' -}} b",
    "  {{ n }}\n  {{ n -}}\n\n  x", "a\n{%+ if yes %}b{% endif +%}\nc", "  {%+ if yes %}b{% endif %}", "a\n\n{# c #}\nb", "a {#- c -#} b", "x\n  {# c #}\n  y", "{# a {{ b }} #}z",
    "{% raw %}{{ x }}{% y %}{% endraw %}z", "a\n{% raw -%}\n  {{ x }}\n{%- endraw %}\nb", "  {% raw %}\n q {% endraw %}  e", "{% raw %} a", "line\r\nnext\rlast\n", "no end\n\n", "{{ n }}\n", "{%- set a = 1 -%}\n\n x",
    "\t{% set a = 1 %}\t\nx", "a{% set a = 1 %}\nb", "{{ 'a' }}\n{{ 'b' }}\n", "{% if yes -%}\n  x\n{%- endif %}", "{ { } } {a} {", "{{ '{{' }} {{ '%}' }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': {'b': 1}} }}",
    "a\u00a0{%- if yes %}b{% endif %}", "x {#+ c +#}\ny", "{%if yes%}x{%endif%}", "{% if yes: %}x{% endif %}", "{{n}}{{-n-}}{{n}}",
    # set, scope, namespace
    "{% set a = 1 %}{% set b, c = 2, 3 %}{{ a }}{{ b }}{{ c }}", "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set a, b = 5 %}", "{% set a, b = [1, 2, 3] %}", "{% set x %}a{{ n }}b{% endset %}[{{ x }}]",
    "{% set x | upper | trim %} ab {% endset %}[{{ x }}]", "{% set x = 1, 2 %}{{ x }}", "{% set ns = namespace(i=0) %}{% for x in xs %}{% set ns.i = ns.i + x %}{% endfor %}{{ ns.i }}", "{% set a = 0 %}{% for x in xs %}{% set a = x %}{% endfor %}{{ a }}",
    "{% set a = 1 %}{% if yes %}{% set a = 2 %}{% endif %}{{ a }}", "{% for x in xs %}{{ a }}{% set a = x %}{{ a }}{% endfor %}", "{% set d.x = 1 %}", "{% set zz.x = 1 %}", "{% set ns = namespace(a=1, b='x') %}{{ ns }}{{ ns.q }}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{% set x %}a{% endset %}{{ x is string }}",
    "{% set ns = namespace() %}{% set ns.a %}blk{% endset %}{{ ns.a }}", "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}", "{% set x %}{% set y = 1 %}{% endset %}{{ y }}|", "{% with a = 1, b = 2 %}{{ a + b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}|",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}", "{% set range = 5 %}{{ range }}", "{% set name = name ~ '!' %}{{ name }}", "{% set a = [] %}{% set a = a + [1] %}{{ a }}",
    # if
    "{% if no %}a{% elif yes %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}", "{% if xs %}x{% endif %}{% if empty %}y{% endif %}", "{% if missing %}a{% else %}b{% endif %}", "{% if yes %}a", "{% endif %}", "{% if yes %}{% endfor %}", "{% if %}a{% endif %}", "{% else %}",
    "{% if n > 5 and name == 'World' %}ok{% endif %}", "{% if no %}{{ x|nope }}{% endif %}ok", "{% for x in empty %}{{ x|nope }}{% endfor %}ok", "{% if yes %}{{ n|nope }}{% endif %}", "{% if no %}{{ n is nope }}{% endif %}ok",
    # for
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}", "{% for x in xs %}{{ loop.previtem }}-{{ loop.nextitem }},{% endfor %}", "{% for x in xs %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in empty %}a{% else %}none{% endfor %}", "{% for x in xs if x > 1 %}{{ x }}:{{ loop.index }}/{{ loop.length }} {% endfor %}", "{% for x in xs if x > 5 %}{% else %}E{% endfor %}", "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'héy' %}[{{ c }}]{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in missing %}a{% else %}b{% endfor %}", "{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }} {% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in [1] %}{% break %}{% else %}E{% endfor %}", "{% break %}", "{% for x in xs %}{% for y in xs %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for n in tree recursive %}{{ n.v }}@{{ loop.depth }}{% if n.kids %}({{ loop(n.kids) }}){% endif %}{% endfor %}", "{% for x in xs %}{{ loop(xs) }}{% endfor %}", "{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for x in xs %}{% set outer = loop %}{% for y in [1] %}{{ outer.index }}{% endfor %}{% endfor %}", "{% for x in xs|sort %}{{ x }}{% endfor %}{{ x }}",
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% if not loop.last %}|{% endif %}{% endfor %}", "{% set ns = namespace(go=true) %}{% for x in xs if ns.go %}{{ x }}{% set ns.go = false %}{% endfor %}", "{% for x in xs, 5 %}{{ x }};{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}", "{% for x in xs[::-1] %}{{ x }}{% endfor %}", "{% for i in range(3) %}{{ i }}{% endfor %}", "{% for x %}{% endfor %}", "{% for x in xs %}",
    "{% for x in users|groupby('city') %}{{ x.grouper }}:{{ x.list|length }} {% endfor %}", "{% for a, b in users|groupby('age') %}{{ a }}:{{ b|map(attribute='name')|join('+') }} {% endfor %}", "{% for x in xs %}{{ loop.index is odd }}{% endfor %}", "{{ loop }}", "{% for x in xs|select('odd') %}{{ x }}{{ loop.length }}{% endfor %}", "{% for x in xs %}{{ loop.nope }}{% endfor %}|",
    # macros
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c='y') }}|{{ m(b=1, a=0) }}", "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}", "{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(4) }}", "{% macro m() %}{{ name }}{{ later }}{% endmacro %}{% set later = 'L' %}{{ m() }}", "{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "{% macro a(n) %}{{ n }}{% if n > 0 %}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(3) }}",
    "{% macro m() %}({{ caller() }}){% endmacro %}{% call m() %}x{{ n }}{% endcall %}", "{% macro m(xs) %}{% for x in xs %}{{ caller(x, 'k') }}{% endfor %}{% endmacro %}{% call(a, b) m(xs) %}{{ a }}{{ b }};{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% call 5 %}{% endcall %}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ m() }}{% macro m() %}{% endmacro %}",
    "{% macro m(a) %}{{ a|upper }}{% endmacro %}{{ m('x') ~ m('y') }}{{ m('q')|lower }}", "{% macro m() %}\n  a\n{% endmacro %}[{{ m() }}]", "{% macro m() -%}\n  a\n{%- endmacro %}[{{ m() }}]", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[5]) }}{{ m(**{'a': 6}) }}", "{% for i in xs %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ m.name }}{{ m.arguments }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% if yes %}{% macro m() %}in{% endmacro %}{% endif %}{{ m() }}", "{% macro m(a, caller=none) %}{{ a }}{{ caller }}{% endmacro %}{{ m(1) }}", "{% macro m(v) %}{% if v is mapping %}{% for k, x in v|items %}{{ k }}:{{ m(x) }},{% endfor %}{% elif v is string %}'{{ v }}'{% elif v is iterable %}[{% for x in v %}{{ m(x) }},{% endfor %}]{% else %}{{ v }}{% endif %}{% endmacro %}{{ m(d) }}{{ m(messages) }}",
    # blocks and others
    "{% filter upper %}a{{ name }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aab{% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}", "{% generation %}a{{ n }}{% endgeneration %}", "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}", "{% for m in messages %}{% generation %}{{ m.content }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}", "{% do x %}", "{% nope %}", "{% block a %}x{{ n }}{% endblock %}", "{% autoescape false %}{{ html }}{% endautoescape %}", "{% print n, name %}", "{{ n", "{% if yes", "{# open", "{{ }}", "{% %}", "{{ n }} }}", "{{ n %}", "{{ ! }}", "{{ a = 1 }}", "{{ xs[1 }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "{% set j = joiner('|') %}{{ j() }}a{{ j() }}b{{ j() }}", "{{ '\\n' }}{{ \"a\\\"b\" }}{{ 'it\\'s' }}", "{{ messages[1].tool_calls[0].function.arguments|tojson }}", "{{ messages[-1]['tool_calls'][0]['function']|tojson(indent=4) }}", "{{ messages|tojson }}", "{{ messages }}",
    "{{ messages[0].tool_calls }}{{ messages[0].tool_calls is defined }}", "{% if messages[0]['role'] == 'system' %}a{% else %}b{% endif %}{{ messages[1:]|length }}", "{% set content = messages[1].content.split('o')[0] %}{{ content }}", "{{ '<think>a</think>b'.split('</think>')[-1].lstrip('\\n') }}", "{%- for m in messages -%}\n{{ m.role }}\n{%- endfor -%}\n",
    "{{ raise_exception('x') if no else 'ok' }}", "{% if yes %}{{ raise_exception('Stop here') }}{% endif %}", "{{ name.upper().lower()|title }}", "é{{ 'ü'|upper }}ñ", "{{ {'a':1}.a }}{{ {'get':1}.get }}", "{{ [1,2,3]|first }}{{ [] |first }}|", "{{ xs|map('string')|list }}", "{{ 'x' if missing is defined else 'y' }}", "{{ not missing }}{{ missing or 'z' }}{{ missing and 'z' }}",
]


TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a place", "parameters": {"type": "object", "properties": {
    "place": {"type": "string", "description": "City, e.g. Zürich"}, "days": {"type": "integer"}, "units": {"type": "string", "enum": ["C", "F"]},
    "extra": {"type": "array", "items": {"type": "object", "properties": {"deep": {"type": "boolean"}}}}}, "required": ["place"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}]
HI = {"role": "user", "content": "Hi <there> & \"you\""}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": {"place": "Zürich", "days": 2}}}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "name": "get_weather", "content": "{\"t\": 3.5}"}
CONVERSATIONS = [
    {"case": "one user", "messages": [HI], "tools": None, "add_generation_prompt": True, "kwargs": {}},
    {"case": "no prompt", "messages": [HI, {"role": "assistant", "content": " Hello! "}], "tools": None, "add_generation_prompt": False, "kwargs": {}},
    {"case": "system", "messages": [{"role": "system", "content": "  Be brief.\n"}, HI], "tools": None, "add_generation_prompt": True, "kwargs": {}},
    {"case": "turns", "messages": [HI, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}, {"role": "user", "content": "Why?"}], "tools": None, "add_generation_prompt": True, "kwargs": {}},
    {"case": "tools", "messages": [HI], "tools": TOOLS, "add_generation_prompt": True, "kwargs": {}},
    {"case": "tool call", "messages": [HI, CALL, RESULT, RESULT, {"role": "user", "content": "Thanks"}], "tools": TOOLS, "add_generation_prompt": True, "kwargs": {}},
    {"case": "parts", "messages": [{"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "what?"}]}], "tools": None, "add_generation_prompt": True, "kwargs": {}},
    {"case": "thinking off", "messages": [HI], "tools": None, "add_generation_prompt": True, "kwargs": {"enable_thinking": False}},
    {"case": "two users", "messages": [HI, HI], "tools": None, "add_generation_prompt": True, "kwargs": {}},
    {"case": "nobody", "messages": [], "tools": None, "add_generation_prompt": True, "kwargs": {}},
]


def render(env, template, variables):
    try:
        return {"out": env.from_string(template).render(**variables)}
    except Exception as error:
        return {"error": str(error)}


def main():
    env = environment()
    cases = []
    for template in ["{{ " + e + " }}" for e in EXPRESSIONS] + TEMPLATES:
        cases.append({"template": template, **render(env, template, VARIABLES)})
    with open(os.path.join(HERE, "cases.json"), "w", encoding="utf-8") as f:
        f.write('{"variables": ' + json.dumps(VARIABLES, ensure_ascii=False) + ',\n "cases": [\n')
        f.write(",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]}\n")
    for path in sorted(glob.glob(os.path.join(HERE, "*.jinja"))):
        with open(path, encoding="utf-8", newline="") as f:
            source = f.read()
        rendered = []
        for c in CONVERSATIONS:
            variables = {"messages": c["messages"], "tools": c["tools"], "documents": None, "add_generation_prompt": c["add_generation_prompt"], "bos_token": "<s>", "eos_token": "</s>", **c["kwargs"]}
            rendered.append({**c, **render(env, source, variables)})
        with open(path[: -len(".jinja")] + ".json", "w", encoding="utf-8") as f:
            f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in rendered) + "\n]\n")
    print(len(cases), "cases,", sum("error" in c for c in cases), "of them errors")


main()
