"""Times of grouping claimed nodes, for graphs of 1,000 to 100,000 nodes.

    python bench/partition.py

Near-linear means that the last column stays about the same down a block.
"""

from __future__ import annotations

import random
import statistics
import time

from ort_mlx.partition import convex_groups

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
REPEATS = 3


def chain(size: int, rng: random.Random) -> list[list[int]]:
    return [[n - 1] if n else [] for n in range(size)]


def residual(size: int, rng: random.Random) -> list[list[int]]:
    """Blocks of five nodes with a skip connection, as in most networks."""
    return [
        sorted({n - 1, n - 5}) if n % 5 == 0 and n else [n - 1] if n else [] for n in range(size)
    ]


def scattered(size: int, rng: random.Random) -> list[list[int]]:
    """Two inputs from anywhere before: the worst case for pieces and levels."""
    return [sorted({rng.randrange(n) for _ in range(2)}) if n else [] for n in range(size)]


def main() -> None:
    print(f"{'graph':<10} {'claimed':>8} {'nodes':>8} {'groups':>8} {'ms':>9} {'us/node':>8}")
    for make in (chain, residual, scattered):
        for share in (0.9, 0.99, 1.0):
            for size in SIZES:
                rng = random.Random(size)
                before = make(size, rng)
                claimed = [rng.random() < share for _ in range(size)]
                times = []
                for _ in range(REPEATS):
                    start = time.perf_counter()
                    groups = convex_groups(before, claimed)
                    times.append(time.perf_counter() - start)
                took = statistics.median(times)
                print(
                    f"{make.__name__:<10} {share:>8.0%} {size:>8} {len(groups):>8} "
                    f"{took * 1e3:>9.1f} {took / size * 1e6:>8.2f}"
                )


if __name__ == "__main__":
    main()
