"""Random records and texts: parsers of examples and of CSV, splits, patterns, code points, formats, numbers."""

from __future__ import annotations

from random import Random

_EXAMPLES = """
def feature(kind, values):
    lists = {'bytes': tf.train.BytesList, 'float': tf.train.FloatList, 'int64': tf.train.Int64List}
    return tf.train.Feature(**{kind + '_list': lists[kind](value=values)})


def example(features):
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def sequence(context, lists):
    lists = {name: tf.train.FeatureList(feature=rows) for name, rows in lists.items()}
    return tf.train.SequenceExample(
        context=tf.train.Features(feature=context), feature_lists=tf.train.FeatureLists(feature_list=lists)
    ).SerializeToString()


session = tf.Session()
"""
_VALUES = {"bytes": ("b'a'", "b''", "b'xyz'"), "float": ("0.5", "-2.0", "7.25"), "int64": ("0", "3", "-4", "2**40")}
_TYPES = {"bytes": "tf.string", "float": "tf.float32", "int64": "tf.int64"}
_TEXTS = (
    "",
    "a",
    "abc",
    "a,b",
    "a b  c",
    " x ",
    "1",
    "-2.5",
    "1e3",
    "0x1f",
    "nan",
    "inf",
    "héllo",
    "日本語",
    "a\\tb",
    "\\xff\\xfe",
    "A1b2",
    "aaa",
    "a\\nb",
    "x=1;y=2",
    "😀z",
    "12345678901234567890",
    "+5",
    "1.",
    ".5",
    "1 2",
    "İ",
    "ß",
)

#: numbers as they are written, and what is none
_WRITTEN = (
    "1",
    " 2 ",
    "-3",
    "4.5",
    "1e2",
    "2147483648",
    "-9223372036854775808",
    "1e400",
    "0x10",
    "1_0",
    "Infinity",
    "-nan",
    "١",
)


# ---------------------------------------------------------------------- examples
def _features(r: Random, kinds: dict[str, str]) -> str:
    """Features of some of the names; now and then of another kind."""
    found = []
    for name, kind in kinds.items():
        if r.random() < 0.75:
            kind = r.choice(sorted(_VALUES)) if r.random() < 0.06 else kind
            values = [r.choice(_VALUES[kind]) for _ in range(r.choice((0, 1, 1, 2, 2, 3, 4)))]
            found.append(f"'{name}': feature('{kind}', [{', '.join(values)}])")
    if r.random() < 0.1:
        found.append("'empty': tf.train.Feature()")
    return "{" + ", ".join(found) + "}"


def _specification(r: Random, kind: str, lists: bool = False) -> str:
    dtype = _TYPES[kind]
    default = {"bytes": "'d'", "float": "9.0", "int64": "7"}[kind]
    shape = r.choice(("[]", "[1]", "[2]", "[2, 1]", "[0]", "[1, 2]"))
    which = r.randrange(8)
    if which < 2:
        return f"tf.VarLenFeature({dtype})"
    if which < 4:
        count = {"[]": None, "[1]": 1, "[2]": 2, "[2, 1]": 2, "[0]": 0, "[1, 2]": 2}[shape]
        full = default if count is None else f"np.full({shape}, {default}, dtype={dtype}.as_numpy_dtype)"
        return f"tf.FixedLenFeature({shape}, {dtype}{r.choice(('', f', {full}'))})"
    if which < 6:
        missing = r.choice(("", ", allow_missing=True"))
        value = r.choice(("", f", default_value={default}")) if missing and not lists else ""
        return f"tf.FixedLenSequenceFeature({shape}, {dtype}{missing}{value})"
    if which < 7:
        return f"tf.SparseFeature('i', 'v', {dtype}, {r.choice((3, 5, 10))}{r.choice(('', ', already_sorted=True'))})"
    return f"tf.FixedLenFeature([], {dtype}, {default})"


def _parse(r: Random) -> list[str]:
    kinds = {name: r.choice(sorted(_VALUES)) for name in ("a", "b", "c")}
    kinds |= {"i": "int64", "v": r.choice(sorted(_VALUES))}
    lines = []
    wanted = []
    for key in r.sample(("a", "b", "c", "s", "none"), r.randint(1, 4)):
        kind = kinds["v"] if key == "s" else kinds.get(key, "float")
        if r.random() < 0.05:
            kind = r.choice(sorted(_VALUES))
        text = _specification(r, kind)
        if key == "s":
            text = f"tf.SparseFeature('i', 'v', {_TYPES[kind]}, {r.choice((2, 5, 10))})"
        wanted.append(f"'{key}': {text}")
    specification = "{" + ", ".join(wanted) + "}"
    if r.random() < 0.4:
        lines.append(f"record = example({_features(r, kinds)})")
        if r.random() < 0.08:
            lines.append("record = record[:-1] if record else b'!'")
        lines.append(f"parsed = tf.parse_single_example(record, {specification})")
    else:
        records = [f"example({_features(r, kinds)})" for _ in range(r.choice((0, 1, 2, 3)))]
        lines.append(f"records = tf.constant([{', '.join(records)}], tf.string, shape=[{len(records)}])")
        names = "" if r.random() < 0.8 else f", example_names={[f'n{i}' for i in range(len(records))]}"
        lines.append(f"parsed = tf.parse_example(records, {specification}{names})")
    return [*lines, *_shown()]


def _shown() -> list[str]:
    return [
        "for key in sorted(parsed):",
        "    part = parsed[key]",
        "    see(key + ' type', part.dtype)",
        "    see(key + ' shape', part.shape if isinstance(part, tf.Tensor) else part.dtype)",
        "    attempt(key, lambda: session.run(part))",
        "attempt('together', lambda: session.run(parsed))",
    ]


def _parse_sequence(r: Random) -> list[str]:
    kinds = {name: r.choice(sorted(_VALUES)) for name in ("a", "b")}
    lists = {name: r.choice(sorted(_VALUES)) for name in ("f", "g")}
    texts = []
    for _ in range(r.choice((1, 2, 3))):
        rows = []
        for name, kind in lists.items():
            if r.random() < 0.8:
                count = r.choice((0, 1, 2, 2))
                features = []
                for _ in range(r.choice((0, 1, 2, 3))):
                    given = r.choice(sorted(_VALUES)) if r.random() < 0.04 else kind
                    size = count if r.random() < 0.8 else r.choice((0, 1, 3))
                    values = ", ".join(r.choice(_VALUES[given]) for _ in range(size))
                    features.append(f"feature('{given}', [{values}])")
                rows.append(f"'{name}': [{', '.join(features)}]")
        texts.append(f"sequence({_features(r, kinds)}, {{{', '.join(rows)}}})")
    context = [f"'{n}': {_context(r, k)}" for n, k in kinds.items() if r.random() < 0.7]
    sequences = [f"'{n}': {_of_lists(r, k)}" for n, k in lists.items() if r.random() < 0.8]
    arguments = f"{{{', '.join(context)}}}, {{{', '.join(sequences)}}}"
    lines = []
    if r.random() < 0.5:
        lines.append(f"context, lists = tf.parse_single_sequence_example({texts[0]}, {arguments})")
        lines.append("parsed = {**context, **lists}")
    else:
        lines.append(f"context, lists, lengths = tf.io.parse_sequence_example([{', '.join(texts)}], {arguments})")
        lines.append("parsed = {**context, **lists, **{key + ' length': value for key, value in lengths.items()}}")
    return [*lines, *_shown()]


def _context(r: Random, kind: str) -> str:
    default = {"bytes": "'d'", "float": "9.0", "int64": "7"}[kind]
    return r.choice(
        (
            f"tf.VarLenFeature({_TYPES[kind]})",
            f"tf.FixedLenFeature([], {_TYPES[kind]}, {default})",
            f"tf.FixedLenFeature([], {_TYPES[kind]})",
            f"tf.FixedLenFeature([2], {_TYPES[kind]}, [{default}, {default}])",
        )
    )


def _of_lists(r: Random, kind: str) -> str:
    shape, missing = r.choice(("[]", "[1]", "[2]", "[2, 1]")), r.choice(("", ", allow_missing=True"))
    return r.choice(
        (
            f"tf.VarLenFeature({_TYPES[kind]})",
            f"tf.FixedLenSequenceFeature({shape}, {_TYPES[kind]}{missing})",
            f"tf.FixedLenSequenceFeature({shape}, {_TYPES[kind]}{missing})",
        )
    )


# ---------------------------------------------------------------------- texts
def _texts(r: Random, most: int = 4) -> str:
    return "[" + ", ".join(_literal(r.choice(_TEXTS)) for _ in range(r.randint(1, most))) + "]"


def _count(texts: str) -> int:
    return texts.count("encode") + texts.count("b'")


def _literal(text: str) -> str:
    return f"b'{text}'" if "\\x" in text else f"'{text}'.encode()"


def _one(name: str, expression: str) -> list[str]:
    return [f"attempt('{name}', lambda: session.run({expression}))"]


def _csv(r: Random) -> list[str]:
    cells = ("1", "2.5", "", "a", '"q,\\"\\"r"', '"x"', "NA", " 3", "-7", "1e2", '"', 'a"b', "99999999999")
    width = r.randint(1, 3)
    rows = []
    for _ in range(r.randint(1, 3)):
        row = [r.choice(cells) for _ in range(width if r.random() < 0.9 else width + 1)]
        rows.append(
            "'" + r.choice((",", ",", ",", ";")).join(row).replace("\\", "") + r.choice(("", "", "\\n", "\\r\\n")) + "'"
        )
    defaults = [
        r.choice(
            (
                "[1]",
                "[0.5]",
                "['d']",
                "tf.constant([], tf.int32)",
                "tf.constant([], tf.string)",
                "tf.constant([3], tf.int64)",
                "tf.constant([2.5], tf.float64)",
                "[]",
                "tf.float32",
            )
        )
        for _ in range(width)
    ]
    more = r.choice(("", "", ", field_delim=';'", ", use_quote_delim=False", ", na_value='NA'", ", select_cols=[0]"))
    if "select_cols" in more:
        defaults = defaults[:1]
    return _one("csv", f"tf.decode_csv([{', '.join(rows)}], [{', '.join(defaults)}]{more})")


def _raw(r: Random) -> list[str]:
    size = r.choice((0, 1, 2, 4, 8, 12, 16))
    dtype = r.choice(("uint8", "int16", "int32", "float32", "int64", "float64", "float16", "uint16", "complex64"))
    values = [
        repr(bytes(r.choice((0, 1, 63, 128)) for _ in range(size if r.random() < 0.9 else size + 1))) for _ in range(2)
    ]
    little = r.choice(("", ", little_endian=False"))
    if r.random() < 0.3:
        return _one("raw", f"tf.io.decode_raw([{', '.join(values)}], tf.{dtype}{little})")
    return _one("raw", f"tf.decode_raw([{', '.join(values)}], tf.{dtype}{little})")


def _split(r: Random) -> list[str]:
    separator = r.choice(("' '", "','", "''", "'ab'", "'a'", "None"))
    padding = r.choice(("", ", pad_values=('<', '>')"))
    texts = _texts(r)
    return _one(
        "split",
        r.choice(
            (
                f"tf.string_split({texts}, {separator.replace('None', chr(39) + ' ,' + chr(39))})",
                f"tf.string_split({texts}, {separator.replace('None', chr(39) * 2)}, skip_empty=False)",
                f"tf.strings.split({texts}, sep={separator})",
                (
                    f"tf.strings.split({texts}, sep={separator}, "
                    f"maxsplit={r.choice((-1, 0, 1, 2))}, result_type='RaggedTensor')"
                ),
                f"tf.strings.split({texts}, maxsplit=1)",
                f"tf.strings.bytes_split({texts})",
                (
                    f"tf.strings.ngrams(tf.ragged.constant([{texts}, []]), {r.choice(('1', '2', '[1, 3]'))}, '|'"
                    f"{padding})"
                ),
            )
        ),
    )


def _pattern(r: Random) -> list[str]:
    pattern = r.choice(
        (
            r"a",
            r"a*",
            r"[0-9]+",
            r"(a)(b)?",
            r"\\s+",
            r"^",
            r"$",
            r"\\b",
            r".",
            r"(?i)A",
            r"(",
            r"a|b",
            r"\\w+",
            r"x?",
            r"\\pL",
            r"[^a]",
        )
    )
    rewrite = r.choice(("", "z", r"<\\0>", r"\\1-\\2", r"\\\\", r"\\9", "$1"))
    texts = _texts(r)
    return _one(
        "pattern",
        r.choice(
            (
                f"tf.regex_replace({texts}, '{pattern}', '{rewrite}')",
                f"tf.regex_replace({texts}, '{pattern}', '{rewrite}', replace_global=False)",
                f"tf.strings.regex_full_match({texts}, '{pattern}')",
                f"tf.regex_replace({texts}, tf.constant('{pattern}'), tf.constant('{rewrite}'))",
            )
        ),
    )


def _substr(r: Random) -> list[str]:
    texts = _texts(r, 3)
    count = _count(texts)

    def at() -> str:
        return r.choice((str(r.choice((0, 1, 2, -1, -2, 5))), str([r.choice((0, 1, -1)) for _ in range(count)])))

    unit = r.choice(("BYTE", "UTF8_CHAR"))
    position = at()
    length = (
        str([r.choice((0, 1, 5, -1)) for _ in range(count)])
        if position.startswith("[")
        else str(r.choice((0, 1, 3, 9, -1)))
    )
    return _one("substr", f"tf.strings.substr({texts}, {position}, {length}, unit='{unit}')")


def _unicode(r: Random) -> list[str]:
    texts, encoding = _texts(r), r.choice(("UTF-8", "UTF-8", "UTF-16-BE", "UTF-32-BE", "US-ASCII"))
    errors = r.choice(
        (
            "",
            ", errors='strict'",
            ", errors='ignore'",
            ", errors='replace', replacement_char=63",
            ", replace_control_characters=True",
        )
    )
    output = r.choice(("UTF-8", "UTF-16-BE", "UTF-32-BE"))
    return _one(
        "unicode",
        r.choice(
            (
                f"tf.strings.unicode_decode({texts}, '{encoding}'{errors})",
                (
                    f"tf.strings.unicode_split({texts}, "
                    f"'{encoding}'{errors.replace(', replace_control_characters=True', '')})"
                ),
                f"tf.strings.unicode_decode_with_offsets({texts}, '{encoding}'{errors})",
                f"tf.strings.unicode_transcode({texts}, '{encoding}', '{output}'{errors})",
                (
                    "tf.strings.unicode_encode(tf.ragged.constant([[72, 228], [], "
                    f"[{r.choice((0x1F600, 0x110000, 0xD800, 65))}]]), '{output}'"
                    f"{errors.replace(', replace_control_characters=True', '')})"
                ),
                f"tf.strings.unicode_script(tf.constant([{r.choice((65, 0x3042, 0x1F600, -1, 0x110000))}, 1041]))",
                f"tf.strings.length({texts}, unit='UTF8_CHAR')",
                f"tf.strings.lower({texts}, encoding='utf-8')",
                f"tf.strings.upper({texts}, encoding='{r.choice(('', 'utf-8'))}')",
                f"tf.strings.strip({texts})",
            )
        ),
    )


def _numbers(r: Random) -> list[str]:
    numbers = (
        "["
        + ", ".join(
            r.choice(("0.0", "1.5", "-2.25", "1e10", "123456.789", "1e-7", "float('nan')", "float('inf')", "100.0"))
            for _ in range(3)
        )
        + "]"
    )
    whole = "[" + ", ".join(r.choice(("0", "1", "-17", "100", "99")) for _ in range(3)) + "]"
    options = "".join(
        r.choice(("", text))
        for text in (
            f", precision={r.choice((0, 1, 3, 8))}",
            ", scientific=True",
            ", shortest=True",
            f", width={r.choice((1, 8, 12))}",
            f", fill='{r.choice((' ', '0', '-', '+'))}'",
        )
    )
    dtype = r.choice(("float32", "float64", "float16", "complex64", "bfloat16"))
    other = r.choice(("int8", "int16", "int32", "int64", "bool"))
    made = f"tf.constant({whole}, tf.{other})" if other != "bool" else "tf.constant([True, False])"
    return _one(
        "number",
        r.choice(
            (
                f"tf.as_string(tf.constant({numbers}, tf.{dtype}){options})",
                f"tf.as_string({made}{options})",
                f"tf.string_to_number({_texts(r, 1)}, tf.{r.choice(('float32', 'float64', 'int32', 'int64'))})",
                f"tf.string_to_number({_texts(r, 2)}, tf.{r.choice(('float32', 'float64', 'int32', 'int64'))})",
                (
                    f"tf.string_to_number(['{r.choice(_WRITTEN)}'], "
                    ""
                    f"tf.{r.choice(('float32', 'float64', 'int32', 'int64'))})"
                ),
            )
        ),
    )


def _format(r: Random) -> list[str]:
    value = r.choice(
        (
            "tf.range(12)",
            "tf.reshape(tf.range(60) * 7, [5, 12])",
            "tf.constant(1.5)",
            "tf.constant(['a', 'b c'])",
            "tf.constant([True, False])",
            "tf.constant([[0.1, 1e10], [-3.0, 1e-5]])",
            "tf.zeros([0])",
            "tf.zeros([2, 0])",
            "tf.constant('x')",
            "tf.constant([2.0])",
            "tf.constant([1.5, 2], tf.float16)",
            "tf.zeros([2, 2, 9])",
            "tf.constant(3, tf.int8)",
        )
    )
    return _one(
        "format",
        r.choice(
            (
                f"tf.strings.format('v: {{}}', {value}, summarize={r.choice((-1, 1, 2, 3))})",
                f"tf.strings.format('%s|%s', [{value}, {value}], placeholder='%s')",
                f"tf.strings.format('no', [{value}])",
                f"tf.strings.format('{{}} and {{}}', ({value}, tf.constant(2)))",
            )
        ),
    )


def _joined(r: Random) -> list[str]:
    texts = _texts(r, 3)
    segments = [r.choice((0, 1, 2)) for _ in range(_count(texts))]
    return _one(
        "join",
        r.choice(
            (
                f"tf.string_join([{texts}, {texts}, 'k'], separator='{r.choice(('', '-'))}')",
                f"tf.string_join([{texts}, {_texts(r, 3)}])",
                (
                    f"tf.reduce_join([{texts}, {texts}], "
                    f"{r.choice(('0', '1', '-1', '[0, 1]', '[1, 0]', '[]', 'None', '2'))}, separator='+')"
                ),
                f"tf.reduce_join([{texts}], axis={r.choice((0, 1))}, keep_dims=True)",
                f"tf.strings.unsorted_segment_join({texts}, {segments}, 3, ':')",
                f"tf.string_to_hash_bucket_fast({texts}, {r.choice((1, 10, 2**40))})",
                f"tf.string_to_hash_bucket_strong({texts}, 100, [1, 2])",
                f"tf.string_to_hash_bucket({texts}, 100)",
                f"tf.encode_base64({texts}, pad={r.choice((True, False))})",
                f"tf.decode_base64({texts})",
                f"tf.decode_base64(tf.encode_base64({texts}))",
                f"tf.strings.to_number(tf.strings.substr(['12', '345'], 0, {r.choice((1, 2))}))",
            )
        ),
    )


_KINDS = (_csv, _raw, _split, _pattern, _substr, _unicode, _numbers, _format, _joined)


def write(random: Random) -> str:
    """A script that parses random examples, or calls some functions of texts."""
    lines = [_EXAMPLES.strip("\n")]
    kind = random.randrange(3)
    if kind == 0:
        lines += _parse(random)
    elif kind == 1:
        lines += _parse_sequence(random)
    else:
        for _ in range(12):
            lines += random.choice(_KINDS)(random)
    return "\n".join(lines) + "\n"
