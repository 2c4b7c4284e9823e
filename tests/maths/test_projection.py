from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unweave import UsageError
from unweave.maths import gram_matrix, remove_span, spans

SHAPES = [(4, 3), (5,), (2, 2, 2)]


def gradient(seed, scale=1.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(shape, dtype=dtype, generator=generator) for shape in SHAPES]


def flat(parts):
    return torch.cat([part.reshape(-1).double() for part in parts])


@given(seed=st.integers(0, 9999), count=st.integers(1, 3), power=st.integers(-8, 8))
def test_nothing_is_left_along_the_basis(seed, count, power):
    direction = gradient(seed)
    basis = [gradient(seed + 1 + i, scale=10.0 ** (power if i == 0 else 0)) for i in range(count)]
    rest = flat(remove_span(direction, basis))
    for part in basis:
        assert (rest @ flat(part)).abs() <= 1e-9 * flat(direction).norm() * flat(part).norm()


@given(seed=st.integers(0, 9999), count=st.integers(1, 3))
def test_what_is_removed_lies_in_the_span_and_removing_twice_changes_nothing(seed, count):
    direction, basis = gradient(seed), [gradient(seed + 1 + i) for i in range(count)]
    rest = remove_span(direction, basis)
    removed = flat(direction) - flat(rest)
    matrix = torch.stack([flat(part) for part in basis], dim=1)
    fitted = matrix @ torch.linalg.lstsq(matrix, removed[:, None]).solution[:, 0]
    assert torch.allclose(fitted, removed, atol=1e-10)
    assert torch.allclose(flat(remove_span(rest, basis)), flat(rest), atol=1e-10)


@given(seed=st.integers(0, 9999), first=st.integers(-6, 6), second=st.integers(-6, 6))
def test_the_lengths_of_the_basis_do_not_matter(seed, first, second):
    direction, forget, remote = gradient(seed), gradient(seed + 1), gradient(seed + 2)
    scaled = [[10.0**first * part for part in forget], [-(10.0**second) * part for part in remote]]
    assert torch.allclose(
        flat(remove_span(direction, [forget, remote])), flat(remove_span(direction, scaled)), atol=1e-9
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, -3.0, 1e-7])
def test_a_basis_of_parallel_gradients_is_one_direction(dtype, scale):
    direction, forget = gradient(1, dtype=dtype), gradient(2, dtype=dtype)
    twice = remove_span(direction, [forget, [scale * part for part in forget]])
    once = remove_span(direction, [forget])
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    assert torch.allclose(flat(twice), flat(once), atol=tolerance)


def test_zero_gradients_in_the_basis_are_ignored():
    direction, forget = gradient(1), gradient(2)
    zero = [torch.zeros_like(part) for part in forget]
    assert torch.equal(flat(remove_span(direction, [zero, zero])), flat(direction))
    assert torch.allclose(flat(remove_span(direction, [forget, zero])), flat(remove_span(direction, [forget])))
    assert flat(remove_span(zero, [forget, zero])).eq(0).all()


@given(seed=st.integers(0, 9999), ridge=st.floats(1e-6, 1e2))
def test_a_ridge_leaves_exactly_ridge_times_weight(seed, ridge):
    direction, basis = gradient(seed), [gradient(seed + 1), gradient(seed + 2)]
    rest = flat(remove_span(direction, basis, ridge=ridge))
    gram = gram_matrix(basis)
    dots = torch.stack([flat(direction) @ flat(part) for part in basis])
    weights = torch.linalg.solve(gram + ridge * torch.eye(2, dtype=torch.float64), dots)
    left = torch.stack([rest @ flat(part) for part in basis])
    assert torch.allclose(left, ridge * weights, rtol=1e-6, atol=1e-9)


def test_layouts_may_differ():
    image = torch.randn(2, 3, 4, 4)
    other = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    rest = remove_span([image], [[other]])[0]
    assert (rest * other).sum().abs() < 1e-4


def test_shapes_must_agree():
    with pytest.raises(UsageError, match="shapes of the direction"):
        remove_span([torch.ones(2)], [[torch.ones(3)]])


def by_pseudo_inverse(direction, basis):
    """The projection as a textbook has it, on whole vectors."""
    matrix = torch.stack([flat(part) for part in basis], dim=1)
    return flat(direction) - matrix @ (torch.linalg.pinv(matrix, rtol=1e-6) @ flat(direction))


@given(seed=st.integers(0, 9999), count=st.integers(1, 5), repeats=st.lists(st.integers(0, 4), max_size=3))
def test_it_agrees_with_the_pseudo_inverse_also_where_the_basis_is_dependent(seed, count, repeats):
    direction, basis = gradient(seed), [gradient(seed + 1 + i) for i in range(count)]
    for number in repeats:
        first, second = basis[number % count], basis[-1]
        basis.append([2 * a - 3 * b for a, b in zip(first, second, strict=True)])
    found = flat(remove_span(direction, basis))
    assert torch.allclose(found, by_pseudo_inverse(direction, basis), atol=1e-7)


@pytest.mark.parametrize("most", [1, 7, 24, 1000])
def test_products_do_not_depend_on_how_gradients_are_cut(most, monkeypatch):
    some = [gradient(i) for i in range(3)]
    monkeypatch.setitem(spans.CHUNK, "cpu", most)
    expected = torch.stack([torch.stack([flat(a) @ flat(b) for a in some]) for b in some])
    assert torch.allclose(gram_matrix(some), expected, rtol=1e-12)


def test_products_pair_the_same_entries_whatever_the_layouts():
    image, other = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    last = [part.to(memory_format=torch.channels_last) for part in (image, other)]
    for first, second in ((image, last[1]), (last[0], other), last):
        assert gram_matrix([[first], [second]])[0, 1] == pytest.approx(float((image.double() * other.double()).sum()))


def test_in_place_is_the_same_and_leaves_the_basis():
    direction, basis = gradient(1), [gradient(2), gradient(3)]
    expected, before = flat(remove_span(direction, basis)), [flat(part) for part in basis]
    found = remove_span(direction, basis, in_place=True)
    assert torch.equal(flat(found), expected)
    assert all(one is other for one, other in zip(found, direction, strict=True))
    assert all(torch.equal(flat(part), was) for part, was in zip(basis, before, strict=True))
