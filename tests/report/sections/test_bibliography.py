"""References as BibTeX: each entry parses, and holds what references.yaml states."""

import re

import pytest

from bolt.config import load_dataset
from bolt.config.study import Study
from bolt.report.sections.methods import bibtex, cite, cited, load_references, methods
from tests.report.results import settings


def braced(text, start):
    """Return the text between the brace at `start` and the one that closes it, and the position after that."""
    depth = 0
    for position in range(start, len(text)):
        if text[position] in "{}" and text[position - 1] != "\\":
            depth += 1 if text[position] == "{" else -1
        if depth == 0:
            return text[start + 1 : position], position + 1
    raise AssertionError(f"a brace is not closed: {text[start : start + 60]}")


def parse(text):
    """Return type and fields of each entry by key, as BibTeX reads them: what is outside entries is a comment."""
    entries, position = {}, 0
    while (found := re.compile(r"@(\w+)(?=\{)").search(text, position)) is not None:
        body, position = braced(text, found.end())
        key, _, rest = body.partition(",")
        assert re.fullmatch(r"[\w-]+", key) and key not in entries
        fields, at = {}, 0
        while (field := re.compile(r"\s*(\w+) = (?=\{)").match(rest, at)) is not None:
            fields[field[1]], at = braced(rest, field.end())
            assert rest[at] == ","
            at += 1
        assert not rest[at:].strip(), rest[at:]
        entries[key] = found[1], fields
    return entries


def plain(text):
    """Return what LaTeX prints."""
    words = {r"\textbackslash{}": "\0", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^"}
    for command, character in words.items():
        text = text.replace(command, character)
    text = re.sub(r"(?<!\\)[{}]", "", text)
    assert not re.search(r"(?<!\\)[&%$#_]", text), text
    return re.sub(r"\\([&%$#_{}])", r"\1", text).replace("\0", "\\")


@pytest.mark.parametrize("name", ["abide1", "fmriprep", "hcp_rest", "phantom", "series"])
def test_the_file_has_exactly_the_references_of_the_text(tmp_path, name):
    text = methods(Study(settings(tmp_path).config, load_dataset(name)))
    entries = parse(bibtex(cited(text), load_references()))
    assert list(entries) == cited(text) and len(entries) == len(cite(text)[1])
    assert set(entries) == set(re.findall(r"@(\w+)", " ".join(text)))


def test_every_reference_says_what_the_list_says():
    references = load_references()
    entries = parse(bibtex(list(references), references))
    for key, about in references.items():
        kind, fields = entries[key]
        assert fields["title"] == f"{{{fields['title'][1:-1]}}}" and plain(fields["title"]) == about["title"], key
        assert fields["year"] == str(about["year"])
        assert fields.get("doi") == about.get("doi") and ("url" in fields) == ("doi" not in about)
        if kind == "article":
            number = f"({fields['number']})" if "number" in fields else ""
            place = f"{plain(fields['journal'])} {fields['volume']}{number}:{fields['pages'].replace('--', '-')}"
            assert place == about["journal"], key
        else:
            assert kind == "misc" and plain(fields["howpublished"]) == about["journal"], key
        authors = fields["author"].split(" and ")
        assert all(re.fullmatch(r"[^,]+, ([^\W\d_]\.)( [^\W\d_]\.)*|others", author) for author in authors), authors
        assert len(authors) == about["authors"].count(", ") + 1 and "others" not in authors[:-1]
    articles = sum(kind == "article" for kind, _ in entries.values())
    assert articles > 30


def test_signs_of_latex_are_escaped():
    about = {
        "authors": "O'Brien_Smith K, van der A B, et al.",
        "year": "2020",
        "title": r"50 % of {R&D} at $1 ~ #2_3 ^ C:\x",
        "journal": "Brain & Mind 1:2-3",
        "url": "example.org/a_b%20c",
    }
    kind, fields = parse(bibtex(["key"], {"key": about}))["key"]
    assert kind == "article" and plain(fields["title"]) == about["title"]
    assert fields["author"] == r"O'Brien\_Smith, K. and van der A, B. and others"
    assert fields["journal"] == r"Brain \& Mind" and fields["pages"] == "2--3"
    assert fields["url"] == "https://example.org/a_b%20c"
