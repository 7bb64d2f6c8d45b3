"""The search over nodes: what it ends with fails, no single node of it can be left out, and nothing misleads it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.conftest import skip_without

skip_without("onnx")

from pytest_ngraph.reducing.graph import Graph  # noqa: E402
from pytest_ngraph.reducing.search import Search  # noqa: E402
from tests.support import cut_models  # noqa: E402


def chain(count: int, seed: int) -> Graph:
    """Make a graph whose nodes read one or two of those before them."""
    draw, nodes = random.Random(seed), []
    for number in range(count):
        reads = [f"v{draw.randrange(max(0, number - 5), number)}" if number else "image" for _ in range(2)]
        nodes.append(cut_models.node("Add", " ".join(reads), f"v{number}"))
    return Graph(cut_models.model(nodes, [cut_models.value(f"v{count - 1}", 4, 8)], []))


def searched(graph: Graph, fails: Callable[[frozenset[int]], bool]) -> tuple[Search, list[tuple[int, ...]]]:
    tried: list[tuple[int, ...]] = []

    def asked(nodes: tuple[int, ...]) -> bool:
        tried.append(nodes)
        return fails(frozenset(nodes))

    search = Search(graph, asked)
    search.run()
    return search, tried


@pytest.mark.parametrize("seed", range(12))
def test_the_nodes_that_must_be_together_are_found(seed: int) -> None:
    graph, draw = chain(60, seed), random.Random(seed)
    guilty = frozenset(draw.sample(range(60), draw.randint(1, 3)))

    search, tried = searched(graph, lambda nodes: guilty <= nodes)

    assert set(search.best) == guilty
    assert search.is_minimal
    assert len(tried) < 80


def test_one_guilty_node_takes_a_try_for_each_halving_and_one() -> None:
    search, tried = searched(chain(1000, 1), lambda nodes: 700 in nodes)

    assert search.best == (700,)
    assert len(tried) <= 11


@pytest.mark.parametrize("seed", range(6))
def test_with_several_places_one_of_them_is_left(seed: int) -> None:
    search, _ = searched(chain(50, seed), lambda nodes: bool(nodes & {7, 23, 41}))

    assert len(search.best) == 1
    assert set(search.best) <= {7, 23, 41}


@pytest.mark.parametrize("seed", range(6))
def test_what_comes_and_goes_never_makes_it_end_with_what_did_not_fail(seed: int) -> None:
    draw, known = random.Random(seed), dict[frozenset[int], bool]()

    def fails(nodes: frozenset[int]) -> bool:
        return known.setdefault(nodes, draw.random() < 0.3)

    search, tried = searched(chain(40, seed), fails)

    assert len(search.best) == 40 or known[frozenset(search.best)]
    assert all(len(nodes) < 40 for nodes in tried)


def test_where_no_part_fails_by_itself_all_is_left() -> None:
    search, _ = searched(chain(20, 0), lambda nodes: len(nodes) == 20)

    assert search.best == tuple(range(20))


def test_what_ends_it_leaves_the_best_so_far() -> None:
    left = 4

    class Over(Exception):
        pass

    def fails(nodes: tuple[int, ...]) -> bool:
        nonlocal left
        left -= 1
        if not left:
            raise Over
        return 30 in nodes

    search = Search(chain(64, 0), fails)
    with pytest.raises(Over):
        search.run()
    assert 30 in search.best
    assert len(search.best) < 64
    assert not search.is_minimal
