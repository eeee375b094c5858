"""Whoever follows a reference to the specification, a decision or the protocol finds something."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SPEC = ROOT / "docs/spec"
DOCUMENTS = {
    **{name: SPEC / f"{name}.md" for name in ("surface", "architecture")},
    **{name: SPEC / f"{name}.md" for name in ("controllers", "coordinator", "checkpoint")},
    "protocol": ROOT / "docs/internals/protocol.md",
}
FOLDERS = ("python", "jvm_shim", "tests", "docs", ".")
KINDS = frozenset({".py", ".scala", ".md", ".slt", ".toml"})
BUILT = frozenset({"target", "node_modules", "__pycache__"})

NUMBER = r"\d+(?:\.\d+)*"
ENTRY = rf"(?:[MI]\d+(?!\w)|{NUMBER}(?![\w/]))"
JOINED = r"(?:,? and |,? or |,? to |, |-| )"
LIST = rf"{ENTRY}(?:{JOINED}{ENTRY})*"
NAMES = "surface|architecture|controllers|coordinator|checkpoint|protocol"
NAMED = re.compile(rf"\b({NAMES})(?:\.md)?(?:,? sections?)? ({LIST})")
BARE = re.compile(rf"\b[Ss]pec ({LIST})")
TRAP = re.compile(r"\b[Tt]raps? (\d+(?:(?:,? and |, | to )\d+)*)")
ITEM = re.compile(rf"(?<![\w.])[MI]\d{{1,2}}(?!\w)(?:(?: to |-)[MI]{NUMBER})?")
TEST_NAME = re.compile(r"\btest_((?:(?:to_)?i\d\d?_)+)")
DECISION = re.compile(r"\b[Dd]ecisions? (\d{4}(?:(?:,? and |, )\d{4})*)")
OWN_SECTION = re.compile(rf"\b[Ss]ections? ({LIST})")
IN_PARENTHESES = re.compile(rf"(?<![\w)])\((?:[MI]\d+, )*({NUMBER}\.\d+(?:, {NUMBER}\.\d+)*)\)")
COMPANY = 60
"""How many characters before a trap may name its document."""


def numbers(text):
    """The numbers of a list, with those that a range leaves out: "M4-M6, 2.7" has four."""
    found = [
        (match[0], match[1], match[2])
        for match in re.finditer(rf"(,? to |-)?((?:[MI])?{NUMBER})", text)
    ]
    for position, (_, joined, number) in enumerate(found):
        if joined and position:
            head, first = re.fullmatch(r"(.*?)(\d+)", found[position - 1][2]).groups()
            last = re.fullmatch(r"(.*?)(\d+)", number)[2]
            yield from (f"{head}{between}" for between in range(int(first) + 1, int(last)))
        yield number


def home(path):
    """The document that a number without a name belongs to."""
    if ROOT / path in DOCUMENTS.values():
        return path.stem
    return "coordinator" if {"adapter", "planner", "sql"} & set(path.parts) else "controllers"


def as_one_line(path, text):
    """Citations may go on in the next line, behind the mark of a comment."""
    mark = "" if path.suffix == ".md" else r"(?:#+|//+|\*+)? *"
    return re.sub(rf" *\n *{mark}", " ", text)


def citations(path, text):
    """What `text` refers to, as pairs of a document and a number."""
    own = home(path)
    line = as_one_line(path, text)
    named = list(NAMED.finditer(line))
    for match in named:
        yield from ((match[1], number) for number in numbers(match[2]))
    for match in BARE.finditer(line):
        yield from ((own, number) for number in numbers(match[1]))
    for match in TRAP.finditer(line):
        company = [n[1] for n in named if n.end() <= match.start() <= n.end() + COMPANY]
        of = company[-1] if company else own
        yield from ((of, f"trap {number}") for number in numbers(match[1]))
    for match in ITEM.finditer(line):
        yield from (("controllers", number) for number in numbers(match[0]))
    for match in TEST_NAME.finditer(line):
        yield from (("controllers", f"I{int(n)}") for n in re.findall(r"\d+", match[1]))
    for match in DECISION.finditer(line):
        yield from (("decision", number) for number in re.findall(r"\d{4}", match[1]))
    yield from within_a_document(path, own, line, [match.span() for match in named])


def within_a_document(path, own, line, taken):
    """Numbers that need no name: a document's own, and a module's that says its source."""
    is_document = ROOT / path in DOCUMENTS.values()
    if is_document:
        for match in OWN_SECTION.finditer(line):
            if not any(start <= match.start() < end for start, end in taken):
                yield from ((own, number) for number in numbers(match[1]))
    if (is_document and own != "protocol") or "Source: spec" in line:
        for match in IN_PARENTHESES.finditer(line):
            yield from ((own, number) for number in numbers(match[1]))


@cache
def targets():
    """What can be referred to: for each document its numbers."""
    found = {"decision": {p.name[:4] for p in (ROOT / "docs/decisions").glob("[0-9]*.md")}}
    for name, file in DOCUMENTS.items():
        text = file.read_text()
        headings = re.findall(rf"^#+ ({NUMBER})\.? ", text, re.MULTILINE)
        operations = re.findall(r"^\*\*(M\d+) `", text, re.MULTILINE)
        invariants = re.findall(r"^\| (I\d+) \| \S", text, re.MULTILINE)
        behind = text.partition("Traps\n")[2]
        traps = [f"trap {n}" for n in re.findall(r"^(\d+)\. ", behind, re.MULTILINE)]
        # M1 and the like are cited as parts of a list, but only one document has them.
        found[name] = {*headings, *operations, *invariants, *traps}
    return found


def astray(path, text):
    """The citations of `text` that lead nowhere."""
    return lost(path, citations(path, text))


def lost(path, cited):
    known = targets()
    return [f"{path}: {of} {n}" for of, n in dict.fromkeys(cited) if n not in known.get(of, ())]


def files():
    for folder in FOLDERS:
        pattern = "*" if folder == "." else "**/*"
        for file in sorted((ROOT / folder).glob(pattern)):
            inside = file.relative_to(ROOT)
            if file.suffix in KINDS and not BUILT & set(inside.parts) and file != Path(__file__):
                yield inside


def test_every_reference_leads_somewhere():
    found = {file: list(citations(file, (ROOT / file).read_text())) for file in files()}
    assert [each for file, cited in found.items() for each in lost(file, cited)] == []
    assert sum(map(len, found.values())) > 300
    assert {of for cited in found.values() for of, _ in cited} == {*DOCUMENTS, "decision"}


MODULE = Path("python/slackwater/storage/some.py")
STATEMENT = Path("python/slackwater/adapter/some.py")


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (MODULE, "Source: spec controllers 2.99.", ["controllers 2.99"]),
        (MODULE, "Source: spec\ncontrollers 1.5, 2.98.", ["controllers 2.98"]),
        (MODULE, "# Source: spec controllers 1.5,\n    # 2.97 and 2.1", ["controllers 2.97"]),
        (MODULE, "spec controllers 1.8 to 1.11", ["controllers 1.10", "controllers 1.11"]),
        (MODULE, "spec 2.3 M27-M29, 2.7.", ["controllers M28", "controllers M29"]),
        (MODULE, "keeps its order (I57).", ["controllers I57"]),
        (MODULE, "I55 to I58 hold", ["controllers I57", "controllers I58"]),
        (MODULE, "def test_i07_i58_to_i59_it_holds():", ["controllers I58", "controllers I59"]),
        (MODULE, "the other order leaks (trap 16)", ["controllers trap 16"]),
        (MODULE, "Source: spec controllers 2.\n It moves on (2.96).", ["controllers 2.96"]),
        (STATEMENT, "Source: spec coordinator 1.7, trap 16.", ["coordinator trap 16"]),
        (STATEMENT, "the steps of spec 2.11 and 2.14", ["coordinator 2.14"]),
        (STATEMENT, "surface section 8, architecture 6", ["surface 8", "architecture 6"]),
        (STATEMENT, "Source: checkpoint 5.99.", ["checkpoint 5.99"]),
        (STATEMENT, "see protocol, section 9, and decision 9999", ["protocol 9", "decision 9999"]),
        (Path("docs/spec/surface.md"), "See section 12 and (4.7).", ["surface 12", "surface 4.7"]),
    ],
)
def test_a_reference_to_nothing_is_found(path, text, expected):
    assert astray(path, text) == [f"{path}: {each}" for each in expected]


@pytest.mark.parametrize(
    "text",
    [
        "Source: surface 4 and 4.1, spec coordinator 5.3.",
        "Source: spec controllers 5.1-5.3, coordinator 6.2 and 7.2.",
        "Source: spec controllers 2.11, 5.2, traps 12 and 13. sleep(2.5)",
        "surface 4.1. Names follow; Spark (4.2 and later), I8X, 13 M99x, i64",
    ],
)
def test_what_leads_somewhere_and_what_is_no_reference_is_left_alone(text):
    assert astray(MODULE, text) == []


def test_all_operations_and_invariants_have_their_place():
    known = targets()["controllers"]
    assert {f"M{n}" for n in range(1, 28)} == {each for each in known if each[0] == "M"}
    assert {f"I{n}" for n in range(1, 57)} == {each for each in known if each[0] == "I"}
