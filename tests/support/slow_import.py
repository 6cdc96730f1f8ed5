"""A module whose import takes a second, in which another thread's process can fork (``shop_hooks.import_slowly``)."""

import time

time.sleep(1)
