"""How a processor chooses the grid of tiles for an image: (columns, rows)."""

from collections.abc import Callable, Iterable
from functools import cache

Grid = tuple[int, int]


@cache
def grids(least: int, most: int) -> tuple[Grid, ...]:
    """All grids with that many tiles, those with fewer tiles first."""
    sides = range(1, most + 1)
    found = [(c, r) for c in sides for r in sides if least <= c * r <= most]
    return tuple(sorted(found, key=lambda grid: grid[0] * grid[1]))


def closest(width: int, height: int, among: Iterable[Grid], later: Callable[[Grid, Grid], bool]) -> Grid:
    """The grid whose ratio of sides is nearest to the image's; of equal ones ``later(first, other)`` decides."""
    ratio, nearest, best = width / height, float("inf"), (1, 1)
    for grid in among:
        off = abs(ratio - grid[0] / grid[1])
        if off < nearest:
            nearest, best = off, grid
        elif off == nearest and later(best, grid):
            best = grid
    return best


def closest_by_area(width: int, height: int, least: int, most: int, side: int) -> Grid:
    """The closest, and of equal ones the largest that the image fills to more than half: InternVL's reference."""
    return closest(
        width, height, grids(least, most), lambda _, grid: width * height > 0.5 * side * side * grid[0] * grid[1]
    )


def closest_largest(width: int, height: int, most: int) -> Grid:
    """The closest, and of equal ones the largest: SGLang's InternVL."""
    return closest(width, height, grids(1, most), lambda best, grid: grid[0] * grid[1] > best[0] * best[1])


def least_scaled(width: int, height: int, most: int, side: int) -> Grid:
    """The grid that enlarges the image least, or else shrinks it least: Cohere's."""
    scaled = [(min(c * side / width, r * side / height), (c, r)) for c, r in grids(1, most)]
    enlarging = [each for each in scaled if each[0] >= 1]
    if enlarging:
        return min(enlarging, key=lambda each: each[0])[1]
    return max(scaled, key=lambda each: each[0])[1]


def least_wasted(width: int, height: int, sizes: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Of some sizes the one that keeps most of the image's pixels, and of equal ones wastes the fewest: LLaVA's."""
    best, kept, wasted = (0, 0), 0, float("inf")
    for w, h in sizes:
        scale = min(w / width, h / height)
        keeps = min(int(width * scale) * int(height * scale), width * height)
        wastes = w * h - keeps
        if keeps > kept or (keeps == kept and wastes < wasted):
            best, kept, wasted = (w, h), keeps, wastes
    if best == (0, 0):
        raise ValueError(f"an image of {width} x {height} has no pixels left in any of the sizes")
    return best
