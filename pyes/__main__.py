"""``python -m pyes`` is the command ``pyes``."""

import sys

from pyes.cli import main

if __name__ == "__main__":
    sys.exit(main())
