"""Files of calls: what a log of lengths may look like, and how many of its lengths are measured."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.shapes.files import grouped
from pytest_ngraph.spec.shapes.mixes import normal, parse


@pytest.mark.parametrize(
    "content",
    [
        b"32\n128\n128\n",
        b"\xef\xbb\xbf32\r\n128\r\n128\r\n",
        b"length\n32\n\n128\n128",
        b"when,tokens\n9:00,32\n9:01,128\n9:02,128\n",
        b"id,sequence\n1,32\n2,128\n3,128\n",
        b"ID,batch,Tokens\n1,8,32\n2,8,128\n3,8,128\n",
        b"prompt\n32\n128\n128\n",
        b'"32"\n"128"\n 128 \n',
    ],
)
def test_a_file_of_lengths_may_have_a_head_and_any_ends_of_lines(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lengths.csv").write_bytes(content)

    assert normal({"sequence": "lengths.csv"}, [tmp_path]) == "mix[sequence=32x1+128x2]"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "has no lengths"),
        ("length\n", "has no lengths"),
        ("32\n-3\n", "line 2: '-3' is no length (expected a whole number from 1 to 1000000 a line)"),
        ("32\n0\n", "line 2: '0' is no length"),
        ("32\n\nmany\n", "line 3: 'many' is no length"),
        ("32\n1e3\n", "'1e3' is no length"),
        ("32\n12.5\n", "'12.5' is no length"),
        ("32\n1000001\n", "'1000001' is no length"),
        ("32\n" + "9" * 5000 + "\n", "is no length"),
        ("32\n\0\n", "is no length"),
        ("length,weight\n32,0.5\n", "has a column 'weight'"),
        ("32,0.5\n64,0.5\n", "has several columns and no head"),
        ("batch,prompt\n1,32\n", "has no column of that name: its head has batch, prompt (known names: length, "),
        ("batches\n8\n", "has no column of that name: its head has batches"),
        ("id,batch\n1,8\n", "has no column of that name: its head has id, batch"),
        ("id,len\n1,32\n2,64\n", "has no column of that name: its head has id, len"),
        ("prompt,answer\n32,8\n", "has no column of that name: its head has prompt, answer"),
        ("request_id\n1\n2\n", "has no column of that name: its head has request_id"),
        ("a,32\nb,64\n", "has no column of that name: its head has a, 32"),
        ("x" * ((1 << 20) + 1), "draw some of its lines, each as likely as any other"),
    ],
)
def test_what_is_no_file_of_lengths_is_refused_with_the_line(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "lengths.csv").write_text(content, encoding="utf-8")

    with pytest.raises(SpecError, match=r"lengths\.csv") as raised:
        normal({"sequence": "lengths.csv"}, [tmp_path])
    assert said in str(raised.value)
    assert "sequence" in str(raised.value)


def test_a_log_of_hundreds_of_lengths_is_measured_at_ten_that_have_its_tokens(tmp_path: Path) -> None:
    draw = random.Random(0)
    lengths = [1 + int(draw.lognormvariate(4, 0.8)) for _ in range(5000)]
    (tmp_path / "log.csv").write_text("\n".join(map(str, lengths)))
    assert len(set(lengths)) > 300

    mix = parse(normal({"sequence": "log.csv"}, [tmp_path]))

    assert len(mix.lengths) == mix.turn == 10
    assert max(mix.lengths) < max(lengths)
    tokens = sum((shape.sequence or 0) * count for shape, count in mix.calls) / mix.turn
    assert tokens == pytest.approx(sum(lengths) / len(lengths), abs=0.5)
    # The order of its lines says nothing.
    draw.shuffle(lengths)
    (tmp_path / "log.csv").write_text("\n".join(map(str, lengths)))
    assert normal({"sequence": "log.csv"}, [tmp_path]) == str(mix)


def test_groups_have_equally_many_calls_each_at_its_mean() -> None:
    tens = {length: Fraction(1) for length in range(1, 101)}

    assert list(grouped(tens, 10)) == [6, 16, 26, 36, 46, 56, 66, 76, 86, 96]
    # One length that most calls have is several groups, which are one.
    assert grouped({8: Fraction(9), 80: Fraction(1)}, 10) == {8: 9, 80: 1}
    assert grouped({8: Fraction(1), 80: Fraction(1)}, 1) == {44: 2}


def test_a_rare_length_of_a_file_is_grouped_and_one_that_somebody_weighs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("16\n" * 999 + "512\n")

    assert normal({"sequence": "log.csv"}, [tmp_path]) == "mix[sequence=16x9+21x1]"
    with pytest.raises(SpecError, match=r"sequence 512 is 0\.001 of the calls, less than one of 100"):
        normal({"sequence": {16: 0.999, 512: 0.001}})


def test_the_groups_leave_a_call_of_the_rarest_batch(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("\n".join(map(str, range(1, 101))))

    few = parse(normal({"batch": {1: 0.97, 8: 0.03}, "sequence": "log.csv"}, [tmp_path]))
    assert len(few.lengths) == 3
    assert {shape.batch for shape in few.shapes} == {1, 8}
    assert few.turn == 100
    with pytest.raises(SpecError, match=r"batch 8 is 0\.005 of the calls"):
        normal({"batch": {1: 0.995, 8: 0.005}, "sequence": "log.csv"}, [tmp_path])


def test_a_file_of_both_says_which_lengths_go_with_which_batches(tmp_path: Path) -> None:
    given = {"batch": "calls.csv", "sequence": "calls.csv"}
    file = tmp_path / "calls.csv"
    file.write_text("sequence,batch\n128,1\n128,1\n128,1\n32,8\n")

    assert normal(given, [tmp_path]) == "mix[batch:sequence=1:128x3+8:32x1]"
    # By itself a column is one axis, whose calls do not depend on the other.
    assert (
        normal({"sequence": "calls.csv", "batch": {1: 3, 8: 1}}, [tmp_path]) == "mix[batch=1x3+8x1,sequence=32x1+128x3]"
    )

    # It is one file however it is written, and another that has the same is another.
    for name in ("./calls.csv", "../" + tmp_path.name + "/calls.csv", str(file)):
        assert normal({"batch": "calls.csv", "sequence": name}, [tmp_path]) == normal(given, [tmp_path])
    (tmp_path / "copy.csv").write_text(file.read_text())
    apart = normal({"batch": "calls.csv", "sequence": "copy.csv"}, [tmp_path])
    assert apart == "mix[batch=1x3+8x1,sequence=32x1+128x3]"
    with pytest.raises(SpecError, match=r"sequence: no file 'other\.csv' in "):
        normal({"batch": "calls.csv", "sequence": "other.csv"}, [tmp_path])

    file.write_text("batch,sequence\n" + "".join(f"{8 if n % 5 == 0 else 1},{n}\n" for n in range(1, 201)))
    mix = parse(normal(given, [tmp_path]))
    assert [sum(count for shape, count in mix.calls if shape.batch == batch) for batch in (1, 8)] == [8, 2]
    assert len(mix.shapes) == 10

    for content, said in {
        "batch,when\n1,2\n": "has no column of that name: its head has batch, when",
        "1\n2\n": "has no column of that name: it has no head",
        "batch,sequence\n1,2\n3\n": "line 3: '' is no length",
        "batch,sequence\n0,2\n": "line 2: '0' is no batch",
    }.items():
        file.write_text(content)
        with pytest.raises(SpecError) as raised:
            normal(given, [tmp_path])
        assert said in str(raised.value)


def test_no_group_hides_a_length_that_fits_in_no_bucket(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("\n".join(map(str, [*range(1, 101), 4000])))

    with pytest.raises(SpecError, match=r"1 of 101 lengths, up to 4000, fit in no bucket \(the largest is 512\)"):
        normal({"sequence": "log.csv", "buckets": [64, 512]}, [tmp_path])
    (tmp_path / "calls.csv").write_text("batch,sequence\n" + "".join(f"1,{n}\n" for n in [*range(1, 101), 4000]))
    with pytest.raises(SpecError, match="1 of 101 lengths, up to 4000, fit in no bucket"):
        normal({"sequence": "calls.csv", "batch": "calls.csv", "buckets": [64, 512]}, [tmp_path])
    assert normal({"sequence": "log.csv", "buckets": [64, 4096]}, [tmp_path]).endswith(",buckets=64+4096]")
