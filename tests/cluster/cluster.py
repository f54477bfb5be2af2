#!/usr/bin/env python3
"""A real one-node Kubernetes cluster on this machine: `python3 tests/cluster/cluster.py --help`."""

import sys

from minicluster.cli import main

if __name__ == "__main__":
    sys.exit(main())
