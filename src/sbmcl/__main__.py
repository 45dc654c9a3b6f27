"""`python -m sbmcl`, as torchrun wants it."""

import sys

from sbmcl.cli.app import main

sys.exit(main())
