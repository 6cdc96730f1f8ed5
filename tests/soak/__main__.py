"""``python -m soak --seconds 300 --seed 7``; a seed of its own, which is printed, where none is given."""

import argparse
import random
import sys


def main():
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--seconds", type=int, default=300, help="of faults; what they left needs a little more")
    parser.add_argument("--seed", type=int, default=None, help="of the work and of the faults")
    parser.add_argument("--only", action="append", metavar="KIND", help="no other kind of fault than this")
    parser.add_argument(
        "--without", default="", metavar="RULE", help="of the protocol (support/mutants.py): what then goes wrong"
    )
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    from soak.soak import Soak

    print(f"soak of {options.seconds} s, seed {seed} …", flush=True)
    report = Soak(seed, options.seconds, kinds=options.only, mutant=options.without).run()
    print(report)
    sys.exit(bool(report.broken))


if __name__ == "__main__":
    main()
