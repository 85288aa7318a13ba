"""``python -m venturi.application`` is ``venturi-root``."""

import sys

from venturi.application.client import main

sys.exit(main())
