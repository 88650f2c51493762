"""Write table-4.9.7.json: RocketMQ 4.9.7's results of filter expressions.

    python tests/golden/sql92/make_table_4_9_7.py DIRECTORY_OF_4.9.7_JARS

Needs a JDK. The table is {"properties": [..], "rows": [[expression, results]], "bloom": [..]}, see
EvaluateFilters.java. Besides the expressions listed here it has random ones from a fixed seed.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEED = 497
RANDOM_EXPRESSIONS = 400

PROPERTIES = [
    {},
    {"a": "1", "b": "x", "TAGS": "A", "KEYS": "k"},
    {"a": "5", "b": "5", "c": "true", "d": "2.5"},
    {"a": "-3", "b": "", "c": "TRUE", "d": "-0.0", "_x$1": "y"},
    {"a": "abc", "b": "it's", "c": "false", "d": "NaN"},
    {"a": "3000000000", "b": "9223372036854775808", "c": "null", "d": "1e400"},
    {"a": " 7 ", "b": "+7", "c": "0x1p3", "d": "Infinity", "A": "upper"},
    {"a": "٣", "b": "订单", "c": "1d", "d": ".5f"},
]

LISTED = r"""
a
b
A
a = 1
a = '1'
a=5
a <> 5
a != 5
a == 5
a <> 'x'
'x' = b
b = 'it''s'
b = ''
b = '订单'
a > 3
a >= 5
a < 3
a <= 1
a > b
a >= d
3 < a
3 > a
5 >= b
a > 'x'
'x' > a
a > '1'
a > TRUE
TRUE > a
a > NULL
a = NULL
NULL = a
a <> NULL
a = TRUE
c = TRUE
c = true
c <> FALSE
TRUE = c
c = FALSE
a IS NULL
a is not null
a IS NOT NULL
a IS
a IS NOT
a IS 1
NULL IS NULL
1 IS NULL
'x' IS NOT NULL
(a = 5) IS NULL
(a = 5) IS NOT NULL
a IS NULL IS NULL
a IS NULL = TRUE
missing = other
missing = 1
1 = missing
missing <> 1
missing > 1
NOT missing = 1
NOT (missing = 1)
NOT a = 5
NOT a
NOT NOT a = 5
NOT TRUE
NOT NULL
NOT 1
NOT 'x'
TRUE
FALSE
NULL
true AND NULL
FALSE AND NULL
NULL AND FALSE
TRUE OR NULL
NULL OR FALSE
NULL OR TRUE
a = 5 AND b = '5'
a = 5 OR b = 'x'
a = 1 OR b = 'x' AND c = 'z'
(a = 1 OR b = 'x') AND c = 'z'
a = 'abc' OR a = 5
a = 5 OR a = 'abc'
a = 5 AND a = 'abc'
b = 'zzz' AND a = 5
a AND b
a OR TRUE
a = 5 AND 1
a = 5 OR 'x'
1 AND a = 5
a BETWEEN 1 AND 5
a NOT BETWEEN 1 AND 5
a BETWEEN 5 AND 1
a NOT BETWEEN 5 AND 1
a BETWEEN 1 AND 1
a BETWEEN 1 AND 5.5
a BETWEEN 5.5 AND 1
a BETWEEN -5 AND -1
a BETWEEN -1 AND -5
a BETWEEN '1' AND '5'
a BETWEEN 'a' AND 5
a BETWEEN NULL AND 5
a BETWEEN TRUE AND FALSE
a BETWEEN b AND d
3 BETWEEN 1 AND 5
3 BETWEEN a AND 5
'3' BETWEEN 1 AND 5
a BETWEEN 1 AND 5 AND b = '5'
a BETWEEN 1 OR 5
a BETWEEN 1
a NOT 1
a NOT
b IN ('x', '5')
b NOT IN ('x', '5')
b IN ('x')
b IN ('1', '2', '3', '4', 'x', '6')
b NOT IN ('1', '2', '3', '4', 'x', '6')
b IN ()
b IN ('x',)
b IN ('x' '5')
b IN 'x'
b IN (5)
a IN (1, 5)
b IN ('x'
1 IN ('1')
'x' IN ('x')
(b) IN ('x')
+b IN ('x')
-b IN ('x')
(b = 'x') IN ('x')
b IN ('x') = TRUE
b IN ('it''s')
missing IN ('x')
missing NOT IN ('x')
NOT b IN ('x')
a + 1 = 2
a - 1 = 2
a * 2 = 2
a LIKE 'x'
a = 5 LIKE 'x'
a = 5 garbage ! ? #
a = 5 !
a = 5 ;
a = 5 ) OR TRUE
a = 5 (b)
a = 5 'x
a = 5 1 !
a = 5 b = 6
a = 5, b
(a = 5
((a = 5))
()
(a
)
a = (5)
(a) = 5
a = +5
a = -3
a = --3
a = - - 3
a = -(3)
-a = 3
-a IS NULL
-'x' IS NULL
-TRUE IS NULL
-(a = 5) IS NULL
- 3 = a
a > -5
-5 < a
a = -'x'
+a = 5
++a = 5
a = +-3
a = -+3
-1
1
'x'
5.5
a > 5 > 3
a = 5 = TRUE
a = 5 = 5
a = 5 <> FALSE
TRUE = TRUE
TRUE = 1
1 = TRUE
'true' = TRUE
TRUE = 'true'
1 = 1
1 = 2
1 = 1.0
1.0 = 1
1 = '1'
'1' = 1
'x' = 1
1 < 2
1 > 2
1.5 >= 1
2147483647 < 2147483648
2147483648 = 2147483648.0
'a' = 'a'
'a' = 'b'
a = b
a <> b
a = d
c = b
(a = 5) = (b = '5')
(a = 5) = b
b = (a = 5)
(a = 5) = 1
1 = (a = 5)
(a = 5) > 1
a > (b = 'x')
a = 2147483647
a = 2147483648
a = 3000000000
a > 2147483648
a < 2147483648
a = 3000000000L
a = 3000000000l
a = 5L
a = 5l
a = 0L
a = 007
a = 0
b = 9223372036854775807
b = 9223372036854775808
b = -9223372036854775808
b > -9223372036854775807
a = 99999999999999999999
d = 2.5
d > 2.4
d >= 2.5E0
d < 25e-1
d = 2.
d = .5
d = 5E-1
d = 5e
d = 5e+
d = 1E400
d = 1e308
d = 0.0
d = 0.
d = .0
d = 0e5
d = 1e-400
d = 4.9E-324
d = 2e-324
a > 0.5
a < 1e10
d > 1.2.3
d > 1
d > b
d = 'NaN'
d > 1.0
d < 1.0
d >= a
c > 1.0
c = 8.0
c = 1.0
d > .4
_x$1 = 'y'
$y = 'y'
1a = 'y'
a1 = 'y'
a.b = 1
a-b = 1
"a" = 1
`a` = 1
[a] = 1
订单 = 1
TAGS = 'A'
tags = 'A'
TAGS IS NOT NULL AND TAGS IN ('A', 'B')
KEYS = 'k'
and = 1
between = 1
a between 1 and 5
a Not Between 1 And 5
b In ('x')
a Is Null
a = 5 -- comment
a = -- comment\n5
a = -- comment\r5
a = -- comment\r\n5
-- only\na = 5
a /* c */ = 5
a /* c * / ** */ = 5
a /**/ = 5
a /***/ = 5
a /* c = 5
a = 5 /* c
a = 5 /
a = 5 *
a\t=\n5\f
a\u000b= 5
a\u00a0= 5
a = '\n'
a = 'x''
a = ''''
a = '''
''
'
=
= 5
a =
a >
a AND
AND a
OR
NOT
a = 5 AND
a = 5 AND AND b
a = 5 OR OR b
a = 5 OR AND b
a <> > 5
a < > 5
a => 5
a =< 5
a >= = 5
a & b
a | b
a || b
a = 5 && b = 5
a = 5 {
{a}
a = 5 \\
a = ?
a @ 5
a = #
a % 2 = 1
a^2
~a
a = 0x10
a = 010
a = 1_000
a = 1,5
a CONTAINS 'b'
a STARTSWITH 'b'
CONTAINS = 'b'
NOW() > 1
now = 1
a IN ('1') AND b NOT IN ('y') OR c IS NULL
NOT (a = 5 AND b = 'x') OR c IS NOT NULL
(((((a = 5)))))
NOT NOT NOT NOT a = 5
""".strip("\n").split("\n")

TOKENS = [
    *("a", "b", "c", "d", "missing", "1", "5", "3", "2.5", "3000000000", "'x'", "'5'", "'true'"),
    *("TRUE", "FALSE", "NULL", "NOT", "AND", "OR", "IN", "BETWEEN", "IS", "(", ")", ",", "="),
    *("<>", "<", ">", "<=", ">=", "+", "-"),
]
VALUES = ["a", "b", "c", "d", "missing", "1", "5", "-3", "2.5", "3000000000", "'x'", "'5'", "TRUE"]
NAMES = ["group#topic", "g#T", "", "a", "consumer-group-0123456789#topic-with-a-long-name", "订#单"]
SIZES = [[20, 32], [20, 64], [10, 128], [1, 1000], [25, 7], [50, 1], [99, 3]]


def expressions() -> list[str]:
    """Return all expressions, each once."""
    listed = [json.loads('"' + line.replace('"', '\\"') + '"') for line in LISTED]
    seeded = random.Random(SEED)
    made = [_condition(seeded, 3) for _ in range(RANDOM_EXPRESSIONS // 2)]
    made += [
        " ".join(seeded.choices(TOKENS, k=seeded.randint(2, 9)))
        for _ in range(RANDOM_EXPRESSIONS // 2)
    ]
    nested = ["(" * 20 + "a = 5" + ")" * 20, " AND ".join(["a > 1"] * 200)]
    return list(dict.fromkeys(listed + nested + made))


def _condition(seeded: random.Random, depth: int) -> str:
    def value() -> str:
        return seeded.choice(VALUES)

    kind = seeded.randrange(9 if depth else 6)
    if kind == 0:
        return f"{value()} {seeded.choice(['=', '<>'])} {value()}"
    if kind == 1:
        return f"{value()} {seeded.choice(['<', '>', '<=', '>='])} {value()}"
    if kind == 2:
        return f"{value()} IS {seeded.choice(['', 'NOT '])}NULL"
    if kind == 3:
        return f"{value()} {seeded.choice(['', 'NOT '])}BETWEEN {value()} AND {value()}"
    if kind == 4:
        return f"{seeded.choice('abcd')} {seeded.choice(['', 'NOT '])}IN ('x', '5', '1')"
    if kind == 5:
        return value()
    if kind == 6:
        return f"NOT ({_condition(seeded, depth - 1)})"
    parts = [_condition(seeded, depth - 1) for _ in range(seeded.randint(2, 3))]
    return "(" + f" {seeded.choice(['AND', 'OR'])} ".join(parts) + ")"


def main() -> None:
    """Run the Java program over all cases; write the table."""
    jars = f"{sys.argv[1]}/*"
    cases = {"properties": PROPERTIES, "expressions": expressions(), "names": NAMES, "sizes": SIZES}
    with tempfile.TemporaryDirectory() as directory:
        given, found = Path(directory, "cases.json"), Path(directory, "results.json")
        given.write_text(json.dumps(cases))
        source = HERE / "EvaluateFilters.java"
        subprocess.run(["javac", "-d", directory, "-cp", jars, str(source)], check=True)
        subprocess.run(
            ["java", "-cp", f"{directory}:{jars}", "EvaluateFilters", str(given), str(found)],
            check=True,
        )
        results = json.loads(found.read_text())
    lines = [json.dumps(row, ensure_ascii=False) for row in results["rows"]]
    text = (
        '{"properties": '
        + json.dumps(PROPERTIES, ensure_ascii=False)
        + ',\n"bloom": [\n'
        + ",\n".join(json.dumps(row, ensure_ascii=False) for row in results["bloom"])
        + '\n],\n"rows": [\n'
        + ",\n".join(lines)
        + "\n]}\n"
    )
    (HERE / "table-4.9.7.json").write_text(text)


if __name__ == "__main__":
    main()
