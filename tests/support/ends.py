"""What tests of the ends of a run are parametrized by."""

import pytest
from celery import VERSION

CELERY_57 = VERSION >= (5, 7)
EARLY_AND_LATE = pytest.mark.parametrize("name", ["ends_by", "ends_late_by"])
