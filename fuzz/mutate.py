"""Files with a few bytes changed at random, through every reader; the seed makes them again.

    python fuzz/mutate.py --seconds 60 --seed 7 [trec-run beir …]

Run with the sanitised build (see run.py) it is the C code that is put to the test. The file in
hand stays in build/fuzz/mutate/TARGET/file when the process dies of it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from itertools import count, takewhile
from pathlib import Path

from readers import TARGETS
from seeds import SEEDS, WORDS

FOLDER = Path("build/fuzz/mutate")


def mutated(draw: random.Random, target: str) -> bytes:
    """One of the target's seeds after one to six small changes."""
    data = bytearray(draw.choice(SEEDS[target]))
    for _ in range(draw.randint(1, 6)):
        at = draw.randint(0, len(data))
        end = min(len(data), at + draw.choice((1, 1, 1, 4, 16, 64)))
        change = draw.randrange(6)
        if change == 0:
            data[at:end] = b""
        elif change == 1:
            data[at:at] = draw.choice(WORDS)
        elif change == 2:
            data[at:end] = draw.choice(WORDS)
        elif change == 3:
            data[at:at] = data[at:end] * draw.choice((1, 1, 2, 30))
        elif change == 4 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        else:  # the rest of another file
            data[at:] = draw.choice(SEEDS[draw.choice(sorted(SEEDS))])[at:]
    return bytes(data)


def kind_of(error: BaseException) -> tuple[str, str, int]:
    """Errors of one kind come from one line; the shortest file of each is kept."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__, Path(frames[-1].filename).name, frames[-1].lineno or 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--files", type=int, help="so many for each target, however long it takes")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], metavar="target")
    given = parser.parse_args()
    targets = given.targets or list(TARGETS)
    print(f"mutate.py --seed {given.seed}", flush=True)
    tried, accepted = dict.fromkeys(targets, 0), dict.fromkeys(targets, 0)
    found: dict[tuple[str, tuple[str, str, int]], tuple[bytes, Exception]] = {}
    draw = random.Random(given.seed)
    end = time.monotonic() + given.seconds
    in_time = takewhile(lambda _: time.monotonic() < end, count())
    for _ in range(given.files) if given.files else in_time:
        for target in targets:
            folder = FOLDER / target
            folder.mkdir(parents=True, exist_ok=True)
            data = mutated(draw, target)
            tried[target] += 1
            try:
                accepted[target] += TARGETS[target](folder, data)
            except Exception as error:
                which = (target, kind_of(error))
                if which not in found or len(data) < len(found[which][0]):
                    found[which] = data, error
    for target in targets:
        print(f"  {target}: {tried[target]:,} files, {accepted[target]:,} of them accepted")
    for (target, _), (data, reason) in sorted(found.items(), key=lambda item: item[0]):
        print(f"\nFOUND by {target}: {data!r}\n  {type(reason).__name__}: {reason}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
