"""Text of others is clean and bounded wherever it is shown or kept."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_ngraph.errors import SpecError
from pytest_ngraph.texts.shown import KEPT_BYTES, SHOWN_LINES, SHOWN_WIDTH, clean, excerpt, is_long, kept, one_line

# Letters that terminals, browsers and parsers obey, more often than chance would have them.
OBEYED = "\x1b\x9b\x9d\x90\x07\x08\r\n\t\v\f\x00\x7f\x85\u202e\u2066\u2069\u200f\u2028\ufeff\udc80\ufffe[]31;mHJ\\"
ANY = st.one_of(st.text(), st.text(st.sampled_from(OBEYED)), st.text(st.characters(codec=None)))
QUICK = settings(max_examples=200, derandomize=True, deadline=None)


def is_clean(text: str) -> bool:
    """Tell whether a text has nothing but lines of letters that are printed."""
    bad = {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return bad <= set("\n\u200c\u200d")


@QUICK
@given(ANY)
@example("\x1b]0;no end")
@example("\x1b" * 5)
def test_any_text_is_clean_and_stays_so(text: str) -> None:
    once = clean(text)
    assert is_clean(once)
    assert clean(once) == once
    once.encode()


@QUICK
@given(st.text(st.characters(whitelist_categories=("L", "N", "P", "S"))))
def test_text_that_is_printed_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[?25l\x1b[2J\x1b[Hgone", "gone"),
        ("\x9b31mC1", "C1"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("\x1bP+q544e\x1b\\DCS \x1b(B\x1b7\x1bc", "DCS "),
        ("\x1b]0;no end\nFAILED", "0;no end\nFAILED"),
        ("verdict: fail\rverdict: pass", "verdict: fail\nverdict: pass"),
        ("a\r\nb\vc\fd\x85e\u2028f", "a\nb\nc\nd\ne\nf"),
        ("fail\x08\x08\x08\x08pass\x07", r"fail\x08\x08\x08\x08pass\x07"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("file\udcff.onnx", r"file\udcff.onnx"),
        ("\ta\u00a0b\u3000c", "    a b c"),
        ("naïve 模型 👍 é", "naïve 模型 👍 é"),
    ],
)
def test_what_would_be_obeyed_is_gone_or_written_out(text: str, shown: str) -> None:
    assert clean(text) == shown


@QUICK
@given(ANY, st.integers(2, 50))
def test_a_line_is_one_line(text: str, most: int) -> None:
    line = one_line(text, most)
    assert len(line) <= most
    assert "\n" not in line
    assert is_clean(line)


@QUICK
@given(ANY, st.integers(0, 3000), st.integers(200, 3000))
def test_what_is_kept_is_no_longer_than_it_may_be(text: str, times: int, most: int) -> None:
    assert len(kept(text * times, most).encode()) <= most
    assert is_clean(kept(text * times, most))


@QUICK
@given(ANY, st.integers(0, 100))
def test_what_is_shown_has_a_screen_of_lines_at_most(text: str, times: int) -> None:
    whole = f"{text}\n" * times
    lines = excerpt(whole).split("\n")
    assert len(lines) <= SHOWN_LINES
    assert all(len(line) <= SHOWN_WIDTH + 40 for line in lines)
    assert is_clean("\n".join(lines))
    assert is_long(whole) or "\n".join(lines) == clean(whole).rstrip("\n")


@pytest.mark.parametrize("count", [SHOWN_LINES + 1, 2000, 200_000, 2_000_000])
def test_the_lines_that_are_not_shown_are_counted_however_much_was_left_out_before(count: int) -> None:
    text = kept("\n".join(f"\x1b[1mline {number}" for number in range(count)))
    lines = excerpt(f"{text}\nall of it: /tmp/some.log").split("\n")
    assert len(text.encode()) <= KEPT_BYTES
    assert (lines[0], lines[-1]) == ("line 0", f"line {count - 1}")
    more = f"... {count - SHOWN_LINES + 1} lines more, all of it in /tmp/some.log"
    assert [line for line in lines if not line.startswith("line")] == [more]


def test_letters_of_a_long_line_are_counted_too() -> None:
    text = kept("a\n" + "x" * 50_000_000 + "\nb")
    shown = excerpt(text).split("\n")
    assert shown == ["a", "... 50000000 letters more", "b"]
    assert excerpt("y" * 500) == "y" * SHOWN_WIDTH + " ... 100 letters more"


@pytest.mark.parametrize("piece", ["\x9d", "\x1b]a", "\x1b[", "\x1b", "\r", "\udc80", "\x1b]" + "a" * 5000, "\x1b[0;"])
def test_no_text_takes_long_to_clean(piece: str) -> None:
    text = piece * (20_000_000 // len(piece))
    began = time.process_time()
    assert len(kept(text).encode()) <= KEPT_BYTES
    assert time.process_time() - began < 5


def test_an_error_of_ours_says_what_others_said_in_clean_words() -> None:
    error = SpecError("no file '\x1b[2Ja\u202e.onnx'" + "x" * 100_000)
    assert str(error).startswith(r"no file 'a\u202e.onnx'xxx")
    assert len(str(error).encode()) <= KEPT_BYTES
