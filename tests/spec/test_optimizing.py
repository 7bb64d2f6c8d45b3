"""The text of the axis optimize: what is read, its normal form, and what is said of anything else."""

from __future__ import annotations

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.optimizers.catalogue import Optimizers
from pytest_ngraph.spec.optimizing import Optimization, Step, parse


@pytest.mark.parametrize(
    ("text", "normal", "optimize", "precision"),
    [
        ("dense", "dense", "dense", ""),
        (" channel_prune = .50 ", "channel_prune=0.5", "channel_prune=0.5", ""),
        ("prune[b=2, a=x,flag]=5e-1", "prune[a=x,b=2,flag]=0.5", "prune[a=x,b=2,flag]=0.5", ""),
        ("one=0.5 + two[a=1]=0.25", "one=0.5+two[a=1]=0.25", "one=0.5+two[a=1]=0.25", ""),
        ("one=0.5+int8", "one=0.5+int8", "one=0.5", "int8"),
        ("one=0.5+int8[samples=8, by=nncf]", "one=0.5+int8[by=nncf,samples=8]", "one=0.5", "int8[by=nncf,samples=8]"),
        ("int8", "int8", "dense", "int8"),
    ],
)
def test_equal_texts_have_one_normal_form(text: str, normal: str, optimize: str, precision: str | None) -> None:
    read = parse(text)

    assert (str(read), read.optimize) == (normal, optimize)
    assert precision is None or read.precision == precision
    assert parse(normal) == read


def test_a_step_has_its_options_by_name_and_its_ratio() -> None:
    assert parse("a[z=1,b=2]=0.1+c=0.9") == Optimization((Step("a", (("b", "2"), ("z", "1")), 0.1), Step("c", (), 0.9)))
    # Two ratios that differ are two networks, however little.
    assert str(parse("a=0.1000000001")) != str(parse("a=0.1"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("channel_prune=0", r"'channel_prune=0': '0' is no ratio .*between 0 and 1.*write 'dense'"),
        ("channel_prune=1", "'1' is no ratio .expected a ratio between 0 and 1, such as 0.5"),
        ("channel_prune=2", "'2' is no ratio"),
        ("channel_prune=-0.5", "'-0.5' is no ratio"),
        ("channel_prune=nan", "'nan' is no ratio"),
        ("channel_prune=0_1", "'0_1' is no ratio"),
        ("channel_prune=many", "'many' is no ratio"),
        ("channel_prune=", "'' is no ratio"),
        ("channel_prune", r"has no ratio \(expected channel_prune=RATIO"),
        ("dense=0.5", "dense is a network to which nothing is done; it stands alone"),
        ("dense+a=0.5", "'dense.a=0.5': its step 'dense': dense is a network"),
        ("int8=0.5", "int8 is a precision, without a ratio"),
        ("int8+a=0.5", "its step 'int8': int8 is a precision"),
        ("a=0.5++b=0.5", "its step '' is not allowed .expected dense, or steps joined by"),
        ("a[b=1=0.5", "is not allowed .expected dense"),
        ("a[b=[1]]=0.5", "is not allowed .expected dense"),
        ("a[b=1,b=2]=0.5", "option 'b' is given twice"),
        ("a[]=0.5", "'' in its brackets is not allowed .expected option=value"),
        ("", "'' is not allowed .expected dense"),
        (3, "3 is not allowed .expected dense"),
        (None, "None is not allowed"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("chanel_prune=0.5", "unknown optimizer 'chanel_prune' .known: channel_prune, weight_prune; did you mean"),
        ("channel_prune[off=macs]=0.5", "unknown option 'off' .options of channel_prune: of, norm, scope"),
        ("channel_prune[of=layers]=0.5", "option of='layers' is not allowed .allowed: channels, parameters, macs"),
        ("weight_prune=0.5+channel_prune[scope=all]=0.5", "scope='all' is not allowed .allowed: global, local"),
    ],
)
def test_what_no_optimizer_takes_is_said(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Optimizers().check(parse(text))
