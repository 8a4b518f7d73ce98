# SPDX-License-Identifier: MIT
"""Every error code in use has a page, and the program on it gives that error."""

from __future__ import annotations

import linecache
import re
from pathlib import Path

import pytest

import pto_jit as pto
from pto_jit.commands import main
from pto_jit.error_pages import pages
from pto_jit.errors import InternalError, PtoError

PACKAGE = Path(pto.__file__).parent
PAGES = pages()
EXAMPLES = [page for page in PAGES.values() if page.example is not None]


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    used: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        used.update(re.findall(r"PTO-[A-Z]\d{3}", text))
        used.update(f"PTO-{code}" for code in re.findall(r'"([NSTHLPRXAB]\d{3})"', text))  # completed by a function
    assert sorted(used - set(PAGES)) == [], "codes without a page in pto_jit/error_pages"
    assert sorted(set(PAGES) - used) == [], "pages of codes that nothing uses"


def test_pages_say_what_it_is_and_what_to_do() -> None:
    for page in PAGES.values():
        assert page.title and not page.title.endswith("."), page.code
        assert page.text.count("**Fix:** ") == 1, page.code
        assert ("No example: " in page.text) == (page.example is None), page.code
        assert page.text.count("```") in (0, 2), page.code


@pytest.mark.parametrize("page", EXAMPLES, ids=[page.code for page in EXAMPLES])
def test_the_example_gives_the_error(page: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = page.code, page.example  # type: ignore[attr-defined]
    monkeypatch.chdir(tmp_path)
    filename = f"<example of {code}>"
    linecache.cache[filename] = len(text), None, text.splitlines(keepends=True), filename
    with pytest.raises(PtoError) as caught:
        exec(compile(text, filename, "exec", dont_inherit=True), {"__name__": "example"})
    error = caught.value
    assert not isinstance(error, InternalError), str(error)
    assert str(error).startswith(f"{code}: "), str(error)
    assert getattr(error, "code", None) in (code, None)
    assert not getattr(error, "others", ()), str(error)


def test_the_command_prints_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "PTO-N006", "h001"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("PTO-N006: a name is not defined\n\nNames are found as in Python")
    assert "```python" in printed and "\nPTO-H001: tiles do not broadcast\n" in printed


def test_the_command_lists_all_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(PAGES)


def test_the_command_prints_a_program_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--example", "PTO-A023"]) == 0
    with pytest.raises(pto.ArgumentError, match="PTO-A023"):
        exec(capsys.readouterr().out, {})


def test_an_unknown_code_is_an_error_with_its_neighbours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "PTO-N999"]) == 1
    assert "there is no error code PTO-N999; did you mean PTO-" in capsys.readouterr().err
