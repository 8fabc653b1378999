"""`python -m rose.cli`."""

import sys

from rose.cli import main

sys.exit(main())
